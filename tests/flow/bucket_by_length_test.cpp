// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/bucket_by_length.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

// An item is its length, and says its epoch by its thousands.
class text {
 public:
  explicit text(std::size_t n, bool says = false) : length(n % 1000), epoch(n / 1000), says_epoch(says) {}
  std::size_t length;
  std::uint64_t epoch;
  bool says_epoch;

  friend epoch_mark mark_of(const text& t) noexcept {
    epoch_mark m;
    m.known = t.says_epoch;
    m.epoch = t.epoch;
    m.seed = 5;
    return m;
  }
};

class length {
 public:
  std::size_t operator()(const text& t) const {
    if (t.length == 999) throw std::runtime_error("no length");
    return t.length;
  }
};

async_generator<text> texts(std::vector<std::size_t> lengths, bool say_epochs, std::size_t* made) {
  for (const std::size_t n : lengths) {
    if (made != nullptr) ++*made;
    text t(n, say_epochs);
    co_yield give(t);
  }
}

using batches = std::vector<std::vector<std::size_t>>;

task<void> take_all(stream<marked_batch<text>> in, batches& out) {
  while (std::optional<marked_batch<text>> b = co_await in.next()) {
    out.emplace_back();
    for (const text& t : *b) out.back().push_back(t.epoch * 1000 + t.length);
  }
}

batches batched(std::vector<std::size_t> lengths, const bucket_options& how, bool say_epochs = false) {
  testing::virtual_loop loop;
  batches out;
  block_on(
      loop,
      take_all(stream<text>(texts(std::move(lengths), say_epochs, nullptr)) | bucket_by_length(length(), how), out));
  return out;
}
batches sorted(batches all) {
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

TEST_CASE("items of about one length are batched together", "[bucket]") {
  const std::vector<std::size_t> lengths{9, 1, 8, 2, 7, 3, 6, 4, 5};
  CHECK(sorted(batched(lengths, {.batch = 3, .window = 9})) == batches{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}});
  // Windows of what comes one after the other.
  CHECK(sorted(batched(lengths, {.batch = 3, .window = 6})) == batches{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}});
  CHECK(sorted(batched(lengths, {.batch = 3, .window = 3})) == batches{{1, 8, 9}, {2, 3, 7}, {4, 5, 6}});
  CHECK(sorted(batched(lengths, {.batch = 4})) == batches{{1, 2, 3, 4}, {5, 6, 7, 8}, {9}});
  CHECK(batched({}, {.batch = 4}).empty());
}

TEST_CASE("a batch ends where padding would make it too large, and at an edge", "[bucket]") {
  const std::vector<std::size_t> lengths{1, 2, 3, 4, 5, 6, 20};
  CHECK(sorted(batched(lengths, {.max_tokens = 10})) == batches{{1, 2, 3}, {4, 5}, {6}, {20}});
  CHECK(sorted(batched(lengths, {.batch = 2, .max_tokens = 10})) == batches{{1, 2}, {3, 4}, {5}, {6}, {20}});
  CHECK(sorted(batched(lengths, {.batch = 100, .edges = {3, 5}})) == batches{{1, 2, 3}, {4, 5}, {6, 20}});
  CHECK(sorted(batched({0, 0, 0}, {.max_tokens = 1})) == batches{{0, 0, 0}});
}

TEST_CASE("an item that is longer than a batch may be is a line in the log, once", "[bucket]") {
  static std::vector<std::string> said;
  said.clear();
  runtime rt({.log = [](const log_record& r) { said.emplace_back(r.text); }});
  std::vector<std::size_t> lengths{3, 20, 30, 4};
  for (auto& b : rt.run(from_range(std::move(lengths)) |
                        bucket_by_length([](const std::size_t& n) { return n; }, {.max_tokens = 10}))) {
    CHECK(b.size() >= 1);
  }
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Contains("an item of length 20 is longer than .max_tokens of 10"));
}

TEST_CASE("the order of batches is drawn, from seed and window", "[bucket]") {
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < 512; ++i) lengths.push_back(i % 256);
  const batches once = batched(lengths, {.batch = 4, .window = 256, .seed = 1});
  CHECK(once == batched(lengths, {.batch = 4, .window = 256, .seed = 1}));
  const batches other = batched(lengths, {.batch = 4, .window = 256, .seed = 2});
  CHECK(once != other);
  CHECK(sorted(once) == sorted(other));
  CHECK_FALSE(std::is_sorted(once.begin(), once.begin() + 64));
  CHECK_FALSE(std::equal(once.begin(), once.begin() + 64, once.begin() + 64));  // the windows are the same
}

TEST_CASE("a window is of one epoch", "[bucket]") {
  const std::vector<std::size_t> lengths{5, 1, 4, 1003, 1002, 2001};
  CHECK(batched(lengths, {.batch = 2, .window = 4}, true).size() == 4);
  CHECK(sorted(batched(lengths, {.batch = 2, .window = 4}, true)) == batches{{1, 4}, {5}, {1002, 1003}, {2001}});
}

TEST_CASE("the next window is filled while this one is delivered", "[bucket]") {
  testing::virtual_loop loop;
  std::size_t made = 0;
  auto stream = millrace::stream<text>(texts(std::vector<std::size_t>(1000, 1), false, &made)) |
                bucket_by_length(length(), {.batch = 2, .window = 8, .bytes = 5000});
  CHECK(stream.bounds().back().items == 16);
  CHECK(stream.bounds().back().bytes == 5000);
  const auto next = [&] {
    return block_on(loop, [](millrace::stream<marked_batch<text>>& from) -> task<std::size_t> {
      std::optional<marked_batch<text>> b = co_await from.next();
      co_return b ? b->size() : 0;
    }(stream));
  };
  for (std::size_t batch = 0; batch < 9; ++batch) {
    CHECK(next() == 2);
    CHECK(made == std::min<std::size_t>(8 + 2 * batch, 1000));
  }
}

TEST_CASE("options and errors of buckets", "[bucket]") {
  CHECK_THROWS_WITH(bucket_by_length(length(), {}), Contains("give .batch, .max_tokens, or both"));
  CHECK_THROWS_WITH(bucket_by_length(length(), {.batch = 4, .window = 6}), Contains("no multiple of a .batch of 4"));
  CHECK_THROWS_WITH(batched({1, 999, 2}, {.batch = 2}), Contains("no length"));
  const std::uint32_t id = detail::window_id({.batch = 4, .window = 8});
  CHECK(id != 0);
  CHECK(id != detail::window_id({.batch = 4, .window = 16}));
  CHECK(id != detail::window_id({.batch = 2, .window = 8}));
  CHECK(id != detail::window_id({.batch = 4, .max_tokens = 9, .window = 8}));
  CHECK(id != detail::window_id({.batch = 4, .window = 8, .edges = {3}}));
  CHECK(id != detail::window_id({.batch = 4, .window = 8, .seed = 3}));
}
