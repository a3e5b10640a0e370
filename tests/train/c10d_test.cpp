// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/c10d.hpp>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/catch.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/train/rank_threads.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

/// The calls of c10d::Store, in memory.
class memory_store {
 public:
  void set(const std::string& key, const std::vector<std::uint8_t>& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  std::vector<std::uint8_t> get(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return values_.at(key);
  }
  bool check(const std::vector<std::string>& keys) {
    const std::lock_guard lock(mutex_);
    for (const std::string& k : keys) {
      if (values_.count(k) == 0) return false;
    }
    return true;
  }
  bool deleteKey(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return values_.erase(key) != 0;
  }
  std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const auto& [key, value] : values_) all.push_back(key);
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::uint8_t>> values_;
};

rank of(std::size_t index, std::size_t world) {
  return {.index = static_cast<std::uint32_t>(index), .world_size = static_cast<std::uint32_t>(world)};
}

}  // namespace

TEST_CASE("a c10d store gathers the words of all ranks, round after round, and keeps the last one alone") {
  const auto store = std::make_shared<memory_store>();
  const std::size_t ranks = 4;
  const auto errors = test::on_ranks(ranks, [&](std::size_t r) {
    const rank_group group = c10d_ranks(of(r, ranks), store, "here/");
    for (std::uint64_t round = 0; round < 5; ++round) {
      const std::vector<std::uint64_t> all = group.gather_now({r, round});
      for (std::uint64_t i = 0; i < ranks; ++i) {
        if (all.at(2 * i) != i || all.at(2 * i + 1) != round) throw std::runtime_error("wrong words");
      }
    }
  });
  CHECK(errors == std::vector<std::string>(ranks));
  CHECK(store->names() == std::vector<std::string>{"here/words/4/all"});
  const rank_group alone = c10d_ranks(rank(), store, "alone/");
  CHECK(alone.gather_now({7}) == std::vector<std::uint64_t>{7});
}

TEST_CASE("a c10d store: ranks that do not come are named, and unequal words refused") {
  const auto store = std::make_shared<memory_store>();
  const rank_group_options soon{.timeout = std::chrono::milliseconds(30)};
  CHECK_THROWS_WITH(c10d_ranks(of(0, 3), store, "a/", soon).gather_now({1}),
                    Contains("rank 0 of 3 has waited 0 s for ranks that did not come: 1, 2"));
  CHECK_THROWS_WITH(c10d_ranks(of(2, 3), store, "b/", soon).gather_now({1}), Contains("did not come: 0"));
  CHECK_THROWS_AS(c10d_ranks(of(0, 3), store, "c/", {.timeout = duration(0)}), configuration_error);
  const auto errors = test::on_ranks(2, [&](std::size_t r) {
    c10d_ranks(of(r, 2), store, "d/", {.timeout = std::chrono::seconds(1)})
        .gather_now(std::vector<std::uint64_t>(1 + r));
  });
  CHECK_THAT(errors[0], Contains("ranks gather unequally many words"));
}

TEST_CASE("keys of one start are not those of the next") {
  ::unsetenv("TORCHELASTIC_RESTART_COUNT");
  CHECK(c10d_attempt() == "millrace/0/");
  ::setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
  CHECK(c10d_attempt() == "millrace/2/");
  ::unsetenv("TORCHELASTIC_RESTART_COUNT");
}

TEST_CASE("a training by a c10d store stops on all ranks after the same batch, whichever is asked, and goes on") {
  const std::size_t ranks = 3;
  const auto store = std::make_shared<memory_store>();
  const test::tar_dataset data({40, 50, 60, 10}, 100);
  std::vector<std::string> states(ranks);
  std::multiset<std::string> seen;
  std::mutex mutex;
  for (const bool stop : {true, false}) {
    std::atomic<std::size_t> know{0};
    const auto errors = test::on_ranks(ranks, [&](std::size_t r) {
      const test::tar_dataset own({40, 50, 60, 10}, 100);
      const rank_group group = c10d_ranks(of(r, ranks), store, stop ? "first/" : "second/");
      runtime rt;
      auto run = rt.run(epochs(dataset(own.store, own.indexes, {.prefix = "mem:"}),
                               {.seed = 7, .batch = 4, .ranks = group}, states[r]) |
                        batch());
      for (const std::vector<sample>& b : run) {
        {
          const std::lock_guard lock(mutex);
          for (const sample& s : b) {
            if (s.weight() != 0) seen.insert(s.key);
          }
        }
        if (!stop || run.taken() != 3) continue;
        if (r == 2) {
          run.stop();
          while (know != ranks - 1) std::this_thread::yield();
        } else {  // it learns of it in the middle of a step
          while (!run.stop_asked()) std::this_thread::yield();
          ++know;
        }
      }
      if (run.stopped() != stop) throw usage_error("the run should have been stopped, or not");
      states[r] = run.state();
    });
    CHECK(errors == std::vector<std::string>(ranks));
    CHECK(states == std::vector<std::string>(ranks, states[0]));
    CHECK(seen.size() == (stop ? 3 * 4 * ranks : 160));
  }
  CHECK(std::set<std::string>(seen.begin(), seen.end()).size() == 160);
}
