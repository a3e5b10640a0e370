// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/feed/check_ranks.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/feed/epochs_data.hpp"
#include "tests/feed/rank_threads.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

using sentences = std::vector<std::string>;

rank of(std::uint32_t index, std::uint32_t world) { return {.index = index, .world_size = world}; }

/// The errors of ranks with these settings, with a seed each.
sentences told(const std::vector<rank>& ranks, const std::vector<std::uint64_t>& seeds) {
  test::thread_sum sum(ranks.size());
  return test::on_ranks(ranks.size(), [&](std::size_t r) {
    const rank_setting settings[] = {{"the seed", seeds[r]}, {".batch", 32}};
    check_ranks(std::ref(sum), ranks[r], settings);
  });
}

}  // namespace

TEST_CASE("ranks with equal settings get no error") {
  CHECK(told({of(0, 1)}, {7}) == sentences{""});
  CHECK(told({of(1, 3), of(2, 3), of(0, 3)}, {7, 7, 7}) == sentences{"", "", ""});
}

TEST_CASE("a rank that was not told of its launcher, or two with one number, are explained to all") {
  const std::string alone =
      "this process is rank 0 of 1 (explicit), but 3 processes take part: give the rank that the launcher says, as "
      "rank_from_environment() does";
  CHECK(told({of(0, 1), of(0, 1), of(0, 1)}, {7, 7, 7}) == sentences{alone, alone, alone});
  CHECK(told({of(0, 3), of(0, 1), of(2, 3)}, {7, 7, 7}) ==
        sentences{"3 processes take part, and 1 of them believe in another number: they were not given their rank",
                  alone,
                  "3 processes take part, and 1 of them believe in another number: they were not given their rank"});
  CHECK(told({of(0, 3), of(2, 3), of(2, 3)}, {7, 7, 7}) ==
        sentences(3, "3 processes take part, and 0 of them say that they are rank 1"));
  // Invalid numbers: the other ranks get an error, too.
  CHECK(told({of(5, 2), of(1, 2)}, {7, 7})[1] ==
        "2 processes take part, and 1 of them believe in another number: they were not given their rank");
}

TEST_CASE("a setting that differs is named on all ranks, with both values") {
  CHECK(told({of(0, 3), of(1, 3), of(2, 3)}, {7, 7, 8}) ==
        sentences{"the ranks do not agree: the seed is 7 on rank 0, 7 on this one (0), and another on 1 of 3",
                  "the ranks do not agree: the seed is 7 on rank 0, 7 on this one (1), and another on 1 of 3",
                  "the ranks do not agree: the seed is 7 on rank 0, 8 on this one (2), and another on 1 of 3"});
}

TEST_CASE("options and indexes of epochs() that differ are caught before anything is read") {
  const test::tar_dataset data({4, 5}, 100);
  const test::tar_dataset other({4, 6}, 100);
  const auto first_word = [&](const std::function<void(test::settings&)>& change, bool another_index) {
    test::thread_sum sum(2);
    const sentences all = test::on_ranks(2, [&](std::size_t r) {
      test::settings o{.seed = 1, .epochs = 2, .batch = 4, .rank = of(static_cast<std::uint32_t>(r), 2)};
      if (r == 1) change(o);
      const test::tar_dataset& mine = r == 1 && another_index ? other : data;
      check_ranks(std::ref(sum), dataset(mine.store, mine.indexes, {.slice = o.slice}), o.training(), o.resume);
    });
    CHECK(all[0].empty() == all[1].empty());
    return all[1].substr(0, all[1].find(" is "));
  };
  const std::string differ = "the ranks do not agree: ";
  CHECK(first_word([](test::settings&) {}, false).empty());
  CHECK(first_word([](test::settings& o) { o.ahead = 3; }, false).empty());
  CHECK(first_word([](test::settings& o) { o.seed = 2; }, false) == differ + "the seed");
  CHECK(first_word([](test::settings& o) { o.epochs = 3; }, false) == differ + ".epochs");
  CHECK(first_word([](test::settings& o) { o.first_epoch = 3; }, false) == differ + ".first_epoch");
  CHECK(first_word([](test::settings& o) { o.batch = 5; }, false) == differ + ".batch");
  CHECK(first_word([](test::settings& o) { o.take_batches = 5; }, false) == differ + ".take_batches");
  CHECK(first_word([](test::settings& o) { o.tracks = 12; }, false) == differ + ".tracks");
  CHECK(first_word([](test::settings& o) { o.slice = 3; }, false) == differ + ".slice");
  CHECK(first_word([](test::settings& o) { o.resume = "{}"; }, false) == differ + "the digest of the state");
  CHECK(first_word([](test::settings&) {}, true) == differ + "the digest of the dataset");
}
