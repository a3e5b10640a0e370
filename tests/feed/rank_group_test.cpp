// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/feed/rank_group.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/sync/all_of.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/feed/rank_threads.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

using words = std::vector<std::uint64_t>;
using sentences = std::vector<std::string>;

rank of(std::uint32_t index, std::uint32_t world) { return {.index = index, .world_size = world}; }

/// Objects in memory, each of whose requests takes random virtual time.
class memory_board final : public rank_board {
 public:
  explicit memory_board(std::uint64_t seed = 1) : random_(seed) {}

  std::string shown() const override { return "mem:ranks/"; }
  task<void> put(std::string name, std::string text) const override {
    co_await sleep_for(pause());
    ++puts;
    if (puts == failing_put) throw io_error(5, "the store is gone");
    objects[name] = text;
    co_await sleep_for(pause());
  }
  task<std::string> get(std::string name) const override {
    co_await sleep_for(pause());
    const auto found = objects.find(name);
    std::string text = found == objects.end() ? std::string() : found->second;
    co_await sleep_for(pause());
    co_return std::move(text);
  }
  task<std::vector<std::string>> list(std::string folder) const override {
    co_await sleep_for(pause());
    std::vector<std::string> names;
    for (const auto& [name, text] : objects) {
      if (name.compare(0, folder.size(), folder) == 0) names.push_back(name);
    }
    co_await sleep_for(pause());
    co_return std::move(names);
  }
  task<void> remove(std::string name) const override {
    co_await sleep_for(pause());
    if (keeps) throw io_error(13, "not allowed");
    objects.erase(name);
  }

  mutable std::map<std::string, std::string> objects;
  mutable std::uint64_t puts = 0;
  std::uint64_t failing_put = 0;  // that one is
  bool keeps = false;             // nothing can be removed

 private:
  duration pause() const { return milliseconds(random_.below(20)); }
  mutable rng random_;
};

/// What one process gets.
class answer {
 public:
  words all;
  std::string error;
  duration at{0};
};

task<void> one_rank(const rank_group& group, words mine, duration late, const char* purpose, answer& out) {
  executor& ex = co_await this_executor();
  const time_point begin = ex.now();
  task<words> gathering = group.gather(std::move(mine), purpose);
  co_await sleep_for(late);
  try {
    out.all = co_await std::move(gathering);
  } catch (const std::exception& e) {
    out.error = e.what();
  }
  out.at = ex.now() - begin;
}

task<void> all_ranks(std::vector<task<void>> ranks) { co_await all_of(std::move(ranks)); }

std::vector<rank_group> groups_on(const std::shared_ptr<const memory_board>& board, const std::vector<rank>& ranks,
                                  duration timeout = seconds(60)) {
  std::vector<rank_group> groups;
  for (const rank& r : ranks) {
    const std::shared_ptr<const rank_board> all = board;
    groups.emplace_back(r, all, rank_group_options{.timeout = timeout});
  }
  return groups;
}

/// One gather of all of them, each of its number and 100 more.
std::vector<answer> gather_all(const std::vector<rank_group>& groups, std::uint64_t seed = 0,
                               const std::vector<duration>& late = {},
                               const std::vector<const char*>& purposes = {}) {
  testing::virtual_loop loop(seed);
  std::vector<answer> answers(groups.size());
  std::vector<task<void>> ranks;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const words mine{i, 100 + i};
    ranks.push_back(one_rank(groups[i], mine, i < late.size() ? late[i] : duration(0),
                             i < purposes.size() ? purposes[i] : "words", answers[i]));
  }
  block_on(loop, all_ranks(std::move(ranks)));
  return answers;
}


}  // namespace

TEST_CASE("drawn groups by the store gather the words of all ranks, in their order, and leave nothing") {
  rng random(3);
  for (int c = 0; c < 60; ++c) {
    INFO("case " << c);
    const auto world = static_cast<std::uint32_t>(1 + random.below(6));
    const auto board = std::make_shared<memory_board>(random.next());
    std::vector<rank> ranks;
    words wanted;
    std::vector<duration> late;
    for (std::uint32_t r = 0; r < world; ++r) {
      ranks.push_back(of(r, world));
      wanted.insert(wanted.end(), {r, 100 + r});
      late.push_back(milliseconds(random.below(2) * random.below(5000)));
    }
    const std::vector<rank_group> groups = groups_on(board, ranks);
    for (int round = 0; round < 3; ++round) {
      const std::vector<answer> answers = gather_all(groups, random.next(), late);
      for (const answer& a : answers) {
        REQUIRE(a.error.empty());
        REQUIRE(a.all == wanted);
      }
      REQUIRE(board->objects.empty());
    }
  }
}
