// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Trainings that are stopped while they wait for something, and go on; and a world that shrinks and grows.

#include <millrace/loader/runtime.hpp>

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/order/epoch_fingerprint.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

using namespace millrace;
using s3_server::fault;

namespace {

/// A server with shards of 20 samples each.
class corpus {
 public:
  explicit corpus(std::size_t shards) {
    for (std::size_t n = 0; n < shards; ++n) {
      std::string tar;
      tar::writer w(tar);
      for (std::size_t i = 0; i < 20; ++i) {
        const std::string key = std::to_string(n) + "/" + std::to_string(i);
        w.add(key + ".bin", std::string(2000, static_cast<char>('a' + i)));
        keys.insert(key);
      }
      w.finish();
      names_.push_back(std::to_string(n) + ".tar");
      server.put("b", "train/" + names_.back(), tar);
    }
  }
  s3::client client() const {
    const std::string endpoint = server.endpoint();
    s3::config_options how;
    how.endpoint = endpoint;
    how.region = "us-east-1";
    return s3::client(s3::config(how), s3::credentials("test-key", "test-secret"));
  }
  std::shared_ptr<const index_set> indexes() const {
    const auto loop = make_event_loop();
    std::vector<shard_index> all;
    for (const std::string& name : names_) {
      all.push_back(block_on(*loop, index_shard(s3::as_storage(client()), shard("s3://b/train/" + name), name)));
    }
    return std::make_shared<const index_set>(std::move(all));
  }

  s3_server::background server;
  std::set<std::string> keys;

 private:
  std::vector<std::string> names_;
};

/// Seconds in which a stop has come; with a sanitizer, where others keep the cores busy, more.
constexpr double soon = MILLRACE_ASAN || MILLRACE_TSAN ? 10 : 1;

double seconds(std::int64_t since) { return static_cast<double>(monotonic_ns() - since) * 1e-9; }

/// False after a minute.
template <class Done>
bool wait_until(Done done) {
  const std::int64_t begun = monotonic_ns();
  while (!done()) {
    if (seconds(begun) > 60) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Takes batches until the end; the keys of their samples.
template <class Run>
void take(Run& run, std::multiset<std::string>& seen) {
  for (const std::vector<sample>& b : run) {
    for (const sample& s : b) {
      if (s.weight() != 0) seen.insert(s.key);
    }
  }
}

/// Stops a training where it waits, as `stuck` says, and goes on without what it waited for.
template <class Stuck>
void stop_and_go_on(corpus& c, const dataset& data, const epochs_options& options, Stuck stuck) {
  runtime rt;
  std::multiset<std::string> seen;
  std::string state;
  {
    auto run = rt.run(epochs(data, options) | batch(), {.prefetch = 1});
    std::int64_t asked = 0;
    bool waits = false;
    std::thread other([&] {
      waits = wait_until([&] { return stuck(run.taken()); });
      asked = monotonic_ns();
      run.stop();
    });
    take(run, seen);
    state = run.state();
    other.join();
    CHECK(seconds(asked) < soon);
    CHECK(waits);
    CHECK(run.stopped());
    c.server.faults().clear();
    asked = monotonic_ns();
    const auto dropped = std::move(run);
    CHECK(seconds(asked) < soon);
  }
  CHECK(seen.size() < c.keys.size());
  auto run = rt.run(epochs(data, options, state) | batch());
  take(run, seen);
  CHECK_FALSE(run.stopped());
  CHECK(seen == std::multiset<std::string>(c.keys.begin(), c.keys.end()));
}

}  // namespace

TEST_CASE("a training is stopped while a server says nothing, and goes on") {
  corpus c(4);
  const auto indexes = c.indexes();
  const dataset data(c.client(), indexes, {.prefix = "s3://b/train/", .slice = 4});
  for (const bool in_body : {false, true}) {
    // With the samples of the first step on their way, and with some given.
    for (const std::uint64_t batches : {0, 1}) {
      INFO((in_body ? "in a body" : "before a body") << ", " << batches << " batches");
      const std::uint64_t before = c.server.faults().injected();
      c.server.faults().add({.method = "GET", .key = "train/2.tar"},
                            in_body ? fault::stall_body(100) : fault::stall_head());
      // On four tracks each step needs that shard, on one the first step is of another.
      stop_and_go_on(c, data, {.seed = 7, .batch = 4, .tracks = batches == 0 ? 4U : 1U}, [&](std::uint64_t taken) {
        return c.server.faults().injected() > before && taken >= batches;
      });
    }
  }
}

TEST_CASE("a training is stopped between two attempts of a request, and goes on") {
  corpus c(4);
  const auto indexes = c.indexes();
  const dataset data(c.client(), indexes, {.prefix = "s3://b/train/", .slice = 4});
  c.server.faults().add({.method = "GET", .key = "train/2.tar"},
                        fault::refuse(503, "SlowDown").with_field("Retry-After", "30"));
  const std::uint64_t before = c.server.faults().injected();
  stop_and_go_on(c, data, {.seed = 7, .batch = 4, .tracks = 4},
                 [&](std::uint64_t) { return c.server.faults().injected() > before; });
}

TEST_CASE("a training is stopped while its shuffle window fills, and goes on") {
  corpus c(4);
  // Four shards in turn; one of them says nothing after its first bytes, so the window does not fill.
  const dataset data(c.client(), "s3://b/train/", {.shards = 4, .window = 64});
  const std::uint64_t before = c.server.faults().injected();
  c.server.faults().add({.method = "GET", .key = "train/2.tar"}, fault::stall_body(600));
  stop_and_go_on(c, data, {.seed = 7, .batch = 4},
                 [&](std::uint64_t) { return c.server.faults().injected() > before; });
}

TEST_CASE("a training is stopped while its index is made, and goes on") {
  corpus c(4);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("stop_training." + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string file = folder / "train.index";
  const dataset data(c.client(), "s3://b/train/", {.index = file});
  const std::uint64_t before = c.server.faults().injected();
  c.server.faults().add({.method = "GET", .key = "train/2.tar"}, fault::stall_head());
  stop_and_go_on(c, data, {.seed = 7, .batch = 4},
                 [&](std::uint64_t) { return c.server.faults().injected() > before; });
  CHECK(std::filesystem::exists(file));
  std::filesystem::remove_all(folder);
}

namespace {

/// Trainings whose world changes ten times, and their kills.
class changing_world {
 public:
  corpus data_of{6};
  const std::shared_ptr<const index_set> indexes = data_of.indexes();
  std::uint64_t kills = 0;
  std::set<std::uint32_t> worlds;

  /// `kept`: all worlds on one runtime; else each on its own. How many connections were made after the first world.
  std::uint64_t train(std::uint64_t seed, bool kept) {
    const std::string prefix = "s3://b/train/";
    const dataset data(data_of.client(), indexes, {.prefix = prefix, .slice = 4});
    rng random(seed);
    std::optional<runtime> rt(std::in_place, runtime_options{.loops = 1});
    std::string saved;
    std::vector<epoch_fingerprint> in_saved(epochs_in_all);
    std::uint64_t made = 0;
    bool ended = false;
    for (std::size_t change = 0; !ended; ++change) {
      epochs_options o{.seed = seed, .epochs = epochs_in_all, .batch = 4};
      o.tracks = 12;
      o.rank.world_size = static_cast<std::uint32_t>(1 + random.below(5));
      worlds.insert(o.rank.world_size);
      if (change > 0 && !kept) rt.emplace(runtime_options{.loops = 1});
      std::vector<pipeline_run<std::vector<sample>>> ranks;
      for (; o.rank.index < o.rank.world_size; ++o.rank.index) {
        ranks.push_back(rt->run(epochs(data, o, saved) | batch()));
      }
      // The last world goes to the end. Others are stopped after some steps, or killed some steps after they saved.
      const std::uint64_t steps = change < 10 ? random.below(7) : UINT64_MAX;
      const bool killed = change < 10 && random.below(3) == 0;
      std::vector<epoch_fingerprint> seen = in_saved;
      for (std::uint64_t step = 0; step != steps && !ended; ++step) {
        for (auto& run : ranks) {
          const std::optional<std::vector<sample>> b = run.next();
          if (!b) ended = true;
          for (std::size_t i = 0; b && i < b->size(); ++i) {
            const sample& s = (*b)[i];
            if (s.weight() == 0) continue;
            const std::string_view name = std::string_view(s.from.from->url).substr(prefix.size());
            seen[s.mark.epoch].add({indexes->find(name).value(), s.from.ordinal}, s.mark.epoch);
          }
        }
        if (killed && step == steps / 2 && !ended) {  // a kill leaves this
          saved = ranks[0].state();
          in_saved = seen;
        }
      }
      if (killed && !ended) {
        ++kills;
      } else {
        for (auto& run : ranks) {
          if (!ended) run.stop();
          CHECK_FALSE(run.next());
          CHECK(run.stopped() == !ended);
          CHECK(run.state() == ranks[0].state());
        }
        saved = ranks[0].state();
        in_saved = seen;
      }
      ranks.clear();
      if (change == 0) made = data_of.server.stats().connections;
      if (ended) CHECK(change >= 10);
    }
    for (std::uint64_t e = 0; e < epochs_in_all; ++e) {
      CHECK(verify_epoch(*indexes->counts(), e, in_saved[e]).empty());
    }
    return data_of.server.stats().connections - made;
  }

 private:
  static constexpr std::uint64_t epochs_in_all = 4;
};

}  // namespace

TEST_CASE("a world shrinks and grows ten times, with kills, and every sample comes once an epoch") {
  changing_world w;
  std::uint64_t kept = 0;
  std::uint64_t anew = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    kept += w.train(seed, true);
    anew += w.train(seed, false);
  }
  CHECK(w.kills >= 6);
  CHECK(w.worlds == std::set<std::uint32_t>{1, 2, 3, 4, 5});
  // One runtime keeps the connections that have nothing under way when a world ends.
  INFO(kept << " connections after the first worlds, " << anew << " with a runtime for each world");
  CHECK(kept < anew);
}
