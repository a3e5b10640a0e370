// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/retry/request_rate.hpp>
#include <millrace/retry/retry.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/hedged_storage.hpp>
#include <millrace/testing/virtual_loop.hpp>

/// \file
/// Many ranks that read from one store, all on one loop of virtual time: each has a fetch() of its own with all that is
/// below it, the gate of its requests and the policy of its retries. The store is a model of S3: it counts the requests
/// for a prefix in a bucket of tokens and refuses those that find it empty.

namespace millrace::test {

/// The behaviour of a fleet, and the store that it reads from.
class fleet_options {
 public:
  int ranks = 8;
  double demand = 0;        ///< bytes in a second that each rank takes; 0: all that come
  double seconds = 30;      ///< of which the first third counts for nothing
  double limit = 5500;      ///< requests in a second that the store takes
  double later_limit = 0;   ///< the same in the second half of the time; 0: the same
  double burst = 0.1;       ///< seconds of these that it takes at once
  std::uint64_t stray = 0;  ///< the number, from 1, of a request that it refuses whatever the rate; 0: none
  std::uint64_t seed = 1;   ///< of the times that requests take, and of pauses
  std::size_t object = 140'000'000;
  fetch_options fetch = {};
  retry_options retry = {};
};

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

/// The store that all ranks read from.
class store_model {
 public:
  static constexpr double connection = 85e6;  ///< bytes in a second
  static constexpr double nic = 12.5e9;       ///< of a host
  static constexpr double all = 200e9;        ///< of the store
  static constexpr int ranks_of_host = 8;

  explicit store_model(const fleet_options& o)
      : options_(o), tokens_(o.limit * o.burst), hosts_(static_cast<std::size_t>(o.ranks / ranks_of_host + 1)) {}

  double limit(double now) const {
    return options_.later_limit > 0 && now >= options_.seconds / 2 ? options_.later_limit : options_.limit;
  }
  /// True if it takes a request.
  bool admits(double now) {
    counted_from_ = now >= options_.seconds / 3;
    ++requests;
    if (now < 1) ++first_second;
    if (counted_from_) ++counted_;
    const double rate = limit(now);
    tokens_ = std::min(rate * options_.burst, tokens_ + (now - last_) * rate);
    last_ = now;
    if (tokens_ < 1 || requests == options_.stray) {
      if (counted_from_) ++refused_;
      if (now < 1) ++refused_first;
      return false;
    }
    tokens_ -= 1;
    return true;
  }
  /// Seconds until the first byte: 20 ms in the median, one of 10 takes 50, one of 100 200, one of 1,000 a second.
  static double latency(rng& random) {
    struct point {
      double tail, seconds;
    };
    static constexpr point points[] = {{0, .010}, {.69, .020}, {2.30, .050}, {4.61, .200}, {6.91, 1}, {9.21, 2.5}};
    const double tail = std::min(-std::log(1 - detail::draw_uniform(random)), 9.2);
    std::size_t i = 0;
    while (tail > points[i + 1].tail) ++i;
    const double share = (tail - points[i].tail) / (points[i + 1].tail - points[i].tail);
    return points[i].seconds * std::pow(points[i + 1].seconds / points[i].seconds, share);
  }
  /// When the last of `bytes` has come to `rank`, whose first came at `now`.
  double last_byte(int rank, double now, double bytes) {
    double& host = hosts_[static_cast<std::size_t>(rank / ranks_of_host)];
    host = std::max(host, now) + bytes / nic;
    sent_ = std::max(sent_, now) + bytes / all;
    if (counted_from_) {
      bytes_ += bytes;
      ++parts_;
    }
    return std::max({now + bytes / connection, host, sent_});
  }

  double refused() const {
    return static_cast<double>(refused_) / static_cast<double>(std::max<std::uint64_t>(counted_, 1));
  }
  double mean_part() const { return bytes_ / static_cast<double>(std::max<std::uint64_t>(parts_, 1)); }
  std::uint64_t requests = 0;
  std::uint64_t first_second = 0;
  std::uint64_t refused_first = 0;

 private:
  const fleet_options& options_;
  double tokens_;
  double last_ = 0;
  std::vector<double> hosts_;
  double sent_ = 0;
  bool counted_from_ = false;
  std::uint64_t counted_ = 0, refused_ = 0, parts_ = 0;
  double bytes_ = 0;
};

inline duration fleet_time(double seconds) { return duration(static_cast<std::int64_t>(1e9 * seconds)); }
inline double fleet_seconds(time_point since, time_point now) {
  return 1e-9 * static_cast<double>((now - since).count());
}

/// A rank's client of that: the gate, the policy, and requests that take the model's time.
class fleet_storage final : public storage {
 public:
  fleet_storage(store_model& model, const fleet_options& o, time_point began, int rank)
      : model_(model),
        retry_(o.retry),
        began_(began),
        rank_(rank),
        random_(o.seed, static_cast<std::uint64_t>(1 + rank), 0),
        quota_(o.retry.quota) {}

  bool serves(std::string_view) const noexcept override { return true; }
  task<part> read(shard object, std::string, std::uint64_t offset, std::size_t length, slab_pool) const override {
    executor& ex = co_await this_executor();
    retry_policy policy(retry_, quota_);
    std::optional<time_point> held_since;
    for (;;) {
      const detail::request_gate::turn turn = co_await gate_.enter();
      if (model_.admits(fleet_seconds(began_, turn.begun))) {
        gate_.succeeded(ex.now());
        const double latency = store_model::latency(random_);
        co_await sleep_for(fleet_time(latency));
        part p;
        p.data = zeros(std::min<std::uint64_t>(length, *object.size - offset));
        const double now = fleet_seconds(began_, ex.now());
        const double end = model_.last_byte(rank_, now, static_cast<double>(p.data.size()));
        co_await sleep_for(fleet_time(end - now));
        policy.after_success();
        p.total = object.size;
        p.etag = "\"e\"";
        p.first_byte = fleet_time(latency);
        p.held = turn.begun - held_since.value_or(turn.asked);
        co_return std::move(p);
      }
      co_await sleep_for(std::chrono::milliseconds(5));
      gate_.refused(turn, ex.now(), uniform());
      if (!held_since) held_since = turn.asked;
      failed_attempt failed;
      failed.what = retry_class::throttling;
      failed.now = ex.now();
      const std::optional<duration> pause = policy.after_failure(failed, uniform());
      if (!pause) throw s3::error(503, "SlowDown", "Please reduce your request rate.", "id");
      co_await sleep_for(*pause);
    }
  }

 private:
  double uniform() const { return detail::draw_uniform(random_); }
  static bytes zeros(std::uint64_t n) {
    static const bytes all = bytes::copy(std::string(32 * MiB, '\0'));
    return all.slice(0, static_cast<std::size_t>(n));
  }

  store_model& model_;
  const retry_options retry_;
  const time_point began_;
  const int rank_;
  mutable rng random_;
  mutable retry_quota quota_;
  mutable detail::request_gate gate_;
};

/// A rank, and what it has got.
class fleet_rank {
 public:
  double bytes = 0;
  double before = 0;  ///< of these, in the first third
  std::string error;

  static task<void> run(fleet_rank& self, store_model& model, const fleet_options& o, int rank) {
    executor& ex = co_await this_executor();
    const time_point began = ex.now();
    const auto store = hedged(std::make_shared<fleet_storage>(model, o, began, rank));
    std::vector<shard> objects;
    const double most = o.demand > 0 ? o.demand * o.seconds : 2e9 * o.seconds;
    for (int i = 0; i <= static_cast<int>(most / static_cast<double>(o.object)) + 1; ++i) {
      shard object("p:/" + std::to_string(i));
      object.size = o.object;
      object.etag = "\"e\"";
      objects.push_back(std::move(object));
    }
    try {
      async_generator<chunk> chunks = (from_range(std::move(objects)) | fetch(store, o.fetch)).generator();
      while (auto c = co_await chunks.next()) {
        self.bytes += static_cast<double>(c->data.size());
        const double ahead = o.demand > 0 ? self.bytes / o.demand - fleet_seconds(began, ex.now()) : 0;
        if (ahead > 0) co_await sleep_for(fleet_time(ahead));
      }
    } catch (const std::exception& e) {
      self.error = e.what();
    }
  }
};

inline fleet_result run_fleet(const fleet_options& o) {
  store_model model(o);
  std::vector<fleet_rank> ranks(static_cast<std::size_t>(o.ranks));
  testing::virtual_loop loop;
  std::vector<spawned<void>> running;
  for (int i = 0; i < o.ranks; ++i) {
    running.emplace_back(loop, fleet_rank::run(ranks[static_cast<std::size_t>(i)], model, o, i));
  }
  const double cut = o.seconds / 3;
  loop.run_for(fleet_time(cut));
  for (fleet_rank& r : ranks) r.before = r.bytes;
  loop.run_for(fleet_time(o.seconds - cut));
  running.clear();

  fleet_result result;
  double sum = 0, squares = 0;
  result.slowest = 1e18;
  for (const fleet_rank& r : ranks) {
    const double rate = (r.bytes - r.before) / (o.seconds - cut);
    sum += rate;
    squares += rate * rate;
    result.slowest = std::min(result.slowest, rate);
    if (r.error.empty()) continue;
    ++result.dead;
    result.why = r.error;
  }
  const auto best = [&](double now) {
    const double links = std::min(store_model::all, std::ceil(o.ranks / 8.0) * store_model::nic);
    const double most = std::min(links, model.limit(now) * static_cast<double>(o.fetch.part));
    return o.demand > 0 ? std::min(most, o.demand * o.ranks) : most;
  };
  const double best_mean = (best(0) / 6 + best(o.seconds) / 2) / (2.0 / 3);
  result.mean_rate = sum / o.ranks;
  result.goodput = sum / best_mean;
  result.jain = squares > 0 ? sum * sum / (o.ranks * squares) : 0;
  result.requests = model.requests;
  result.first_second = model.first_second;
  result.refused_first = model.refused_first;
  result.refused = model.refused();
  result.mean_part = model.mean_part();
  return result;
}

}  // namespace millrace::test
