// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/rank_group.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/sync/all_of.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/equal_batches.hpp>
#include <millrace/train/tracks_advice.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/train/rank_threads.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

using words = std::vector<std::uint64_t>;
using sentences = std::vector<std::string>;

rank of(std::uint32_t index, std::uint32_t world) { return {.index = index, .world_size = world}; }

/// Objects in memory, each of whose requests takes random virtual time.
class memory_board final : public storage {
 public:
  explicit memory_board(std::uint64_t seed = 1) : random_(seed) {}

  bool serves(std::string_view url) const noexcept override { return url.substr(0, 4) == "mem:"; }
  task<std::string> put(std::string url, async_generator<bytes> content, write_options) const override {
    co_await sleep_for(pause());
    ++puts;
    if (puts == failing_put) throw io_error(std::errc::io_error, "the store is gone");
    std::string text;
    while (std::optional<bytes> piece = co_await content.next()) text += piece->view();
    objects[url] = text;
    co_await sleep_for(pause());
    co_return std::string();
  }
  task<part> read(shard object, std::string, std::uint64_t offset, std::size_t length, slab_pool) const override {
    co_await sleep_for(pause());
    const auto found = objects.find(object.url);
    const bool there = found != objects.end();
    part p;
    if (there) p.data = bytes::copy(std::string_view(found->second).substr(offset, length));
    if (there) p.total = found->second.size();
    co_await sleep_for(pause());
    if (!there) throw io_error(std::errc::no_such_file_or_directory, "no such object", where{object.url, offset, {}});
    co_return std::move(p);
  }
  async_generator<shard> list_all(std::string prefix) const override {
    co_await sleep_for(pause());
    std::vector<shard> all;
    for (const auto& [url, text] : objects) {
      if (url.compare(0, prefix.size(), prefix) == 0) all.emplace_back(url);
    }
    co_await sleep_for(pause());
    for (shard& s : all) co_yield give(s);
  }
  task<void> remove(std::string url) const override {
    co_await sleep_for(pause());
    if (keeps) throw io_error(std::errc::permission_denied, "not allowed");
    objects.erase(url);
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
    groups.emplace_back(r, board, "mem:ranks/", rank_group_options{.timeout = timeout});
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


sentences errors_of(const std::vector<answer>& answers) {
  sentences all;
  for (const answer& a : answers) all.push_back(a.error);
  return all;
}

const std::string board_name = "mem:ranks/: ";

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

TEST_CASE("ranks that wait as long as can be said gather, too") {
  const auto board = std::make_shared<memory_board>(1);
  const std::vector<duration> late{seconds(5), duration(0)};
  for (const answer& a : gather_all(groups_on(board, {of(0, 2), of(1, 2)}, duration::max()), 1, late)) {
    CHECK(a.error == "");
    CHECK(a.all == words{0, 100, 1, 101});
  }
}

TEST_CASE("two processes with one number, or of two sizes of the world, get one sentence on all ranks") {
  const auto told = [](const std::vector<rank>& ranks) {
    for (const std::uint64_t seed : {1, 2, 3, 4}) {
      const auto board = std::make_shared<memory_board>(seed);
      const std::vector<answer> answers = gather_all(groups_on(board, ranks), seed);
      for (const answer& a : answers) {
        CHECK(a.error == answers[0].error);
        CHECK(a.at < seconds(8));
      }
      CHECK(board->objects.empty());
      if (seed == 4) return answers[0].error;
    }
    return std::string();
  };
  const std::string launcher = ": give each process the rank that its launcher says";
  CHECK(told({of(0, 3), of(1, 3), of(1, 3), of(2, 3)}) ==
        board_name + "rank_group: 2 processes say that they are rank 1 of 3" + launcher);
  CHECK(told({of(0, 3), of(0, 3), of(1, 3), of(2, 3)}) ==
        board_name + "rank_group: 2 processes say that they are rank 0 of 3" + launcher);
  CHECK(told({of(0, 3), of(1, 3), of(2, 4)}) ==
        board_name + "rank_group: rank 2 says that there are 4 processes, and rank 0 that there are 3");
}

TEST_CASE("a process that comes later with a number that is taken ends the group in its next round, on all of them") {
  const auto told = [](const rank& late, std::uint64_t seed, bool it_dies) {
    const auto board = std::make_shared<memory_board>(seed);
    const std::vector<rank_group> groups = groups_on(board, {of(0, 3), of(1, 3), of(2, 3)});
    const rank_group other = groups_on(board, {late}).front();
    testing::virtual_loop loop(seed);
    std::vector<answer> answers(4);
    const auto round = [&] {
      std::vector<spawned<void>> ranks;
      for (std::size_t i = 0; i < 3; ++i) {
        answers[i] = answer();
        ranks.emplace_back(loop, one_rank(groups[i], {i}, duration(0), "words", answers[i]));
      }
      loop.run_for(seconds(15));
      for (const spawned<void>& r : ranks) CHECK(r.done());
    };
    round();
    CHECK(errors_of(answers) == sentences(4));
    {
      spawned<void> one(loop, one_rank(other, {7}, duration(0), "words", answers[3]));
      loop.run_for(seconds(5));
      CHECK_FALSE(one.done());
      if (!it_dies) {
        round();
        CHECK(one.done());
      }
    }
    if (it_dies) {
      round();
      round();
      answers[3].error = answers[0].error;
    }
    loop.run_for(seconds(30));
    loop.drain();
    CHECK(board->objects.empty());
    for (const answer& a : answers) CHECK(a.error == answers[0].error);
    return answers[0].error;
  };
  const std::string launcher = ": give each process the rank that its launcher says";
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    CHECK(told(of(1, 3), seed, false) ==
          board_name + "rank_group: 2 processes say that they are rank 1 of 3" + launcher);
    CHECK(told(of(0, 3), seed, false) ==
          board_name + "rank_group: 2 processes say that they are rank 0 of 3" + launcher);
    CHECK(told(of(2, 4), seed, false) ==
          board_name + "rank_group: rank 2 says that there are 4 processes, and rank 0 that there are 3");
    CHECK(told(of(1, 3), seed, true).empty());
    CHECK(told(of(0, 3), seed, true).empty());
  }
}

TEST_CASE("the rank 0 of a group whose other ranks have died does not keep a new start from its work") {
  const auto board = std::make_shared<memory_board>(5);
  const std::vector<rank_group> old = groups_on(board, {of(0, 3), of(1, 3), of(2, 3)});
  const std::vector<rank_group> groups = groups_on(board, {of(0, 3), of(1, 3), of(2, 3)});
  testing::virtual_loop loop(5);
  std::vector<answer> answers(4);
  const auto round = [&](const std::vector<rank_group>& of_group) {
    std::vector<spawned<void>> ranks;
    for (std::size_t i = 0; i < 3; ++i) {
      ranks.emplace_back(loop, one_rank(of_group[i], {i}, duration(0), "words", answers[i]));
    }
    loop.run_for(seconds(15));
    for (const spawned<void>& r : ranks) CHECK(r.done());
    CHECK(errors_of(answers) == sentences(4));
  };
  round(old);
  spawned<void> alone(loop, one_rank(old[0], {0}, duration(0), "words", answers[3]));
  loop.run_for(seconds(5));
  for (int n = 0; n < 3; ++n) round(groups);
  CHECK_FALSE(alone.done());
}

TEST_CASE("ranks that do not come are named on those that did, when the time is up") {
  const auto board = std::make_shared<memory_board>();
  const std::vector<answer> answers =
      gather_all(groups_on(board, {of(0, 5), of(2, 5)}, seconds(60)), 1, {duration(0), seconds(20)});
  for (const answer& a : answers) {
    CHECK(a.error == board_name + "rank_group: ranks 1, 3 and 4 of 5 did not come within 60 s");
    CHECK(a.at > seconds(60));
    CHECK(a.at < seconds(65));
  }
  CHECK(board->objects.empty());
  // Rank 0 is missing.
  const std::vector<answer> others = gather_all(groups_on(board, {of(1, 3), of(2, 3)}, seconds(60)));
  CHECK(others[0].error == board_name + "rank_group: rank 1 of 3 has waited 60 s for rank 0, which did not come");
  CHECK(others[1].error == board_name + "rank_group: rank 2 of 3 has waited 60 s for rank 0, which did not come");
  CHECK(board->objects.empty());
  // A rank that is late is waited for.
  const std::vector<rank_group> three = groups_on(board, {of(0, 3), of(1, 3), of(2, 3)}, seconds(60));
  const std::vector<answer> late = gather_all(three, 1, {seconds(50), seconds(0), seconds(59)});
  CHECK(errors_of(late) == sentences(3));
}

TEST_CASE("what an earlier start has left is never an answer, and is removed") {
  rng random(9);
  const auto board = std::make_shared<memory_board>(7);
  std::size_t left = 0;
  for (int start = 0; start < 40; ++start) {
    const std::vector<rank_group> groups = groups_on(board, {of(0, 3), of(1, 3), of(2, 3)});
    const bool killed = start % 4 != 3;
    if (killed) {  // at any moment
      testing::virtual_loop loop(random.next());
      std::vector<answer> answers(3);
      std::vector<spawned<void>> ranks;
      for (std::size_t i = 0; i < 3; ++i) {
        ranks.emplace_back(loop, one_rank(groups[i], {i, 7777}, duration(0), "words", answers[i]));
      }
      loop.run_for(milliseconds(random.below(400)));
      ranks.clear();
      // Nothing of it runs on: a process that has ended cleans nothing up.
      const std::map<std::string, std::string> before = board->objects;
      loop.drain();
      board->objects = before;
      continue;
    }
    left += board->objects.size();
    const std::vector<answer> answers = gather_all(groups, random.next());
    for (const answer& a : answers) {
      REQUIRE(a.error.empty());
      REQUIRE(a.all == words{0, 100, 1, 101, 2, 102});
    }
    REQUIRE(board->objects.empty());
  }
  CHECK(left > 20);
}

TEST_CASE("dropping a gather while it waits leaves nothing under way, and the others name the rank") {
  const auto board = std::make_shared<memory_board>();
  const std::vector<rank_group> groups = groups_on(board, {of(0, 2), of(1, 2)}, seconds(60));
  testing::virtual_loop loop;
  std::vector<answer> answers(2);
  spawned<void> one(loop, one_rank(groups[1], {1}, duration(0), "words", answers[1]));
  loop.run_for(seconds(3));
  CHECK_FALSE(one.done());
  one = spawned<void>();
  loop.drain();
  spawned<void> first(loop, one_rank(groups[0], {1}, duration(0), "words", answers[0]));
  loop.run_for(seconds(70));
  CHECK(first.done());
  CHECK(answers[0].error == board_name + "rank_group: rank 1 of 2 did not come within 60 s");
}

TEST_CASE("ranks that do not make the same calls get an error that says so") {
  const auto board = std::make_shared<memory_board>();
  const std::vector<rank_group> groups = groups_on(board, {of(0, 2), of(1, 2)});
  const std::vector<answer> answers = gather_all(groups, 1, {}, {"words", "others"});
  CHECK_THAT(answers[0].error, Contains("rank 1 gathers something else than rank 0 does"));
  CHECK_THAT(answers[1].error, Contains("rank 1 gathers something else than rank 0 does (here others)"));
  // Calls count where they are made, and may be awaited in another order.
  testing::virtual_loop loop;
  std::vector<words> got(4);
  std::vector<task<void>> all;
  const auto take = [](task<words> gathering, words& out) -> task<void> { out = co_await std::move(gathering); };
  task<words> first = groups[0].gather({1});
  task<words> second = groups[0].gather({2});
  task<words> third = groups[1].gather({3});
  task<words> fourth = groups[1].gather({4});
  all.push_back(take(std::move(second), got[1]));
  all.push_back(take(std::move(first), got[0]));
  all.push_back(take(std::move(third), got[2]));
  all.push_back(take(std::move(fourth), got[3]));
  block_on(loop, all_ranks(std::move(all)));
  CHECK(got == std::vector<words>{{1, 3}, {2, 4}, {1, 3}, {2, 4}});
}

TEST_CASE("a store that refuses is an error of that rank; objects that cannot be removed are no error") {
  const auto board = std::make_shared<memory_board>();
  board->failing_put = 2;
  const std::vector<answer> answers = gather_all(groups_on(board, {of(0, 2), of(1, 2)}, seconds(60)));
  CHECK(answers[1].error == "the store is gone");
  CHECK(answers[0].error == board_name + "rank_group: rank 1 of 2 did not come within 60 s");
  const auto kept = std::make_shared<memory_board>();
  kept->keeps = true;
  const std::vector<rank_group> groups = groups_on(kept, {of(0, 2), of(1, 2)});
  CHECK(errors_of(gather_all(groups)) == sentences(2));
  CHECK(errors_of(gather_all(groups, 1)) == sentences(2));
  CHECK_FALSE(kept->objects.empty());
}

TEST_CASE("objects of a store are for 64 processes at most, and the error names what to use") {
  const auto board = std::make_shared<memory_board>();
  CHECK(groups_on(board, {of(63, 64)})[0].by_store());
  CHECK_THROWS_WITH(
      groups_on(board, {of(0, 65)}),
      Contains("65 processes cannot meet by objects of a store, which is for 64 at most: use mpi_ranks()") &&
          Contains("pmix_ranks()") && Contains("c10d_ranks()") && Contains("a function that gathers"));
}

TEST_CASE("by a function: ranks that are not those of the function are named") {
  test::thread_gather gather(2);
  const auto told = [&](const rank& a, const rank& b) {
    return test::on_ranks(2, [&](std::size_t r) { gather.group(r == 0 ? a : b, r).gather_now({r}); });
  };
  CHECK(told(of(0, 2), of(1, 2)) == sentences(2));
  const std::string wrong =
      "rank_group: the process that is number 1 of 2 where words are gathered says that it is rank 0 of 2: give each "
      "process the rank that its launcher says";
  CHECK(told(of(0, 2), of(0, 2)) == sentences(2, wrong));
  CHECK_THROWS_WITH(rank_group(of(0, 2), gather_words()),
                    "rank_group: the function that gathers the words of 2 processes is empty");
  CHECK(rank_group().gather_now({4, 5}) == words{4, 5});
  CHECK_THROWS_AS(gather.group(0).gather({1}), usage_error);
  CHECK_THROWS_WITH(rank_group().replicas(2), Contains("1 processes cannot be divided into replicas of 2"));
}

TEST_CASE("settings that differ are one sentence, with the values of which ranks") {
  const auto told = [](const std::vector<std::vector<rank_setting>>& settings) {
    test::thread_gather gather(settings.size());
    return test::on_ranks(settings.size(), [&](std::size_t r) { gather.group(r).compare(settings[r]); });
  };
  using list = std::vector<rank_setting>;
  const list seven{{"the seed", 7}, {"width", 32}};
  CHECK(told({seven, seven, seven}) == sentences(3));
  CHECK(told({seven, seven, seven, list{{"the seed", 8}, {"width", 3}}, seven}) ==
        sentences(5, "the ranks do not agree: the seed is 7 on ranks 0 to 2 and 4, 8 on rank 3"));
  CHECK(told({seven, list{{"the seed", 7}, {"width", 1}}, list{{"the seed", 7}, {"width", 2}}}) ==
        sentences(3, "the ranks do not agree: width is 32 on rank 0, 1 on rank 1, 2 on rank 2"));
  CHECK(told({list{{"data", 1, "a"}}, list{{"data", 2, "b"}}}) ==
        sentences(2, "the ranks do not agree: data is a on rank 0, b on rank 1"));
  CHECK(told({list{{"data", 1, "a"}}, list{{"data", 2, "a"}}}) ==
        sentences(2, "the ranks do not agree: data is a on rank 0, a with another content on rank 1"));
  CHECK_THAT(told({seven, list{{"the sead", 7}, {"width", 32}}})[1], Contains("do not compare the same settings"));
}

namespace {

/// The errors of a training that rank 1 of 2 has changed, by a function and by the store.
sentences of_training(const std::function<void(test::settings&)>& change, const test::tar_dataset& data,
                      const test::tar_dataset& other, bool by_store) {
  const auto board = std::make_shared<memory_board>();
  test::thread_gather gather(2);
  const auto options = [&](std::size_t r, const rank_group& group) {
    test::settings o{.seed = 1, .epochs = 2, .batch = 4, .tracks = 12};
    o.ranks = group;
    if (r == 1) change(o);
    return o;
  };
  if (!by_store) {
    return test::on_ranks(2, [&](std::size_t r) {
      const rank_group group = gather.group(r);
      const stream<sample> begun = (r == 0 ? data : other).open(options(r, group));
    });
  }
  const std::vector<rank_group> groups = groups_on(board, {of(0, 2), of(1, 2)}, seconds(20));
  sentences errors(2);
  const auto first_of = [](stream<sample> in, std::string& error) -> task<void> {
    try {
      const std::optional<sample> first = co_await in.next();
    } catch (const std::exception& e) {
      error = e.what();
    }
  };
  testing::virtual_loop loop;
  std::vector<task<void>> ranks;
  for (std::size_t r = 0; r < 2; ++r) {
    try {
      ranks.push_back(first_of((r == 0 ? data : other).open(options(r, groups[r])), errors[r]));
    } catch (const std::exception& e) {
      errors[r] = e.what();
    }
  }
  block_on(loop, all_ranks(std::move(ranks)));
  return errors;
}

}  // namespace

TEST_CASE("what differs of a training is named on all ranks before anything is read") {
  const test::tar_dataset data({4, 5}, 100);
  const test::tar_dataset other({4, 6}, 100);
  test::settings o{.seed = 1, .epochs = 2, .batch = 4, .tracks = 12};
  o.rank = of(0, 2);
  const std::string after_one = test::delivered_by(data.open(o), 4, 1).state;
  const std::string agree = "the ranks do not agree: ";
  for (const bool by_store : {false, true}) {
    INFO((by_store ? "by the store" : "by a function"));
    const auto told = [&](const std::function<void(test::settings&)>& change) {
      const sentences all = of_training(change, data, data, by_store);
      CHECK(all[0] == all[1]);
      CHECK(data.store->requests == 0);
      return all[0];
    };
    const auto differs = [&](const char* what, const char* here, const char* there) {
      return agree + what + " is " + here + " on rank 0, " + there + " on rank 1";
    };
    CHECK(of_training([](test::settings&) {}, data, data, by_store) == sentences(2));
    CHECK(of_training([](test::settings& s) { s.ahead = 3; }, data, data, by_store) == sentences(2));
    data.store->requests = 0;
    CHECK(told([](test::settings& s) { s.seed = 2; }) == differs("the seed", "1", "2"));
    CHECK(told([](test::settings& s) { s.epochs = endless; }) == differs(".epochs", "2", "endless"));
    CHECK(told([](test::settings& s) { s.first_epoch = 3; }) == differs(".first_epoch", "0", "3"));
    CHECK(told([](test::settings& s) { s.batch = 5; }) == differs(".batch", "4", "5"));
    CHECK(told([](test::settings& s) { s.take_batches = 1; }) == differs(".take_batches", "0", "1"));
    CHECK(told([](test::settings& s) { s.tracks = 24; }) == differs(".tracks", "12", "24"));
    CHECK(told([](test::settings& s) { s.slice = 3; }) ==
          differs(".slice", std::to_string(default_slice(*data.indexes, 2)).c_str(), "3"));
    CHECK(told([&](test::settings& s) { s.resume = after_one; }) ==
          differs("the state", "none", "at sample 8 of epoch 0"));
    const std::string index = "the index ";
    const std::string one = index + data.indexes->digest().text();
    const std::string two = index + other.indexes->digest().text();
    const sentences another = of_training([](test::settings&) {}, data, other, by_store);
    CHECK(another == sentences(2, differs("the dataset", one.c_str(), two.c_str())));
  }
  // A rank that cannot begin says why to all.
  const auto stops = [](test::settings& s) { s.failures = {.then = on_failure::stop}; };
  const sentences bad = of_training(stops, data, data, false);
  CHECK(bad[0] == "rank 1 of 2 cannot begin, so no rank does: " + bad[1]);
  const sentences twice = of_training([](test::settings& s) { s.rank = of(0, 4); }, data, data, false);
  CHECK(twice[1] == "epochs: .rank is 0 of 4, and .ranks is 1 of 2: leave .rank out");
}

TEST_CASE("by the store, ranks compare what is listed, and a rank that cannot list says so to all") {
  const auto told = [](const std::function<void(test::dataset_store&)>& change) {
    const auto board = std::make_shared<memory_board>();
    const std::vector<rank_group> groups = groups_on(board, {of(0, 2), of(1, 2)}, seconds(20));
    std::vector<test::tar_dataset> data;
    for (std::size_t r = 0; r < 2; ++r) data.emplace_back(std::vector<std::size_t>{4, 5, 6}, 100);
    change(*data[1].store);
    sentences errors(2);
    const auto first_of = [](stream<sample> in, std::string& error) -> task<void> {
      try {
        const std::optional<sample> first = co_await in.next();
      } catch (const std::exception& e) {
        error = e.what();
      }
    };
    std::vector<task<void>> ranks;
    for (std::size_t r = 0; r < 2; ++r) {
      const dataset its(std::shared_ptr<const storage>(data[r].store), "mem:", {.window = 8});
      epochs_options o{.seed = 1, .batch = 4, .uneven = true};
      o.ranks = groups[r];
      ranks.push_back(first_of(epochs(its, o), errors[r]));
    }
    testing::virtual_loop loop;
    block_on(loop, all_ranks(std::move(ranks)));
    return errors;
  };
  CHECK(told([](test::dataset_store&) {}) == sentences(2));
  const sentences longer = told([](test::dataset_store& s) { s.objects["mem:103.tar"] = s.objects["mem:102.tar"]; });
  CHECK_THAT(longer[0], Contains("the ranks do not agree: the list of shards is "));
  CHECK(longer[1] == longer[0]);
  const sentences none = told([](test::dataset_store& s) { s.objects.clear(); });
  CHECK_FALSE(none[1].empty());
  CHECK(none[0] == "rank 1 of 2 cannot begin, so no rank does: " + none[1]);
}

TEST_CASE("several ranks without a group: one line says what is not checked") {
  const test::tar_dataset data({4, 5}, 100);
  std::vector<std::string> lines;
  const auto add = [&](const log_record& r) { lines.emplace_back(r.text); };
  const auto said = [&](const rank& mine, const rank_group_ref& group) {
    lines.clear();
    runtime rt({.log = add});
    test::settings o{.seed = 1, .batch = 4, .tracks = 12};
    o.rank = mine;
    o.ranks = group;
    auto run = rt.run(data.open(o) | batch(4));
    while (run.next()) {
    }
    return std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
      return line.find(" ranks without a rank_group (.ranks): that seed, dataset, batch, order and state are the same "
                       "on all of them is not checked") != std::string::npos;
    });
  };
  CHECK(said(of(0, 29), {}) == 1);
  CHECK(said(of(0, 29), {}) == 0);  // once in a process
  CHECK(said(of(1, 29), {}) == 0);
  CHECK(said(of(0, 1), {}) == 0);
  const rank_group alone;
  CHECK(said(of(0, 1), alone) == 0);
}

TEST_CASE("states of different steps are refused at a resume, without an index too") {
  const std::vector<std::size_t> counts{20, 20, 20, 20};
  const auto open = [&](const test::tar_dataset& data, const rank_group& group, const equal_batches& equal,
                        const std::string& state) {
    std::vector<shard> list;
    for (const auto& [url, content] : data.store->objects) list.emplace_back(url, content.size());
    test::settings o{.seed = 2, .epochs = 2, .batch = 4, .streamed = true, .shards = 2, .window = 10};
    o.ranks = group;
    o.equal = &equal;
    o.resume = state;
    return test::train_on(from_range(std::move(list)), std::shared_ptr<const storage>(data.store), o);
  };
  std::vector<sentences> states(2);  // by rank, after each step
  test::thread_gather gather(2);
  REQUIRE(test::on_ranks(2, [&](std::size_t r) {
            const test::tar_dataset data(counts, 100);
            const rank_group group = gather.group(r);
            const equal_batches equal(4, uneven::pad, group);
            runtime rt({.log = [](const log_record&) {}});
            auto run = rt.run(open(data, group, equal, "") | batch(4));
            auto together = equal.of(run);
            while (states[r].size() < 6 && together.next()) states[r].push_back(run.state());
          }) == sentences(2));
  const auto told = [&](std::size_t one, std::size_t two) {
    test::thread_gather again(2);
    return test::on_ranks(2, [&](std::size_t r) {
      const test::tar_dataset data(counts, 100);
      const rank_group group = again.group(r);
      const equal_batches equal(4, uneven::pad, group);
      const stream<sample> begun = open(data, group, equal, states[r][r == 0 ? one : two]);
    });
  };
  CHECK(told(3, 3) == sentences(2));
  CHECK(told(3, 2) == sentences(2, "the ranks do not agree: the state is after step 4 of epoch 0 on rank 0, after step "
                                   "3 of epoch 0 on rank 1: give all ranks the states that were saved after the same "
                                   "step"));
}

TEST_CASE("processes of one replica get identical batches, and the replicas together every sample once") {
  const test::tar_dataset data({31, 7, 22, 40, 13}, 200);
  for (const std::uint32_t each : {1U, 2U, 3U, 6U}) {
    test::thread_gather gather(6);
    std::vector<sentences> keys(6);
    const sentences errors = test::on_ranks(6, [&](std::size_t r) {
      const test::tar_dataset its({31, 7, 22, 40, 13}, 200);
      const rank_group group = gather.group(r).replicas(each);
      test::settings o{.seed = 3, .epochs = 2, .batch = 4, .tracks = 12};
      o.ranks = group;
      testing::virtual_loop loop(r + 1);
      test::delivered out;
      its.store->delay_us = 500;
      block_on(loop, test::take_batches_of(its.open(o), 4, 1000, out));
      for (const auto& [place, key] : out.samples) keys[r].push_back(std::to_string(place) + key);
    });
    REQUIRE(errors == sentences(6));
    sentences all;
    for (std::size_t r = 0; r < 6; ++r) {
      CHECK(keys[r] == keys[r / each * each]);
      if (r % each == 0) all.insert(all.end(), keys[r].begin(), keys[r].end());
    }
    std::sort(all.begin(), all.end());
    CHECK(all.size() == 2 * 113);
    CHECK(std::unique(all.begin(), all.end()) == all.end());
  }
  // Replicas of unequally many processes.
  test::thread_gather gather(4);
  const sentences errors = test::on_ranks(4, [&](std::size_t r) {
    const rank_group group = gather.group(r).replica(r < 3 ? 0 : 1, 2);
    test::settings o{.seed = 3, .batch = 4, .tracks = 12};
    o.ranks = group;
    const stream<sample> begun = data.open(o);
  });
  CHECK(errors ==
        sentences(4, "the ranks do not agree: which replica takes which share is 0 of 2 on ranks 0 to 2, 1 of "
                     "2 on rank 3: every replica must have equally many processes"));
}

TEST_CASE("by an S3 store: processes on loops of their own, and a store that answers 503") {
  s3_server::background server;
  server.put("b", "other", std::string_view("x"));
  const std::string endpoint = server.endpoint();
  const auto client = [&] {
    s3::config_options o;
    o.endpoint = endpoint;
    o.region = "us-east-1";
    return s3::client{s3::config(o), s3::credentials("test-key", "test-secret")};
  };
  const auto gather = [&](std::vector<words>& all) {
    return test::on_ranks(3, [&](std::size_t r) {
      const rank mine = of(static_cast<std::uint32_t>(r), 3);
      const rank_group group(mine, client(), "s3://b/runs/7/", {.timeout = seconds(20)});
      all[r] = group.gather_now({r, UINT64_MAX - r});
      const rank_setting same[] = {{"width", 3}};
      group.compare(same);
    });
  };
  std::vector<words> all(3);
  CHECK(gather(all) == sentences(3));
  CHECK(all == std::vector<words>(3, {0, UINT64_MAX, 1, UINT64_MAX - 1, 2, UINT64_MAX - 2}));
  for (const std::uint64_t nth : {1, 3, 6}) {
    server.faults().add({.method = "PUT", .bucket = "b", .nth = nth},
                        s3_server::fault::refuse(503, "SlowDown"));
  }
  all.assign(3, {});
  CHECK(gather(all) == sentences(3));
  CHECK(all == std::vector<words>(3, {0, UINT64_MAX, 1, UINT64_MAX - 1, 2, UINT64_MAX - 2}));
  const std::vector<std::string> left = [&] {
    const auto loop = make_event_loop();
    std::vector<std::string> urls;
    for (const shard& s : block_on(*loop, detail::all_objects(s3::as_storage(client()), "s3://b/"))) {
      urls.push_back(s.url);
    }
    return urls;
  }();
  CHECK(left == std::vector<std::string>{"s3://b/other"});
  CHECK_THROWS_WITH(rank_group(of(0, 2), client(), "s3://b/runs"), Contains("must be a folder, with '/' at its end"));
  CHECK_THROWS_WITH(rank_group(of(0, 2), client(), "runs/"), Contains("runs/roll/: the store does not serve this URL"));
}

TEST_CASE("by files: processes on loops of their own, in a folder that is missing") {
  const test::temporary_folder folder;
  const std::string prefix = folder.path() + "/runs/7/";
  std::vector<words> all(3);
  for (int start = 0; start < 2; ++start) {
    CHECK(test::on_ranks(3, [&](std::size_t r) {
            const rank_group group(of(static_cast<std::uint32_t>(r), 3), files(), prefix, {.timeout = seconds(20)});
            const words large = group.gather_now(words(20000, UINT64_MAX - r));  // in objects of several parts
            if (large.size() != 60000 || large.back() != UINT64_MAX - 2) throw error("not all words came");
            all[r] = group.gather_now({r, 7});
          }) == sentences(3));
    CHECK(all == std::vector<words>(3, {0, 7, 1, 7, 2, 7}));
  }
  const auto loop = make_event_loop();
  CHECK(block_on(*loop, detail::all_objects(files(), prefix)).empty());
}
