// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/detail/compactor.hpp>

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

constexpr std::size_t slab = 4096;

/// `count` slices of `size` bytes, `each` of them from every slab; slice n is full of the character n % 64.
async_generator<bytes> slices(slab_pool pool, int count, std::size_t size, int each) {
  for (int n = 0; n < count;) {
    writable_bytes memory = pool.acquire();
    for (int i = 0; i < each; ++i) std::memset(memory.data() + i * size, (n + i) % 64, size);
    const bytes whole = memory.share(0, slab);
    memory = writable_bytes();
    for (int i = 0; i < each && n < count; ++i, ++n) {
      bytes one = whole.slice(i * size, size);
      co_yield give(one);
    }
  }
}

bool is_slice(const bytes& b, int n, std::size_t size) { return b.view() == std::string(size, char(n % 64)); }

/// Slabs that sparse slices (one of 16 bytes in each) keep, however many of them are held.
constexpr std::size_t few = 3;

}  // namespace

TEST_CASE("a batch of slices with a slab each keeps few slabs") {
  testing::virtual_loop loop;
  const slab_pool pool(slab);
  auto batches = slices(pool, 100, 16, 1) | batch(50);
  const auto body = [&]() -> task<void> {
    std::vector<std::vector<bytes>> held;
    while (std::optional<std::vector<bytes>> b = co_await batches.next()) held.push_back(std::move(*b));
    const bool all = held.size() == 2 && held[0].size() == 50 && held[1].size() == 50;
    CHECK(all);
    for (int n = 0; n < 100; ++n) CHECK(is_slice(held[std::size_t(n) / 50][std::size_t(n) % 50], n, 16));
    CHECK(pool.live() <= few);
  };
  block_on(loop, body());
  CHECK(pool.live() == 0);
}

TEST_CASE("slices that share their slabs are not copied") {
  testing::virtual_loop loop;
  const slab_pool pool(slab);
  auto batches = slices(pool, 64, 512, 8) | batch(64);
  const auto body = [&]() -> task<void> {
    const std::optional<std::vector<bytes>> b = co_await batches.next();
    for (int n = 0; n < 64; ++n) CHECK(is_slice((*b)[std::size_t(n)], n, 512));
    for (const bytes& one : *b) CHECK(one.retained() == slab);
    CHECK(pool.live() == 8);
  };
  block_on(loop, body());
}

TEST_CASE("a stream that becomes sparse is compacted, and not any more when it is dense again") {
  slab_pool pool(slab);
  detail::compactor<bytes> kept;
  std::vector<bytes> held;
  // Holds `each` slices of `size` bytes of a slab; how many of them were copied.
  const auto hold = [&](std::size_t size, int each) {
    writable_bytes memory = pool.acquire();
    const bytes whole = memory.share(0, slab);
    int copied = 0;
    for (int i = 0; i < each; ++i) {
      bytes one = whole.slice(std::size_t(i) * size, size);
      kept(one);
      if (one.memory() != whole.memory()) ++copied;
      held.push_back(std::move(one));
    }
    return copied;
  };
  const auto copied = [&](int slabs, std::size_t size, int each) {
    int sum = 0;
    for (int i = 0; i < slabs; ++i) sum += hold(size, each);
    return sum;
  };
  CHECK(copied(20, 512, 8) == 0);
  CHECK(copied(20, 16, 2) >= 2 * 9);  // until then they share their slabs' weight with the dense ones
  CHECK(copied(20, 16, 2) == 2 * 20);
  CHECK(copied(20, 512, 7) < 7 * 10);  // the first dense ones pay for those before
  CHECK(copied(20, 512, 7) == 0);
  CHECK(copied(20, 4096, 1) == 0);  // all of a slab: nothing to gain
  // A slab that was given back and filled again is another one.
  held.clear();
  pool = slab_pool(slab);
  CHECK(copied(20, 16, 1) >= 11);
  CHECK(copied(4000, 16, 1) == 4000);  // or what was shown of the others would add up until the stream seems dense
  CHECK(pool.live() <= 9);
  CHECK(copied(20, 512, 8) < 8 * 10);
  CHECK(copied(20, 512, 8) == 0);
}

TEST_CASE("slices that share their slabs are not copied in whatever order they come") {
  testing::virtual_loop loop;
  const slab_pool pool(slab);
  // Results are compacted as their tasks end, which is not the order in which they are delivered.
  const auto late = [n = 0](bytes b) mutable -> task<bytes> {
    const int turns = ++n % 3 == 0 ? 6 : 2;
    return [](bytes same, int left) -> task<bytes> {
      while (left-- > 0) co_await yield_now();
      co_return same;
    }(std::move(b), turns);
  };
  auto source = slices(pool, 640, 256, 16) | map_concurrent(late, {.limit = 8});
  const auto body = [&]() -> task<void> {
    int copied = 0;
    for (int n = 0; n < 640; ++n) {
      std::optional<bytes> one = co_await source.next();
      if (one->retained() != slab) ++copied;
      CHECK(is_slice(*one, n, 256));
    }
    CHECK(copied == 0);
  };
  block_on(loop, body());
}

TEST_CASE("slices of eight sources in turn are not copied, once each has shown some of its slab") {
  slab_pool pool(slab);
  detail::compactor<bytes> kept;
  int copied = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<bytes> slabs;
    for (int i = 0; i < 8; ++i) slabs.push_back(pool.acquire().share(0, slab));
    for (std::size_t at = 0; at < slab; at += 256) {
      for (const bytes& s : slabs) {
        bytes one = s.slice(at, 256);
        kept(one);
        if (one.memory() != s.memory()) ++copied;
      }
    }
  }
  CHECK(copied > 0);
  CHECK(copied < 64);  // of 2560, and all in the first half of the first round
}

TEST_CASE("slices of many sources in turn are not copied where the source counts what it gives") {
  constexpr std::size_t open = 40;
  constexpr std::size_t each = 256;
  slab_pool pool(slab);
  detail::compactor<bytes> kept;
  std::vector<bytes> slabs;
  for (std::size_t i = 0; i < open; ++i) slabs.push_back(pool.acquire().share(0, slab));
  std::uint64_t total = 0;
  std::size_t next = 0;  // slice
  // So many slices are given, of which every `show`th comes; how many were copied.
  const auto copied = [&](int slices, int show) {
    int sum = 0;
    for (int i = 0; i < slices; ++i, ++next) {
      bytes& whole = slabs[next % open];
      const std::size_t at = next / open * each % slab;
      if (at == 0) whole = pool.acquire().share(0, slab);
      bytes one = whole.slice(at, each);
      total += each;
      whole.set_given(total);
      if (i % show != 0) continue;
      kept(one);
      if (one.memory() != whole.memory()) ++sum;
    }
    return sum;
  };
  CHECK(copied(4'000, 1) == 0);
  CHECK(copied(40'000, 50) > 800 - 40);  // less than half comes: as before
  CHECK(copied(40'000, 50) == 800);
  CHECK(copied(4'000, 1) < 1'000);
  CHECK(copied(4'000, 1) == 0);
  SECTION("slices of sources that are not counted together are judged by their slabs") {
    int sum = 0;
    for (int i = 0; i < 1'000; ++i) {
      const bytes whole = pool.acquire().share(0, slab);
      bytes one = whole.slice(0, 16);
      whole.set_given(i % 2 == 0 ? 1 : std::uint64_t(1) << 40);
      kept(one);
      if (one.memory() != whole.memory()) ++sum;
    }
    CHECK(sum > 900);
  }
}

TEST_CASE("buffer and map_concurrent keep few slabs of sparse slices") {
  testing::virtual_loop loop;
  const slab_pool pool(slab);
  SECTION("buffer") {
    auto source = slices(pool, 60, 16, 1) | buffer({.items = 40});
    const auto body = [&]() -> task<void> {
      std::optional<bytes> first = co_await source.next();
      CHECK(is_slice(*first, 0, 16));
      for (int i = 0; i < 200; ++i) co_await yield_now();
      CHECK(pool.live() <= few + 1);  // one is on its way
      for (int n = 1; n < 60; ++n) {
        std::optional<bytes> one = co_await source.next();
        CHECK(is_slice(*one, n, 16));
      }
    };
    block_on(loop, body());
  }
  SECTION("map_concurrent, inputs and results") {
    auto same = [](bytes b) -> task<bytes> { co_return b; };
    auto source = slices(pool, 60, 16, 1) | map_concurrent(same, {.limit = 40});
    const auto body = [&]() -> task<void> {
      std::optional<bytes> first = co_await source.next();
      CHECK(is_slice(*first, 0, 16));
      for (int i = 0; i < 200; ++i) co_await yield_now();
      CHECK(pool.live() <= few + 1);
      for (int n = 1; n < 60; ++n) {
        std::optional<bytes> one = co_await source.next();
        CHECK(is_slice(*one, n, 16));
      }
    };
    block_on(loop, body());
  }
}
