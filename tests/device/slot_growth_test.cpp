// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/to_device.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/device/device.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/device/batches.hpp"

using namespace millrace;
using namespace millrace::test;
using Catch::Matchers::Contains;

// Batches that are larger than those before them.
namespace {

// One batch of each size, in bytes.
async_generator<std::vector<std::size_t>> batches_of(std::vector<std::size_t> sizes) {
  for (const std::size_t size : sizes) {
    std::vector<std::size_t> one{size};
    co_yield give(one);
  }
}

class bytes_of {
 public:
  void operator()(std::size_t size, sample_writer& out) const {
    out.ragged("x", std::vector<std::uint8_t>(size, static_cast<std::uint8_t>(size)));
  }
};
constexpr std::size_t offsets = 16;  // after the values, at a multiple of 256

bool intact(const device_batch& b, std::size_t size) {
  b.synchronize();
  const auto* const data = b.field("x").as<std::uint8_t>();
  return b.field("x").elements() == size &&
         std::all_of(data, data + size, [&](std::uint8_t v) { return v == static_cast<std::uint8_t>(size); });
}

template <class D>
stream<device_batch> copied(std::vector<std::size_t> sizes, const D& device, const to_device_options& with) {
  return stream<std::vector<std::size_t>>(batches_of(std::move(sizes))) | to_device(device, with, bytes_of());
}

}  // namespace

TEST_CASE("slots grow with the batches, and the memory that was too small goes", "[slots]") {
  const late_device device;
  device.control().after = 0;
  {
    testing::virtual_loop loop;
    const std::vector<std::size_t> sizes{256, 256, 512, 512, 10240, 10240, 256, 300};
    auto stream = copied(sizes, device, {.slots = 2, .slot_bytes = 256 + offsets});
    CHECK(stream.bounds().back().bytes == 2 * 2 * (256 + offsets));  // on the device, and to copy from
    for (const std::size_t size : sizes) {
      std::deque<device_batch> one;
      block_on(loop, take(stream, one, 1));
      REQUIRE(one.size() == 1);
      CHECK(intact(one[0], size));
      CHECK(device.control().device.size() <= 2);
    }
    CHECK(device.control().device_made == 6);  // two of each size
    CHECK(device.control().unpinned == 0);
  }
  check_all_returned(device);
}

TEST_CASE("a batch that a consumer keeps stays where it is while the slots grow", "[slots]") {
  const late_device device;
  device.control().after = 0;
  {
    testing::virtual_loop loop;
    auto stream = copied({256, 1024, 4096, 8192}, device, {.slots = 2});
    std::deque<device_batch> kept, one;
    block_on(loop, take(stream, kept, 1));
    const void* const place = kept[0].field("x").data();
    for (const std::size_t size : {1024u, 4096u, 8192u}) {
      one.clear();
      block_on(loop, take(stream, one, 1));
      REQUIRE(one.size() == 1);
      CHECK(intact(one[0], size));
    }
    CHECK(kept[0].field("x").data() == place);
    CHECK(intact(kept[0], 256));
  }
  check_all_returned(device);
}

TEST_CASE("the next epoch finds slots that have grown", "[slots]") {
  const late_device device;
  device.control().after = 0;
  {
    testing::virtual_loop loop;
    const auto epoch = [&] {
      auto stream = copied({256, 1024, 4096, 300}, device, {.slots = 2});
      for (int i = 0; i < 4; ++i) {
        std::deque<device_batch> one;
        block_on(loop, take(stream, one, 1));
        REQUIRE(one.size() == 1);
      }
    };
    epoch();
    epoch();  // by its end both slots are large
    const std::size_t slots = device.control().device_made, pinned = device.control().pinned_made;
    CHECK(slots == 4);
    epoch();
    CHECK(device.control().device_made == slots);
    CHECK(device.control().pinned_made == pinned);
  }
  check_all_returned(device);
}

TEST_CASE("slots grow within the budget of the run, and no farther", "[slots][run]") {
  const auto train = [](std::vector<std::size_t> sizes, std::size_t spare) {
    to_device_options with{.slots = 2, .slot_bytes = 256 + offsets};
    auto pipeline = copied(std::move(sizes), host_device(), with);
    int batches = 0;
    for (device_batch& b : run(std::move(pipeline), {.budget = 2 * 2 * (256 + offsets) + spare})) {
      ++batches;
      b.release();
    }
    return batches;
  };
  CHECK(train({256, 256}, 0) == 2);
  CHECK_THROWS_WITH(train({256, 512}, 2 * 2 * 256 - 1),
                    Contains("a batch of 528 bytes does not fit the device slots of 272 bytes, and the budget leaves"));
  CHECK(train({256, 512}, 2 * 2 * 256) == 2);  // not half as large again, which would be beyond it
  CHECK_THROWS_AS(train({256, 512, 1024}, 2 * 2 * 256), configuration_error);
  CHECK(train({256, 512, 1024}, 2 * 2 * 768) == 3);
}

TEST_CASE("more items than the first batch had are a larger batch", "[slots]") {
  testing::virtual_loop loop;
  const auto source = []() -> async_generator<std::vector<std::int64_t>> {
    for (std::size_t n : {2u, 5u, 1u}) {
      std::vector<std::int64_t> items(n, 7);
      co_yield give(items);
    }
  };
  const auto number = [](std::int64_t n, sample_writer& out) { out.write("n", n); };
  SECTION("without a bound") {
    auto stream = millrace::stream<std::vector<std::int64_t>>(source()) | to_device(host_device(), {}, number);
    std::deque<device_batch> got;
    block_on(loop, take(stream, got));
    REQUIRE(got.size() == 3);
    CHECK(labels_of(got[1].field("n")) == "7 7 7 7 7 ");
    CHECK(labels_of(got[2].field("n")) == "7 ");
  }
  SECTION("beyond the bound that was stated") {
    auto stream =
        millrace::stream<std::vector<std::int64_t>>(source()) | to_device(host_device(), {.samples = 4}, number);
    std::deque<device_batch> got;
    CHECK_THROWS_WITH(block_on(loop, take(stream, got)), Contains("a batch of 5 samples came where the largest has 4"));
  }
}
