// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/shards/range_reader.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

/// Any range of any object: its bytes are 'x'.
class endless_store final : public storage {
 public:
  bool serves(std::string_view) const noexcept override { return true; }
  task<part> read(shard, std::string, std::uint64_t, std::size_t length, slab_pool slabs) const override {
    writable_bytes slab = slabs.acquire();
    std::fill_n(slab.data(), std::min<std::size_t>(length, 64), 'x');
    compared.push_back(slabs.is_compared());
    part p;
    p.data = slab.share(0, length);
    co_return std::move(p);
  }
  mutable std::vector<bool> compared;  // of each read's slabs
};

}  // namespace

TEST_CASE("ranges of different lengths use the same memory in turn") {
  testing::virtual_loop loop;
  const auto read = [](std::size_t* blocks) -> task<void> {
    detail::range_reader reader(std::make_shared<const endless_store>());
    shard object("mem:a");
    std::vector<std::uintptr_t> seen;  // places of 8 MiB
    for (const std::size_t length : {4 * MiB, 3 * MiB, 8 * MiB, 100 * KiB, 1 * MiB, 64 * KiB, 5 * MiB, 2 * MiB}) {
      const storage::part p = co_await reader.read(object, 0, length);
      const auto at = reinterpret_cast<std::uintptr_t>(p.data.data());
      const auto is_in = [&](std::uintptr_t s) { return at >= s && at - s < 8 * MiB; };
      const bool known = std::any_of(seen.begin(), seen.end(), is_in);
      if (!known) seen.push_back(at);
    }
    *blocks = seen.size();
  };
  std::size_t blocks = 0;
  block_on(loop, read(&blocks));
  CHECK(blocks == 1);
}

TEST_CASE("the CRC of a range is wanted by callers that bring the memory") {
  testing::virtual_loop loop;
  const auto store = std::make_shared<const endless_store>();
  const auto read = [](std::shared_ptr<const storage> from) -> task<void> {
    detail::range_reader reader(std::move(from));
    shard object("mem:a");
    const slab_pool slabs(64 * KiB);
    co_await reader.read(object, 0, 1000, slabs);
    co_await reader.read(object, 0, 1000);
    reader.sum_blocks();
    co_await reader.read(object, 0, 1000);
  };
  block_on(loop, read(store));
  CHECK(store->compared == std::vector<bool>{true, false, false});
}
