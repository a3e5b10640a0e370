// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The controller of ranged reads against a model of a store: latencies drawn from a lognormal distribution, a rate for
// each connection and one for the link, changes on the way, refusals above a number of requests. Time is the model's.

#include <millrace/retry/detail/read_controller.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include <millrace/base/aimd_limit.hpp>
#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using millrace::detail::read_controller;

namespace {

constexpr std::size_t memory = 128 * MiB;

/// Seconds and bytes in a second.
struct store_model {
  double first_byte = 0.01;  // the median
  double spread = 0.3;       // of its logarithm
  double connection = 50e6;
  double link = 1e9;
  std::size_t most_requests = SIZE_MAX;  // more are refused
  double at_once = 0;                    // bytes of each read that come with its first one
  std::size_t short_reads = 0;           // the number of those that are begun with
};

/// A choice that never changes.
struct fixed {
  std::size_t requests() const { return number; }
  std::size_t part() const { return length; }
  void finished(time_point, std::size_t, duration, duration, std::size_t, bool) {}
  std::size_t number;
  std::size_t length;
};

/// Reads without end, delivered in order to a reader that takes them at once, in memory of `memory` bytes.
template <class Controller>
class reading {
 public:
  reading(const store_model& s, Controller& c, std::uint64_t seed, std::size_t object = SIZE_MAX)
      : store_(s), controller_(c), random_(seed), object_(object) {
    issue();
  }

  store_model& store() { return store_; }

  /// Bytes in a second that come until `end`.
  double until(double end) {
    const double begin = now_;
    const double before = came_;
    while (now_ < end) step(end);
    return (came_ - before) / (end - begin);
  }

  std::size_t most_memory() const { return most_held_; }
  std::uint64_t refusals() const { return refusals_; }

 private:
  struct read {
    std::size_t bytes;
    double begun;
    double first;
    std::uint64_t generation;
    bool refused;
    bool done;
  };
  using event = std::pair<double, std::size_t>;  // when, and which read
  using events = std::priority_queue<event, std::vector<event>, std::greater<>>;

  void issue() {
    // The first ones are short, as those of fetch() are.
    const auto next = [&] {
      if (base_ + reads_.size() < store_.short_reads) return 100 * KiB;
      return std::min({controller_.part(), object_, 256 * KiB + issued_});
    };
    while (in_flight_ < std::min(controller_.requests(), gate_.limit()) && held_ + next() <= memory) {
      reads_.push_back({next(), now_, 0, 0, false, false});
      held_ += reads_.back().bytes;
      issued_ += reads_.back().bytes;
      send(base_ + reads_.size() - 1);
    }
    most_held_ = std::max(most_held_, held_);
  }

  void send(std::size_t id) {
    read& r = reads_[id - base_];
    ++in_flight_;
    r.generation = gate_.generation();
    r.refused = in_flight_ > store_.most_requests;
    heads_.push({now_ + latency(), id});
  }

  double latency() {
    double normal = -6;
    for (int i = 0; i < 12; ++i) normal += millrace::detail::draw_uniform(random_);
    return store_.first_byte * std::exp(store_.spread * normal);
  }

  void step(double end) {
    const auto bodies = static_cast<double>(bodies_.size());
    const double rate = bodies == 0 ? 0 : std::min(store_.connection, store_.link / bodies);
    constexpr double never = std::numeric_limits<double>::infinity();
    const double body_ends = bodies == 0 ? never : now_ + (bodies_.top().first - sent_) / rate;
    const double head_comes = heads_.empty() ? never : heads_.top().first;
    const double next = std::min({body_ends, head_comes, end});
    sent_ += rate * (next - now_);  // of each body; all are sent at the same rate
    came_ += rate * bodies * (next - now_);
    now_ = next;
    if (next == head_comes) {
      const std::size_t id = heads_.top().second;
      heads_.pop();
      head(id);
    } else if (next == body_ends) {
      const std::size_t id = bodies_.top().second;
      bodies_.pop();
      body(id);
    }
  }

  void head(std::size_t id) {
    read& r = reads_[id - base_];
    if (r.refused) {
      ++refusals_;
      gate_.refused(r.generation, in_flight_);
      --in_flight_;
      send(id);
      return;
    }
    r.first = now_;
    const double at_once = std::min(static_cast<double>(r.bytes), store_.at_once);
    came_ += at_once;
    bodies_.push({sent_ + static_cast<double>(r.bytes) - at_once, id});
  }

  void body(std::size_t id) {
    read& r = reads_[id - base_];
    r.done = true;
    gate_.succeeded();
    controller_.finished(time_point(ns(now_)), r.bytes, ns(r.first - r.begun), ns(now_ - r.begun), in_flight_,
                         object_ != SIZE_MAX);
    --in_flight_;
    while (!reads_.empty() && reads_.front().done) {
      held_ -= reads_.front().bytes;
      reads_.pop_front();
      ++base_;
    }
    issue();
  }

  static duration ns(double seconds) { return duration(static_cast<std::int64_t>(1e9 * seconds)); }

  store_model store_;
  Controller& controller_;
  rng random_;
  const std::size_t object_;  // bytes of each; SIZE_MAX: one that does not end
  double now_ = 0;
  double sent_ = 0;
  double came_ = 0;
  std::deque<read> reads_;  // in the order of delivery
  std::size_t base_ = 0;    // the number of the first of them
  std::size_t issued_ = 0;
  std::size_t held_ = 0;
  std::size_t most_held_ = 0;
  std::size_t in_flight_ = 0;
  events heads_;
  events bodies_;  // by what each connection has sent
  aimd_limit gate_;
  std::uint64_t refusals_ = 0;
};

/// The best rates of any choice that does not change, before and after the store does.
struct rates {
  double steady = 0;
  double changed = 0;
};

constexpr double change = 6;
constexpr double end = 10;

template <class Controller>
rates measure(const store_model& before, const store_model& after, Controller& c, std::uint64_t seed) {
  rates r;
  reading<Controller> model(before, c, seed);
  model.until(2);
  r.steady = model.until(change);
  model.store() = after;
  model.until(change + 1);
  r.changed = model.until(end);
  CHECK(model.most_memory() <= memory);
  return r;
}

rates best_fixed(const store_model& before, const store_model& after, std::uint64_t seed) {
  rates best;
  for (std::size_t part = 1 * MiB; part <= 8 * MiB; part *= 2) {
    for (std::size_t n = 2; n <= std::min<std::size_t>(128, memory / part); n *= 2) {
      fixed choice{n, part};
      const rates r = measure(before, after, choice, seed);
      best = {std::max(best.steady, r.steady), std::max(best.changed, r.changed)};
    }
  }
  return best;
}

double between(rng& random, double low, double high) {  // evenly by the logarithm
  return low * std::exp(std::log(high / low) * millrace::detail::draw_uniform(random));
}

double below(std::vector<double> values, double share) {  // so many are less
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

TEST_CASE("reads of any store come at nine tenths of the best fixed choice, a second after a change at eight") {
  // MILLRACE_STORES=500 for as many stores.
  const char* const wanted = std::getenv("MILLRACE_STORES");
  const std::size_t stores = wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : 16;
  rng random(7);
  std::vector<double> steady;
  std::vector<double> changed;
  for (std::size_t i = 0; i < stores; ++i) {
    store_model s;
    s.first_byte = between(random, 0.5e-3, 80e-3);
    s.spread = 0.1 + 0.7 * millrace::detail::draw_uniform(random);
    s.connection = between(random, 5e6, 1e9);
    s.link = between(random, 100e6, 5e9);
    store_model after = s;
    switch (random.next() % 3) {
      case 0:
        after.link *= between(random, 0.4, 2.5);
        break;
      case 1:
        after.connection *= between(random, 0.6, 1.7);
        break;
      default:
        after.first_byte *= between(random, 0.5, 2);
    }
    const rates best = best_fixed(s, after, i);
    read_controller c({.bytes = memory});
    const rates r = measure(s, after, c, i);
    steady.push_back(r.steady / best.steady);
    changed.push_back(r.changed / best.changed);
    INFO("store " << i << ": first byte " << 1e3 * s.first_byte << " ms, spread " << s.spread << ", connection "
                  << 1e-6 * s.connection << " MB/s, link " << 1e-6 * s.link << " MB/s: " << 1e-6 * r.steady << " of "
                  << 1e-6 * best.steady << " MB/s");
    CHECK(steady.back() > 0.6);
    CHECK(changed.back() > 0.5);
  }
  INFO("medians " << below(steady, 0.5) << " and " << below(changed, 0.5));
  CHECK(below(steady, 0.05) >= 0.9);
  CHECK(below(changed, 0.05) >= 0.8);
}

TEST_CASE("a near store is read in few long parts, a far one in many short ones") {
  store_model near;
  near.first_byte = 0.3e-3;
  near.connection = 1.5e9;
  near.link = 2.5e9;
  read_controller c({.bytes = memory});
  reading<read_controller> of_near(near, c, 1);
  of_near.until(3);
  CHECK(c.requests() <= 16);
  CHECK(c.part() == 8 * MiB);

  store_model far;
  far.first_byte = 40e-3;
  far.connection = 30e6;
  far.link = 5e9;
  read_controller many({.bytes = memory});
  reading<read_controller> of_far(far, many, 1);
  const double first_second = of_far.until(1);
  const double later = of_far.until(5);
  CHECK(many.requests() > 64);
  CHECK(many.part() <= 2 * MiB);
  CHECK(first_second > 0.5 * later);
  CHECK(later > 0.7 * 128 * MiB / (40e-3 + 1 * MiB / 30e6));
}

TEST_CASE("the first second brings two thirds of what the link or the memory allows") {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    read_controller c({.bytes = memory});
    reading<read_controller> model({.first_byte = 20e-3, .spread = 0.2, .connection = 30e6, .link = 1.6e9}, c, seed);
    CHECK(model.until(1) > 1.05e9);  // 0.97e9, where growth waits twice as long for its proof
  }
}

TEST_CASE("a machine that stands still for a moment does not look like a full link") {
  // As where the system of a virtual machine must give it memory first. Once it goes on, the reads go on as well: after
  // a tenth of a second they bring what they bring without a pause.
  struct place {
    store_model store;
    double enough;  // bytes in a second, in that after the pause
  };
  const store_model at_20_ms{.first_byte = 20e-3, .spread = 0.2, .connection = 30e6, .link = 1.6e9};
  const store_model at_15_ms{.first_byte = 15e-3, .spread = 0.2, .connection = 85e6, .link = 1.6e9};
  for (const place& p : {place{at_20_ms, 1.15e9}, place{at_15_ms, 1.4e9}}) {
    for (const double at : {0.06, 0.09, 0.12, 0.15, 0.2, 0.25, 0.3}) {
      for (const std::uint64_t seed : {1, 2, 3, 4}) {
        read_controller c({.bytes = memory});
        reading<read_controller> model(p.store, c, seed);
        model.until(at);
        model.store().link *= 0.2;
        model.until(at + 0.15);
        model.store().link = p.store.link;
        model.until(at + 0.25);
        INFO(1e3 * p.store.first_byte << " ms away, a pause at " << at << ", seed " << seed);
        CHECK(model.until(at + 1.25) > p.enough);
      }
    }
  }
}

TEST_CASE("first reads that come in one go, as the loop stood still, do not make the store a fast one") {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    store_model s{.first_byte = 15e-3, .spread = 0.2, .connection = 85e6, .link = 1.6e9};
    s.at_once = 2 * MiB;
    read_controller c({.bytes = memory});
    reading<read_controller> model(s, c, seed);
    model.until(0.04);
    model.store().at_once = 0;
    CHECK(model.until(1.04) > 1.1e9);  // 0.43e9, where they do
  }
}

TEST_CASE("short reads that come in one go do not tell the rate of a connection") {
  // As epochs() begins: first samples, and then slices. Without what came later the first would look like 4 GB/s each.
  for (const std::size_t few : {20, 60, 150}) {
    store_model s;
    s.first_byte = 25e-3;
    s.connection = 30e6;
    s.link = 800e6;
    s.at_once = 200 * KiB;
    s.short_reads = few;
    read_controller c({.bytes = memory});
    reading<read_controller> model(s, c, few);
    model.until(1);
    CHECK(model.until(3) > 0.75 * s.link);
    CHECK(c.requests() > 20);
  }
}

TEST_CASE("each loop that receives has four reads at least") {
  store_model near;
  near.first_byte = 0.3e-3;
  near.connection = 1.5e9;
  near.link = 2.5e9;
  read_controller c({.bytes = memory, .loops = 4});
  reading<read_controller> model(near, c, 1);
  model.until(1);
  for (int t = 2; t < 10; ++t) {  // while fewer are tried, too
    model.until(t);
    CHECK(c.requests() >= 16);
  }
  read_controller bounded({.bytes = memory, .requests = 3, .loops = 4});
  reading<read_controller> few(near, bounded, 1);
  few.until(1);
  CHECK(bounded.requests() == 3);
}

TEST_CASE("small objects of a far store are read as many at a time as may be") {
  store_model far;
  far.first_byte = 30e-3;
  far.connection = 30e6;
  far.link = 5e9;
  read_controller c({.bytes = memory});
  reading<read_controller> model(far, c, 1, 100'000);
  model.until(0.2);  // growth waits as long as such an object takes, not as a part does
  CHECK(c.requests() == 128);
  model.until(0.5);
  CHECK(model.until(3) > 0.9 * 128 * 100e3 / 35e-3);
  CHECK(c.requests() == 128);
}

TEST_CASE("the number of reads settles: rates of a second differ by less than a tenth") {
  store_model s;
  s.first_byte = 15e-3;
  s.connection = 85e6;
  s.link = 1.2e9;
  read_controller c({.bytes = memory});
  reading<read_controller> model(s, c, 3);
  model.until(2);
  double least = 1e18;
  double most = 0;
  for (int t = 3; t <= 20; ++t) {
    const double rate = model.until(t);
    least = std::min(least, rate);
    most = std::max(most, rate);
  }
  CHECK(least > 0.9 * most);
}

TEST_CASE("a store that refuses requests above a number sees no more refusals than by its limit alone") {
  store_model s;
  s.first_byte = 20e-3;
  s.connection = 20e6;
  s.link = 5e9;
  s.most_requests = 40;
  read_controller c({.bytes = memory});
  reading<read_controller> model(s, c, 5);
  model.until(2);
  const std::size_t wanted = c.requests();
  model.until(20);
  CHECK(c.requests() <= wanted + wanted / 4);  // a few more are tried in turn
  fixed all{128, 1 * MiB};
  reading<fixed> without(s, all, 5);
  without.until(20);
  CHECK(model.refusals() <= without.refusals());
  CHECK(without.refusals() > 0);
}

TEST_CASE("where the loop is the limit, more reads are not tried again and again") {
  // The store answers at once, and each read waits until the loop has received those before it. Short reads cost more,
  // and what else the loop does changes twice a second.
  read_controller c({.bytes = 64 * MiB});
  rng random(4);
  std::deque<std::pair<double, std::size_t>> waiting;  // since when, bytes
  double now = 0;
  std::size_t reads = 0;
  std::size_t short_ones = 0;
  double share = 1;  // of the loop's time
  double changes = 0;
  while (now < 60) {
    while (waiting.size() < c.requests()) waiting.emplace_back(now, c.part());
    const auto [begun, bytes] = waiting.front();
    waiting.pop_front();
    const double first = now;
    if (now >= changes) {
      changes = now + 0.5;
      share = between(random, 0.1, 0.4);
    }
    now += (0.3e-3 + static_cast<double>(bytes) / 4e9) / share;
    const auto ns = [](double s) { return duration(static_cast<std::int64_t>(1e9 * s)); };
    c.finished(time_point(ns(now)), bytes, ns(first - begun), ns(now - begun), waiting.size() + 1);
    ++reads;
    if (bytes < 4 * MiB) ++short_ones;
  }
  CHECK(reads > 1000);
  CHECK(short_ones < reads / 10);
}

TEST_CASE("bounds of any size are kept") {
  for (const std::size_t bytes : {std::size_t{1}, 64 * KiB, 1 * MiB, 3 * MiB, 16 * MiB, 4 * GiB}) {
    for (const std::size_t longest : {64 * KiB, 1 * MiB, 8 * MiB, 64 * MiB}) {
      read_controller c({.bytes = bytes, .longest = longest, .requests = 7});
      for (int i = 1; i < 2000; ++i) {
        CHECK(c.requests() >= 1);
        CHECK(c.requests() <= 7);
        CHECK(c.part() >= 1);
        CHECK(c.part() <= longest);
        if (bytes > 1) CHECK(c.part() * c.requests() <= bytes);
        c.finished(time_point(std::chrono::milliseconds(i)), c.part(), std::chrono::milliseconds(i % 7),
                   std::chrono::milliseconds(i % 7 + i % 3), c.requests());
      }
    }
  }
}

}  // namespace
