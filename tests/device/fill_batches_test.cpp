// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/fill_batches.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/device/batch_rows.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/device/late_device.hpp"
#include "tests/io/gate.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

batch_layout numbers(std::size_t samples) {
  return batch_layout(samples, {{"square", dtype::i64}, {"row", dtype::u8, {16}}});
}

async_generator<int> count(int n) {
  for (int i = 0; i < n; ++i) co_yield i;
}

void square(int i, const batch_row& row) {
  row.set("square", std::int64_t(i) * i);
  for (std::uint8_t& b : row.values<std::uint8_t>("row")) b = static_cast<std::uint8_t>(i);
  row.key(std::to_string(i));
  row.tag(i);
}

}  // namespace

TEST_CASE("items are written into their batch, in order", "[fill_batches]") {
  testing::virtual_loop loop;
  cpu_pool cores(3);
  auto stream = count(1000) | fill_batches(batch_pool(numbers(64)), &square, {.on = &cores, .limit = 100});
  CHECK(stream.bounds().back().items == 3);
  CHECK(stream.bounds().back().bytes == 3 * numbers(64).bytes());
  const std::vector<host_batch> all = block_on(loop, collect(std::move(stream)));
  REQUIRE(all.size() == 16);
  int i = 0;
  for (const host_batch& b : all) {
    CHECK(b.size() == (&b == &all.back() ? 1000 % 64 : 64));
    for (std::size_t r = 0; r < b.size(); ++r, ++i) {
      CHECK(b.field("square").values<std::int64_t>()[r] == std::int64_t(i) * i);
      CHECK(b.field("row").values<std::uint8_t>()[r * 16 + 15] == static_cast<std::uint8_t>(i));
      CHECK(b.keys()[r] == std::to_string(i));
      CHECK(b.tags<int>()[r] == i);
    }
  }
  CHECK(i == 1000);
}

TEST_CASE("what the function does not write is zeros, not another batch's row", "[fill_batches]") {
  // Item i writes all for i < 8; then what `how` says. Memory of batches is used again.
  for (const int how : {0, 1, 2, 3}) {
    CAPTURE(how);
    testing::virtual_loop loop;
    cpu_pool cores(2);
    const host_device device;
    const batch_layout layout(4, {{"square", dtype::i64}, {"row", dtype::u8, {16}}, {"big", dtype::f32, {300, 100}}});
    const batch_pool pool(layout);
    const auto f = [how](int i, const batch_row& row) {
      const auto big = [&] { return row.values<float>("big"); };
      if (i < 8) {
        square(i + 1, row);
        std::fill(big().begin(), big().end(), 1.0f);
      } else if (how == 1) {
        row.set("square", std::int64_t(7));
      } else if (how == 2) {  // in part
        row.values<std::uint8_t>("row")[2] = 5;
        big()[29999] = 2;
      } else if (how == 3) {  // asked for, not written
        static_cast<void>(row.field("row"));
        static_cast<void>(big());
      }
      return i != 13;
    };
    auto stream = count(18) | fill_batches(pool, f, {.on = &cores, .limit = 1}) | map([](host_batch b) { return b; }) |
                  to_device(device, {.slots = 1});
    int batches = 0;
    const auto drive = [&]() -> task<void> {
      for (;;) {
        std::optional<device_batch> b = co_await stream.next();
        if (!b) co_return;
        const auto squares = b->host_field("square").values<std::int64_t>();
        const auto rows = b->host_field("row").values<std::uint8_t>();
        const auto big = b->host_field("big").values<float>();
        for (std::size_t r = 0; r < b->size() && batches >= 2; ++r) {
          CHECK(squares[r] == (how == 1 ? 7 : 0));
          for (std::size_t k = 0; k < 16; ++k) CHECK(int(rows[16 * r + k]) == (how == 2 && k == 2 ? 5 : 0));
          CHECK(big[30000 * r] == 0);
          CHECK(big[30000 * r + 29999] == (how == 2 ? 2 : 0));
          CHECK(b->keys()[r] == "");
          CHECK(b->weights()[r] == 1);
        }
        ++batches;
      }
    };
    block_on(loop, drive());
    CHECK(batches == 5);
  }
}

TEST_CASE("a tensor without rows that nothing writes is zeros in every batch", "[fill_batches]") {
  testing::virtual_loop loop;
  cpu_pool cores(1);
  const batch_layout layout(2, {{"x", dtype::i64}, batch_field::of_batch("all", dtype::i32, {3})});
  const auto f = [](int i, const batch_row& row) {
    row.set("x", std::int64_t(i));
    if (i == 1) row.whole(1).values<std::int32_t>()[2] = 9;
  };
  auto stream = count(6) | fill_batches(batch_pool(layout), f, {.on = &cores, .limit = 1});
  const auto drive = [&]() -> task<std::vector<std::int32_t>> {
    std::vector<std::int32_t> seen;
    for (;;) {
      std::optional<host_batch> b = co_await stream.next();
      if (!b) co_return seen;
      seen.push_back(b->field("all").values<std::int32_t>()[2]);
    }
  };
  CHECK(block_on(loop, drive()) == std::vector<std::int32_t>{9, 0, 0});
}

namespace {

/// A row item and an item of collate() that write less than their row.
class sparse {
 public:
  explicit sparse(int n) : value(n) {}
  int value;
  batch_layout layout(std::size_t samples) const { return batch_layout(samples, {{"row", dtype::u8, {8}}}); }
  void write_to(const batch_row& row) const {
    for (int i = 0; i < value; ++i) row.values<std::uint8_t>("row")[static_cast<std::size_t>(i)] = 1;
  }
};
class placed_sparse {
 public:
  explicit placed_sparse(int n) : value(n) {}
  int value;
  friend void collate(const placed_sparse& s, sample_writer& out) {
    const std::span<std::uint8_t> row = out.place<std::uint8_t>("row", {8});
    for (int i = 0; i < s.value; ++i) row[static_cast<std::size_t>(i)] = 1;
  }
};

template <class T>
async_generator<T> falling() {
  for (int i : {8, 8, 2, 0, 1, 0}) {
    T item(i);
    co_yield item;
  }
}

std::vector<int> ones_of(testing::virtual_loop& loop, stream<device_batch> batches_of_two) {
  std::vector<int> ones;
  const auto drive = [&]() -> task<void> {
    for (;;) {
      std::optional<device_batch> b = co_await batches_of_two.next();
      if (!b) co_return;
      const auto all = b->host_field("row").values<std::uint8_t>();
      for (std::size_t r = 0; r < b->size(); ++r) ones.push_back(std::accumulate(&all[8 * r], &all[8 * r] + 8, 0));
    }
  };
  block_on(loop, drive());
  return ones;
}

}  // namespace

TEST_CASE("so are rows of items that write themselves, and what collate() places", "[fill_batches]") {
  cpu_pool cores(1);
  const host_device device;
  testing::virtual_loop loop;
  const std::vector<int> ones{8, 8, 2, 0, 1, 0};
  CHECK(ones_of(loop, falling<sparse>() | batch(2, {.on = &cores}) | to_device(device, {.slots = 1})) == ones);
  CHECK(ones_of(loop, falling<placed_sparse>() | batch(2) | to_device(device, {.slots = 1})) == ones);
}

TEST_CASE("a short last batch may be dropped", "[fill_batches]") {
  testing::virtual_loop loop;
  cpu_pool cores(2);
  auto stream = count(10) | fill_batches(batch_pool(numbers(4)), &square, {.on = &cores, .last = last_batch::drop});
  CHECK(block_on(loop, collect(std::move(stream))).size() == 2);
  auto none = count(0) | fill_batches(batch_pool(numbers(4)), &square, {.on = &cores});
  CHECK(block_on(loop, collect(std::move(none))).empty());
  auto exact = count(8) | fill_batches(batch_pool(numbers(4)), &square, {.on = &cores});
  CHECK(block_on(loop, collect(std::move(exact))).size() == 2);
}

TEST_CASE("samples that the function leaves out leave no hole", "[fill_batches]") {
  testing::virtual_loop loop;
  cpu_pool cores(2);
  const auto even = [](int i, const batch_row& row) {
    square(i, row);
    return i % 2 == 0 && i < 8;
  };
  auto stream = count(12) | fill_batches(batch_pool(numbers(4)), even, {.on = &cores});
  const std::vector<host_batch> all = block_on(loop, collect(std::move(stream)));
  REQUIRE(all.size() == 2);  // of the third nothing is left
  CHECK(all[1].size() == 2);
  CHECK(all[1].keys()[0] == "4");
  CHECK(all[1].keys()[1] == "6");
  CHECK(all[1].field("square").values<std::int64_t>()[1] == 36);
}

TEST_CASE("what the function throws comes after the batches before it", "[fill_batches]") {
  testing::virtual_loop loop;
  cpu_pool cores(2);
  const auto fails = [](int i, const batch_row& row) {
    if (i == 9) throw decode_error("item nine");
    square(i, row);
  };
  auto stream = count(100) | fill_batches(batch_pool(numbers(4)), fails, {.on = &cores});
  std::size_t batches = 0;
  const auto drive = [&]() -> task<void> {
    for (;;) {
      std::optional<host_batch> b = co_await stream.next();
      if (!b) co_return;
      ++batches;
    }
  };
  CHECK_THROWS_WITH(block_on(loop, drive()), Contains("item nine"));
  CHECK(batches == 2);
}

/// An item that knows where it was read.
class located {
 public:
  located(int n, origin where_from) : key("k" + std::to_string(n)), value(n), from(std::move(where_from)) {}
  std::string key;
  int value;
  origin from;
};

TEST_CASE("an error names the item that the function was given", "[fill_batches]") {
  testing::virtual_loop loop;
  cpu_pool cores(2);
  const auto items = []() -> async_generator<located> {
    const auto from = std::make_shared<const shard>("s3://b/a.tar");
    for (int i = 0; i < 20; ++i) {
      located item(i, origin(from, 512u * static_cast<unsigned>(i), 0));
      co_yield item;
    }
  };
  const auto fails = [](located item, const batch_row& row) {
    if (item.value == 9) throw decode_error("bad");
    square(item.value, row);
  };
  auto stream = items() | fill_batches(batch_pool(numbers(4)), fails, {.on = cores});
  CHECK_THROWS_WITH(block_on(loop, collect(std::move(stream))), "s3://b/a.tar at byte 4608, k9: bad");
  const auto foreign = [](located item, const batch_row& row) {
    if (item.value == 9) static_cast<void>(std::stoi("cat"));
    square(item.value, row);
  };
  auto other = items() | fill_batches(batch_pool(numbers(4)), foreign, {.on = cores});
  try {
    block_on(loop, collect(std::move(other)));
    FAIL("no error");
  } catch (const item_error& e) {
    CHECK(e.what() == std::string("s3://b/a.tar at byte 4608, k9: stoi"));
    CHECK_THROWS_AS(e.rethrow_nested(), std::invalid_argument);
  }
}

TEST_CASE("without a pool of its own the function runs on the runtime's", "[fill_batches]") {
  runtime rt({.threads = 3});
  std::mutex mutex;
  std::set<std::thread::id> threads;
  test::gate all_there;
  const auto writes = [&](int i, const batch_row& row) {
    bool last = false;
    {
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
      last = threads.size() == 3;
    }
    if (last) all_there.open();
    all_there.pass();  // three of them at once, and no more
    square(i, row);
  };
  std::size_t rows = 0;
  auto stages = count(100) | fill_batches(batch_pool(numbers(8)), writes, {.limit = 16});
  CHECK(stages.bounds().back().items == 3);
  for (const host_batch& b : rt.run(std::move(stages))) rows += b.size();
  CHECK(rows == 100);
  CHECK(threads.size() == 3);
  CHECK(threads.count(std::this_thread::get_id()) == 0);
}

TEST_CASE("wrong options are refused", "[fill_batches]") {
  cpu_pool cores(1);
  {
    testing::virtual_loop bare;
    auto stream = count(4) | fill_batches(batch_pool(numbers(4)), &square);
    CHECK_THROWS_WITH(block_on(bare, collect(std::move(stream))),
                      Contains("fill_batches: the function needs a pool to run on: .on = pool, or a runtime"));
  }
  CHECK_THROWS_AS(fill_batches(batch_pool(batch_layout()), &square, {.on = &cores}), configuration_error);
  // Every place of the limit has memory of its own from the start.
  for (std::size_t limit : {std::size_t(1'000'001), SIZE_MAX}) {
    CHECK_THROWS_WITH(fill_batches(batch_pool(numbers(4)), &square, {.on = &cores, .limit = limit}),
                      Contains("fill_batches: .limit is beyond a million"));
  }
  CHECK_NOTHROW(fill_batches(batch_pool(numbers(4)), &square, {.on = &cores, .limit = 1'000'000}));
}

TEST_CASE("from items to the device with one copy a batch, few batches, and dropped mid-way", "[fill_batches]") {
  for (int taken : {0, 1, 5, 50, 1000}) {
    INFO(taken);
    cpu_pool cores(2);
    const test::late_device device;
    device.control().after = 1;
    {
      testing::virtual_loop loop;
      batch_pool pool(numbers(16), device);
      auto stream =
          count(2000) | fill_batches(pool, &square, {.on = &cores, .limit = 8}) | to_device(device, {.slots = 2});
      const auto drive = [&]() -> task<std::size_t> {
        std::size_t seen = 0;
        for (int i = 0; i < taken; ++i) {
          std::optional<device_batch> b = co_await stream.next();
          if (!b) break;
          if (b->host_field("square").values<std::int64_t>()[1] != static_cast<std::int64_t>((seen + 1) * (seen + 1)))
            break;
          seen += b->size();
        }
        co_return seen;
      };
      CHECK(block_on(loop, drive()) == static_cast<std::size_t>(taken > 125 ? 2000 : taken * 16));
      CHECK(device.control().unpinned == 0);
      CHECK(pool.peak() <= 2 + 2 + 1);
      stream = {};
      loop.drain();
    }
    CHECK(device.control().wrong == "");
    CHECK(device.control().device.empty());
    CHECK(device.control().pinned.empty());
  }
}
