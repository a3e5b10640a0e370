// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/retry/retry_options.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/testing/store_model.hpp>
#include <millrace/testing/virtual_loop.hpp>

/// \file
/// Many ranks that read from one store_model, all on one loop of virtual time: each has a pipeline of its own with all
/// that is below it.

namespace millrace::test {

/// The behaviour of a fleet, and the store that it reads from.
class fleet_options {
 public:
  int ranks = 8;
  double demand = 0;        ///< bytes in a second that each rank takes; 0: all that come
  double seconds = 30;      ///< of run_fleet(), of which the first third counts for nothing
  double limit = 5500;      ///< requests in a second that the store takes
  double later_limit = 0;   ///< of run_fleet(): the same in the second half of the time; 0: the same
  double burst = 0.1;       ///< seconds of these that it takes at once
  std::uint64_t stray = 0;  ///< the number, from 1, of a request that it refuses whatever the rate; 0: none
  std::uint64_t seed = 1;   ///< of the times that requests take, and of pauses
  std::size_t object = 140'000'000;
  fetch_options fetch = {};
  retry_options retry = {};

  testing::request_limit reads(double each_second) const { return {.each_second = each_second, .burst = burst}; }
  testing::store_model_options store() const { return {.reads = reads(limit), .stray = stray, .seed = seed}; }
};

inline duration fleet_time(double seconds) { return duration(static_cast<std::int64_t>(1e9 * seconds)); }
inline double fleet_seconds(time_point since, time_point now) {
  return 1e-9 * static_cast<double>((now - since).count());
}

/// What ranks got in a stretch of time.
class fleet_stretch {
 public:
  std::vector<double> rates;  ///< bytes in a second of each rank
  testing::store_counts counts;

  double sum() const {
    double all = 0;
    for (const double r : rates) all += r;
    return all;
  }
  /// Jain's index of fairness of the rates: 1 where all are the same.
  double jain() const {
    double squares = 0;
    for (const double r : rates) squares += r * r;
    return squares > 0 ? sum() * sum() / (static_cast<double>(rates.size()) * squares) : 0;
  }
  double slowest() const { return *std::min_element(rates.begin(), rates.end()); }
  /// The share of requests that were refused.
  double refused() const {
    return static_cast<double>(counts.refused) / static_cast<double>(std::max<std::uint64_t>(counts.requests, 1));
  }
  double mean_part() const {
    return static_cast<double>(counts.bytes) / static_cast<double>(std::max<std::uint64_t>(counts.reads, 1));
  }
};

/// A rank and what it has got.
class fleet_rank {
 public:
  double bytes = 0;
  double marked = 0;  // of these, at the latest mark
  double paced = 0;   // of these, since `since`
  time_point since{};
  std::string error;
  std::optional<spawned<void>> running;
};

/// Ranks that each take all of what `make(rank, client)` gives, a generator of items with a byte_size().
template <class Make>
class fleet {
 public:
  fleet(const fleet_options& o, testing::store_model& store, Make make)
      : options_(o), store_(store), make_(std::move(make)), ranks_(static_cast<std::size_t>(o.ranks)) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) start(i);
  }
  ~fleet() {
    for (fleet_rank& r : ranks_) r.running.reset();
  }
  fleet(const fleet&) = delete;
  fleet& operator=(const fleet&) = delete;

  void run_for(double seconds) { loop_.run_for(fleet_time(seconds)); }
  /// Drops the rank's pipeline and begins anew, with another client.
  void restart(std::size_t rank) {
    ranks_[rank].running.reset();
    start(rank);
  }
  /// A stretch begins: what ranks are short of their demand is forgiven.
  void mark() {
    marked_ = loop_.now();
    counted_ = store_.counts();
    for (fleet_rank& r : ranks_) {
      r.marked = r.bytes;
      r.paced = 0;
      r.since = marked_;
    }
  }
  /// What came since the mark.
  fleet_stretch stretch() const {
    fleet_stretch s;
    const double seconds = fleet_seconds(marked_, loop_.now());
    for (const fleet_rank& r : ranks_) s.rates.push_back((r.bytes - r.marked) / seconds);
    s.counts = store_.counts() - counted_;
    return s;
  }
  /// Bytes in a second that all ranks together could get, if the store takes `limit` requests in a second.
  double best(double limit) const {
    const testing::store_model_options o = options_.store();
    const double hosts = std::ceil(options_.ranks / static_cast<double>(o.clients_of_host));
    const double links = std::min(o.store_rate, hosts * o.host_rate);
    const double most = std::min(links, limit * static_cast<double>(options_.fetch.part));
    return options_.demand > 0 ? std::min(most, options_.demand * options_.ranks) : most;
  }
  const std::vector<fleet_rank>& ranks() const noexcept { return ranks_; }

 private:
  void start(std::size_t rank) {
    fleet_rank& r = ranks_[rank];
    r.paced = 0;
    r.since = loop_.now();
    r.running.emplace(loop_, consume(r, make_(rank, store_.client(rank, options_.retry)), options_.demand));
  }
  template <class T>
  static task<void> consume(fleet_rank& self, async_generator<T> items, double demand) {
    executor& ex = co_await this_executor();
    try {
      while (std::optional<T> item = co_await items.next()) {
        const double size = static_cast<double>(byte_size(*item));
        self.bytes += size;
        self.paced += size;
        const double ahead = demand > 0 ? self.paced / demand - fleet_seconds(self.since, ex.now()) : 0;
        if (ahead > 0) co_await sleep_for(fleet_time(ahead));
      }
    } catch (const std::exception& e) {
      self.error = e.what();
    }
  }

  const fleet_options options_;
  testing::store_model& store_;
  Make make_;
  testing::virtual_loop loop_;
  std::vector<fleet_rank> ranks_;
  time_point marked_{};
  testing::store_counts counted_;
};

/// The objects that ranks read, of zeros.
inline std::vector<shard> fleet_objects(testing::store_model& store, const fleet_options& o, double most_bytes) {
  std::vector<shard> objects;
  for (int i = 0; i <= static_cast<int>(most_bytes / static_cast<double>(o.object)) + 1; ++i) {
    std::string url = "s3://b/p/" + std::to_string(i);
    std::string etag = store.put(url, o.object);
    objects.emplace_back(std::move(url), o.object, std::move(etag));
  }
  return objects;
}
/// fetch() of these.
inline auto fleet_fetch(std::vector<shard> objects, fetch_options how) {
  return [objects = std::move(objects), how](std::size_t, std::shared_ptr<const storage> client) {
    return (from_range(objects) | fetch(client, how)).generator();
  };
}

class fleet_result {
 public:
  int dead = 0;  ///< ranks that ended with an error
  std::string why;
  double goodput = 0;    ///< bytes that the ranks got, of the most that they could have got
  double jain = 0;       ///< Jain's index of fairness, of the ranks' rates: 1 where all are the same
  double mean_rate = 0;  ///< bytes in a second of a rank
  double slowest = 0;    ///< the same of the slowest
  std::uint64_t requests = 0;
  std::uint64_t first_second = 0;
  std::uint64_t refused_first = 0;  ///< of those
  double refused = 0;               ///< share of the requests after the first third
  double mean_part = 0;
};

/// Ranks that fetch().
inline fleet_result run_fleet(const fleet_options& o) {
  testing::store_model store(o.store());
  const double most = o.demand > 0 ? o.demand * o.seconds : 2e9 * o.seconds;
  fleet all(o, store, fleet_fetch(fleet_objects(store, o, most), o.fetch));
  fleet_result result;
  all.run_for(1);
  result.first_second = store.counts().requests;
  result.refused_first = store.counts().refused;
  const double cut = o.seconds / 3;
  const double later = o.later_limit > 0 ? o.later_limit : o.limit;
  all.run_for(cut - 1);
  all.mark();
  all.run_for(o.seconds / 2 - cut);
  store.set_reads(o.reads(later));
  all.run_for(o.seconds / 2);

  for (const fleet_rank& r : all.ranks()) {
    if (r.error.empty()) continue;
    ++result.dead;
    result.why = r.error;
  }
  const fleet_stretch s = all.stretch();
  const double best_mean = (all.best(o.limit) / 6 + all.best(later) / 2) / (2.0 / 3);
  result.mean_rate = s.sum() / o.ranks;
  result.goodput = s.sum() / best_mean;
  result.jain = s.jain();
  result.slowest = s.slowest();
  result.requests = store.counts().requests;
  result.refused = s.refused();
  result.mean_part = s.mean_part();
  return result;
}

}  // namespace millrace::test
