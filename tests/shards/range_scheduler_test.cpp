// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Which of the ranges that a reader wants is read next, and what is under way beside it.

#include <millrace/shards/range_scheduler.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using millrace::detail::host_share;
using millrace::detail::range_scheduler;
using millrace::detail::wanted_range;

namespace {

class unread_store final : public storage {
 public:
  bool serves(std::string_view) const noexcept override { return true; }
  std::string host(std::string_view url) const override { return std::string(url.substr(0, 1)); }
  task<part> read(shard object, std::string, std::uint64_t offset, std::size_t, slab_pool) const override {
    throw io_error(std::errc::io_error, "nothing is read here", where{object.shown(), offset, {}});
  }
};

constexpr host_share::bounds usual{.bytes = 128 * MiB, .longest = MiB, .requests = 64, .start = 64};

/// Ranges of one host, by their numbers.
class queue {
 public:
  explicit queue(const range_scheduler::limits& own, const host_share::bounds& host = usual)
      : ranges(context(), std::make_shared<const unread_store>(), host, own) {}

  std::shared_ptr<wanted_range> want(std::size_t bytes, bool first = false, bool local = false) {
    auto made = std::make_shared<wanted_range>();
    made->begin = ++numbers_;
    ranges.want(made, ranges.share_of("mem:x"), local, bytes, first);
    wanted_.push_back(made);
    return made;
  }
  /// Begins all whose turn it is; which these are.
  std::vector<std::uint64_t> begin() {
    std::vector<std::uint64_t> begun;
    while (const auto next = ranges.next()) {
      begun.push_back(next->begin);
      under_way.push_back(ranges.begin(*next));
    }
    return begun;
  }
  /// The first of these has come.
  void end_first() {
    std::vector<range_scheduler::turn> left;
    for (std::size_t i = 1; i < under_way.size(); ++i) left.push_back(std::move(under_way[i]));
    under_way.clear();
    under_way.swap(left);
  }
  void forget(const std::shared_ptr<wanted_range>& r) { std::erase(wanted_, r); }

 private:
  coroutine_context context() {
    const auto ask = []() -> task<coroutine_context> { co_return co_await this_context(); };
    return block_on(loop_, ask());
  }
  testing::virtual_loop loop_;
  std::vector<std::shared_ptr<wanted_range>> wanted_;
  std::uint64_t numbers_ = 0;

 public:
  range_scheduler ranges;
  std::vector<range_scheduler::turn> under_way;  // declared last: they refer to it
};

using numbers = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("ranges begin in the order in which they are wanted, unless they are gone") {
  queue q({});
  q.want(KiB);
  q.forget(q.want(KiB));
  q.want(KiB);
  CHECK(q.begin() == numbers{1, 3});
  CHECK(q.begin().empty());
  q.want(KiB);
  q.ranges.clear();
  CHECK(q.begin().empty());
}

TEST_CASE("bytes under way are within the bound, or of one range") {
  queue q({.bytes = 100});
  for (const std::size_t bytes : {70, 30, 1, 500, 2}) q.want(bytes);
  CHECK(q.begin() == numbers{1, 2});
  q.end_first();
  CHECK(q.begin() == numbers{3});
  q.end_first();
  CHECK(q.begin().empty());  // 1 is under way
  q.end_first();
  CHECK(q.begin() == numbers{4});
  q.end_first();
  CHECK(q.begin() == numbers{5});
}

TEST_CASE("beside ranges for the first batch others are under way as far as a bound in bytes, then in a number") {
  queue q({.later = 2, .beside_first = 100});
  q.want(60, true);
  q.want(500, true);
  q.want(10);
  CHECK(q.begin() == numbers{1, 2});  // the first batch's have no bound
  q.end_first();
  CHECK(q.begin().empty());
  q.end_first();
  CHECK(q.begin() == numbers{3});
  q.want(60, true);
  q.want(30);
  q.want(1);
  CHECK(q.begin() == numbers{4});  // two are under way
  q.end_first();
  CHECK(q.begin() == numbers{5});
}

TEST_CASE("the store is left to the first batch until its items have been taken") {
  queue q({});
  q.ranges.leave_to_first(2);
  q.want(KiB, true);
  q.want(KiB);
  CHECK(q.begin() == numbers{1});
  q.under_way.clear();
  q.ranges.item_taken();
  CHECK(q.begin().empty());
  q.ranges.item_taken();
  CHECK(q.begin() == numbers{2});
}

TEST_CASE("ranges of a local disk wait for nothing but the disk: eight at a time, or as many bytes") {
  queue q({}, {.bytes = 128 * MiB, .longest = MiB, .requests = 20, .start = 1});
  for (int i = 0; i < 3; ++i) q.want(MiB);
  for (int i = 0; i < 10; ++i) q.want(MiB, false, true);
  CHECK(q.begin() == numbers{4, 5, 6, 7, 8, 9, 10, 11, 1, 2});  // of a reader alone two at once, whatever the number
  q.under_way.clear();
  for (int i = 0; i < 30; ++i) q.want(KiB, false, true);
  const numbers begun = q.begin();
  CHECK(begun.size() == 20 + 1);  // and the third of the store
}

TEST_CASE("a reader has one share of each host, on a loop without a runtime too") {
  queue q({});
  CHECK(q.ranges.most_requests() == 0);
  host_share& of_a = q.ranges.share_of("a:x");
  CHECK(&q.ranges.share_of("b:x") != &of_a);
  CHECK(&q.ranges.share_of("a:y") == &of_a);
  CHECK(q.ranges.most_requests() == of_a.requests());
}
