// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/memory/pixel_pool.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>

#include "tests/support/catch.hpp"

using millrace::KiB;
using millrace::MiB;
using millrace::pixel_buffer;
using millrace::pixel_pool;

static_assert(!std::is_copy_constructible_v<pixel_pool> && !std::is_move_constructible_v<pixel_pool>);

TEST_CASE("the memory of a pixel buffer is used again, the last one first") {
  pixel_pool pool;
  std::optional<pixel_buffer> a = pool.acquire(100 * KiB);
  std::optional<pixel_buffer> b = pool.acquire(100 * KiB);
  CHECK(a->size() == 100 * KiB);
  std::memset(a->data(), 1, a->size());
  const std::uint8_t* const first = a->data();
  const std::uint8_t* const second = b->data();
  CHECK(first != second);
  CHECK(pool.idle_bytes() == 0);
  a.reset();
  b.reset();
  CHECK(pool.idle_bytes() >= 200 * KiB);
  const pixel_buffer c = pool.acquire(100 * KiB);
  CHECK(c.data() == second);
  const pixel_buffer d = pool.acquire(100 * KiB - 100);  // of the same class
  CHECK(d.data() == first);
  CHECK(d.size() == 100 * KiB - 100);
  CHECK(pool.idle_bytes() == 0);
}

TEST_CASE("a pixel buffer occupies at least its size, and a quarter more at most") {
  std::vector<std::size_t> sizes;
  for (std::size_t power = 4 * KiB; power <= 32 * MiB; power *= 2) {
    for (std::size_t quarter = 4; quarter < 8; ++quarter) {
      for (std::size_t size = power / 4 * quarter - 1; size <= power / 4 * quarter + 1; ++size) {
        if (size > 4 * KiB) sizes.push_back(size);
      }
    }
  }
  for (const std::size_t size : sizes) {
    CAPTURE(size);
    pixel_pool pool(256 * MiB);
    {
      pixel_buffer b = pool.acquire(size);
      b[0] = 1;
      b[size - 1] = 2;
    }
    CHECK(pool.idle_bytes() >= size);
    CHECK(pool.idle_bytes() <= size + size / 4 + 1);
    const std::size_t idle = pool.idle_bytes();
    pool.acquire(idle);  // the largest of the class: it takes the same memory
    CHECK(pool.idle_bytes() == idle);
  }
}

TEST_CASE("idle memory is bounded, and the oldest goes first") {
  pixel_pool pool(1 * MiB);
  {
    std::vector<pixel_buffer> many;
    for (int i = 0; i < 40; ++i) many.push_back(pool.acquire(100 * KiB));
    CHECK(pool.idle_bytes() == 0);
  }
  CHECK(pool.idle_bytes() <= 1 * MiB);
  CHECK(pool.idle_bytes() > 800 * KiB);

  // Of another class: each one that comes back drives out some of those.
  std::vector<pixel_buffer> others;
  for (int i = 0; i < 3; ++i) others.push_back(pool.acquire(300 * KiB));
  std::vector<const std::uint8_t*> where;
  while (!others.empty()) {
    where.push_back(others.back().data());
    others.pop_back();
    CHECK(pool.idle_bytes() <= 1 * MiB);
  }
  for (int i = 2; i >= 0; --i) {
    others.push_back(pool.acquire(300 * KiB));
    CHECK(others.back().data() == where[static_cast<std::size_t>(i)]);
  }
  CHECK(pool.idle_bytes() < 200 * KiB);
}

TEST_CASE("what is too small or too large to be kept comes from the heap and goes back there") {
  pixel_pool pool(1 * MiB);
  pool.acquire(4 * KiB);
  pool.acquire(1);
  CHECK(pool.acquire(0).data() == nullptr);
  pixel_buffer large = pool.acquire(1 * MiB + 1);
  large[1 * MiB] = 1;
  large = pixel_buffer();
  CHECK(pool.idle_bytes() == 0);
  pool.acquire(1 * MiB);
  CHECK(pool.idle_bytes() == 1 * MiB);
  pool.acquire(1 * MiB - 1);
  CHECK(pool.idle_bytes() == 1 * MiB);

  pixel_pool nothing(0);
  nothing.acquire(100 * KiB)[100 * KiB - 1] = 1;
  CHECK(nothing.idle_bytes() == 0);
}

TEST_CASE("more memory than there can be is an error, with any bound") {
  pixel_pool pool(SIZE_MAX);
  CHECK_THROWS_AS(pool.acquire(SIZE_MAX), std::bad_alloc);
  CHECK_THROWS_AS(pool.acquire(SIZE_MAX - 8), std::bad_alloc);
#if !MILLRACE_ASAN && !MILLRACE_TSAN  // their malloc ends the program instead
  CHECK_THROWS_AS(pool.acquire(SIZE_MAX / 4), std::bad_alloc);
  CHECK_THROWS_AS(pool.acquire(SIZE_MAX / 4 + 1), std::bad_alloc);
#endif
  CHECK(pool.idle_bytes() == 0);
}

TEST_CASE("pixel buffers may outlive their pool, and end on any thread") {
  std::vector<pixel_buffer> left;
  {
    pixel_pool pool;
    pool.acquire(50 * KiB);  // idle when the pool ends
    for (std::size_t i = 1; i <= 4; ++i) left.push_back(pool.acquire(i * 20 * KiB));
    for (pixel_buffer& b : left) std::memset(b.data(), 5, b.size());
  }
  for (const pixel_buffer& b : left) CHECK(b[b.size() - 1] == 5);
  std::thread([last = std::move(left.back())] { static_cast<void>(last); }).join();
  left.clear();
}

TEST_CASE("pixel buffers come and go on several threads") {
  // Two threads make buffers, two others check and drop them; the pool ends while some are still under way.
  constexpr int each = 400;
  std::mutex mutex;
  std::deque<pixel_buffer> queue;
  std::atomic<int> wrong{0};
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  {
    pixel_pool pool(2 * MiB);
    std::vector<std::thread> makers;
    for (unsigned t = 0; t < 2; ++t) {
      makers.emplace_back([&, t] {
        for (unsigned i = 0; i < each; ++i) {
          pixel_buffer b = pool.acquire(5000 + (i * 7919 + t * 104729) % (200 * KiB));
          std::memset(b.data(), static_cast<int>(i & 0xff), b.size());
          std::lock_guard lock(mutex);
          queue.push_back(std::move(b));
        }
      });
    }
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        while (taken < 2 * each) {
          pixel_buffer b;
          {
            std::lock_guard lock(mutex);
            if (!queue.empty()) {
              b = std::move(queue.front());
              queue.pop_front();
            }
          }
          if (b.empty()) {
            std::this_thread::yield();
            continue;
          }
          const std::uint8_t filling = b[0];
          if (std::any_of(b.begin(), b.end(), [&](std::uint8_t x) { return x != filling; })) ++wrong;
          ++taken;
        }
      });
    }
    for (std::thread& t : makers) t.join();
    CHECK(pool.idle_bytes() <= 2 * MiB);
  }
  for (std::thread& t : threads) t.join();
  CHECK(taken == 2 * each);
  CHECK(wrong == 0);
}

#if MILLRACE_ASAN
TEST_CASE("idle memory is poisoned, and so is what a buffer does not show") {
  pixel_pool pool;
  const std::uint8_t* first = nullptr;
  {
    const pixel_buffer a = pool.acquire(100000);
    first = a.data();
    CHECK(__asan_region_is_poisoned(const_cast<std::uint8_t*>(first), a.size()) == nullptr);
    CHECK(__asan_address_is_poisoned(first + a.size()) == 1);
  }
  CHECK(__asan_address_is_poisoned(first) == 1);
  const pixel_buffer b = pool.acquire(99001);
  CHECK(b.data() == first);
  CHECK(__asan_region_is_poisoned(const_cast<std::uint8_t*>(first), b.size()) == nullptr);
  CHECK(__asan_address_is_poisoned(first + 99001) == 1);
}
#endif
