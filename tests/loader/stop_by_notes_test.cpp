// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/detail/stop_causes.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/rank_words.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/sync/all_of.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;

namespace {

/// Notes in memory; a call takes random virtual time.
class memory_notes final : public rank_notes {
 public:
  explicit memory_notes(duration longest) : longest_(longest) {}
  task<void> put(std::string name, std::string text) const override {
    co_await sleep_for(pause());
    ++calls;
    texts[name] = text;
  }
  task<std::string> get(std::string name) const override {
    co_await sleep_for(pause());
    ++calls;
    if (calls == failing_call) throw io_error("the notes are gone");
    const auto found = texts.find(name);
    std::string text = found == texts.end() ? std::string() : found->second;
    co_return text;
  }
  task<void> remove(std::string name) const override {
    texts.erase(name);
    co_await sleep_for(pause());
  }

  mutable std::map<std::string, std::string> texts;
  mutable std::uint64_t calls = 0;
  std::uint64_t failing_call = 0;  // that one is

 private:
  duration pause() const { return duration(static_cast<std::int64_t>(random_.below(1000)) * longest_.count() / 1000); }
  const duration longest_;
  mutable rng random_{7};
};

class noted_words final : public rank_words {
 public:
  noted_words(const rank& mine, const memory_notes& notes) : mine_(mine), notes_(notes) {}
  std::vector<std::uint64_t> gather(std::vector<std::uint64_t>) const override { throw usage_error("not by notes"); }
  const rank& process() const noexcept override { return mine_; }
  const rank_notes* notes() const noexcept override { return &notes_; }
  std::string name() const override { return "run-1"; }
  std::string name_before() const override { return "run-0"; }
  duration timeout() const noexcept override { return std::chrono::seconds(20); }

 private:
  const rank mine_;
  const memory_notes& notes_;
};

/// Ranks that train on one virtual loop; a step of all of them ends when each has taken its item.
class fleet {
 public:
  fleet(std::uint32_t ranks, const memory_notes& notes) {
    for (std::uint32_t r = 0; r < ranks; ++r) {
      rank mine;
      mine.index = r;
      mine.world_size = ranks;
      votes.push_back(std::make_shared<detail::stop_vote>(std::make_shared<const noted_words>(mine, notes)));
    }
    asked = std::vector<std::atomic<bool>>(ranks);
    taken = std::vector<std::uint64_t>(ranks);
    told = std::vector<std::string>(ranks);
  }

  std::vector<std::shared_ptr<detail::stop_vote>> votes;
  std::vector<std::atomic<bool>> asked;
  std::vector<std::uint64_t> taken;
  std::vector<std::string> told;  // by stop_by_notes(), or its error
  std::map<std::uint64_t, std::size_t> arrived;  // at the end of that step
  std::uint32_t who = 0;
  std::uint64_t asked_at = 300;     // items of rank `who`
  std::uint64_t most = UINT64_MAX;  // items of the run
  bool coupled = true;              // a step waits for all ranks
  duration step = milliseconds(10);
  time_point asked_time{}, last_end{};

  task<void> wait_for_stop(std::size_t r) {
    try {
      told[r] = co_await detail::stop_by_notes(*votes[r], asked[r]);
    } catch (const error& e) {
      told[r] = e.what();
    }
  }
  task<void> train(std::size_t r) {
    executor& ex = co_await this_executor();
    spawned<void> waiting(ex, wait_for_stop(r));
    rng random(r);
    for (;;) {
      while (votes[r]->is_held()) co_await sleep_for(milliseconds(1));
      if (taken[r] == most || votes[r]->over(taken[r], false)) break;
      ++taken[r];
      if (r == who && taken[r] == asked_at) {
        asked[r] = true;
        asked_time = ex.now();
      }
      const std::uint64_t spread = coupled ? 3 : 40;
      co_await sleep_for(step + milliseconds(random.below(spread)));
      const std::uint64_t item = taken[r];
      ++arrived[item];
      while (coupled && arrived[item] != taken.size()) co_await sleep_for(milliseconds(3));
    }
    last_end = ex.now();
    if (taken[r] == most) waiting = spawned<void>();  // as a run drops it when the pipeline has ended
  }
  task<void> train_all() {
    std::vector<task<void>> all;
    for (std::size_t r = 0; r < votes.size(); ++r) all.push_back(train(r));
    co_await all_of(std::move(all));
    co_await sleep_for(std::chrono::seconds(1));  // notes of runs that have ended
  }
  bool together() const {
    for (const std::uint64_t n : taken) {
      if (n != taken[0]) return false;
    }
    return true;
  }
};

}  // namespace

TEST_CASE("by notes 4, 64, 256 and 1,000 ranks stop after the furthest one's item, within 2 s") {
  struct drawn {
    std::uint32_t ranks;
    duration longest;  // of a call: requests to a store, and messages to an engine's service
    bool coupled;
  };
  for (const drawn& d :
       {drawn{4, milliseconds(120), true}, drawn{64, milliseconds(120), true}, drawn{64, milliseconds(120), false},
        drawn{256, milliseconds(5), true}, drawn{1000, milliseconds(5), true}}) {
    CAPTURE(d.ranks, d.coupled);
    memory_notes notes(d.longest);
    fleet all(d.ranks, notes);
    all.coupled = d.coupled;
    all.who = d.ranks - 1;
    all.asked_at = d.ranks == 1000 ? 50 : 300;
    testing::virtual_loop loop(0);
    block_on(loop, all.train_all());
    CHECK(all.together());
    CHECK(all.taken[0] >= all.asked_at);
    // Ranks that no step keeps together have to come up with the furthest one.
    CHECK(all.last_end - all.asked_time < std::chrono::seconds(d.coupled ? 2 : 3));
    CHECK(all.told[0] == "rank " + std::to_string(d.ranks - 1) + " of " + std::to_string(d.ranks) +
                             " asks all of them to, after item " + std::to_string(all.taken[0]));
  }
}

TEST_CASE("ranks that are to stop when others have ended get no less than these") {
  for (const std::uint64_t before : {0, 1, 2, 5, 40}) {
    for (const std::uint32_t who : {0, 1, 3}) {
      CAPTURE(before, who);
      memory_notes notes(milliseconds(20));
      fleet all(4, notes);
      all.coupled = false;
      all.most = 200;
      all.who = who;
      all.asked_at = all.most - before;
      notes.texts["run-0-end"] = notes.texts["run-0-at-1"] = "7";
      testing::virtual_loop loop(who);
      block_on(loop, all.train_all());
      CHECK(all.together());
      CHECK(all.taken[0] >= all.asked_at);
      if (all.taken[0] == all.most) {
        CHECK(notes.texts["run-1-end"] == "200");
        CHECK(notes.texts.count("run-0-end") == 0);
      }
    }
  }
}

TEST_CASE("a rank that does not answer, and notes that fail, hold no other for ever") {
  memory_notes notes(milliseconds(20));
  rank mine;
  mine.world_size = 3;
  const auto vote = std::make_shared<detail::stop_vote>(std::make_shared<const noted_words>(mine, notes));
  const std::atomic<bool> asked{true};
  testing::virtual_loop loop(0);
  REQUIRE_THROWS_WITH(block_on(loop, detail::stop_by_notes(*vote, asked)),
                      Contains("rank 0 is to stop with the others, and rank 1 does not say how many items it has"));
  CHECK_FALSE(vote->is_held());
  CHECK_FALSE(vote->over(5, false));
  // One that cannot look looks again.
  memory_notes failing(milliseconds(20));
  failing.failing_call = 5;
  fleet all(2, failing);
  block_on(loop, all.train_all());
  CHECK(all.together());
  CHECK(all.taken[0] < all.asked_at + 200);
}
