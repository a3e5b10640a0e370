// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/memory/bytes.hpp>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/support/catch.hpp"

using millrace::bytes;
using millrace::writable_bytes;

static_assert(std::is_nothrow_copy_constructible_v<bytes>);
static_assert(std::is_nothrow_move_constructible_v<bytes>);
static_assert(std::is_nothrow_move_assignable_v<bytes>);

namespace {

// A block whose end can be seen.
struct watched_block {
  millrace::detail::block block;
  char memory[64] = {};
  std::atomic<int> recycled{0};

  watched_block() {
    block.data = memory;
    block.capacity = sizeof memory;
    block.recycle = [](millrace::detail::block* b) noexcept {
      reinterpret_cast<watched_block*>(b)->recycled.fetch_add(1);  // block is the first member
    };
  }
};
static_assert(std::is_standard_layout_v<watched_block>);

}  // namespace

TEST_CASE("bytes copies text into memory of its own") {
  std::string text = "hello";
  const bytes b = bytes::copy(text);
  text[0] = 'x';
  CHECK(b.view() == "hello");
  CHECK(b.size() == 5);
  CHECK_FALSE(b.empty());
  CHECK(b.retained() == 5);
  CHECK(std::string(b.begin(), b.end()) == "hello");
}

TEST_CASE("empty bytes hold nothing") {
  const bytes none;
  CHECK(none.empty());
  CHECK(none.size() == 0);
  CHECK(none.view().empty());
  CHECK(none.begin() == none.end());
  CHECK(none.retained() == 0);
  CHECK(bytes::copy("").retained() == 0);
  CHECK(none.slice(0, 0).empty());
  CHECK(none.compact().empty());
  const bytes text = bytes::copy("text");
  CHECK(text.slice(4, 0).retained() == 0);  // an empty slice keeps nothing alive
}

TEST_CASE("slices share the memory and keep it alive") {
  watched_block w;
  std::string("0123456789").copy(w.memory, 10);
  {
    bytes inner;
    {
      const bytes all(&w.block, w.memory, 10);
      const bytes middle = all.slice(2, 6);
      CHECK(middle.view() == "234567");
      inner = middle.slice(1, 3);
      CHECK(middle.slice(6, 0).empty());
    }
    CHECK(inner.view() == "345");
    CHECK(inner.data() == w.memory + 3);
    CHECK(inner.retained() == 64);
    CHECK(w.recycled == 0);
    CHECK(w.block.refs == 1);
  }
  CHECK(w.recycled == 1);
}

TEST_CASE("copies, moves and assignments count references") {
  watched_block w;
  {
    bytes a(&w.block, w.memory, 8);
    bytes b = a;
    CHECK(w.block.refs == 2);
    bytes c = std::move(a);
    CHECK(w.block.refs == 2);
    CHECK(a.empty());
    CHECK(a.retained() == 0);
    a = b;
    CHECK(w.block.refs == 3);
    bytes& same = a;
    a = same;
    CHECK(w.block.refs == 3);
    CHECK(a.size() == 8);
    b = bytes();
    CHECK(w.block.refs == 2);
    c = std::move(a);
    CHECK(w.block.refs == 1);
    CHECK(a.retained() == 0);  // moved from: keeps nothing, not even what was in c
  }
  CHECK(w.recycled == 1);
}

TEST_CASE("a slice that wanders over its memory touches no count") {
  watched_block w;
  watched_block other;
  {
    const bytes whole(&w.block, w.memory, 64);
    bytes part;
    part.assign_slice(whole, 4, 8);
    CHECK(w.block.refs == 2);
    CHECK(part.data() == w.memory + 4);
    CHECK(part.size() == 8);
    part.assign_slice(whole, 60, 4);
    CHECK(w.block.refs == 2);
    CHECK(part.data() == w.memory + 60);
    CHECK(part.size() == 4);
    part.assign_slice(part, 1, 2);
    CHECK(w.block.refs == 2);
    CHECK(part.data() == w.memory + 61);
    CHECK(part.size() == 2);
    part.assign_slice(bytes(&other.block, other.memory, 64), 0, 64);
    CHECK(w.block.refs == 1);
    CHECK(other.recycled == 0);
    CHECK(part.data() == other.memory);
    part.assign_slice(whole, 4, 8);
    CHECK(other.recycled == 1);
    part.assign_slice(whole, 5, 0);
    CHECK(w.block.refs == 1);
    CHECK(part.retained() == 0);  // an empty slice keeps nothing
    part.assign_slice(bytes(), 0, 0);
    CHECK(part.data() == nullptr);
  }
  CHECK(w.recycled == 1);
}

TEST_CASE("compact copies a slice that shows less than half of its memory") {
  const bytes big = bytes::copy(std::string(100, 'x'));
  const bytes half = big.slice(0, 50);
  CHECK(half.compact().data() == half.data());
  const bytes less = big.slice(3, 49);
  const bytes own = less.compact();
  CHECK(own.data() != less.data());
  CHECK(own.retained() == 49);
  CHECK(own.view() == less.view());
}

TEST_CASE("an allocation whose size overflows is refused") {
  CHECK_THROWS_AS(millrace::detail::allocate_block(std::numeric_limits<std::size_t>::max()), std::bad_alloc);
  CHECK_THROWS_AS(millrace::detail::allocate_block(std::numeric_limits<std::size_t>::max() - 16), std::bad_alloc);
}

TEST_CASE("a slice is a span of bytes") {
  const bytes whole = bytes::copy("a\xff text");
  const std::span<const std::byte> shown = whole.slice(1, 2).span();
  REQUIRE(shown.size() == 2);
  CHECK(shown[0] == std::byte(0xff));
  CHECK(static_cast<const void*>(shown.data()) == whole.data() + 1);
  CHECK(bytes().span().empty());
}

TEST_CASE("slices may be copied and dropped on many threads") {
  watched_block w;
  {
    const bytes shared(&w.block, w.memory, 64);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([shared] {
        for (std::size_t i = 0; i < 5000; ++i) {
          bytes copy = shared;
          bytes part = copy.slice(i % 32, 16);
          copy = std::move(part);
        }
      });
    }
    for (std::thread& t : threads) t.join();
  }
  CHECK(w.recycled == 1);
}

static_assert(!std::is_copy_constructible_v<writable_bytes>);
static_assert(std::is_nothrow_move_constructible_v<writable_bytes>);
static_assert(std::is_nothrow_move_assignable_v<writable_bytes>);

TEST_CASE("an empty buffer has no memory") {
  writable_bytes none;
  CHECK_FALSE(none);
  CHECK(none.data() == nullptr);
  CHECK(none.capacity() == 0);
  CHECK(none.share(0, 0).empty());
}

TEST_CASE("what is shared outlives the buffer, and the owner writes after it") {
  bytes first;
  bytes second;
  {
    writable_bytes b = writable_bytes::allocate(16);
    REQUIRE(b);
    CHECK(b.capacity() == 16);
    std::memcpy(b.data(), "abcdef", 6);
    first = b.share(0, 6);
    std::memcpy(b.data() + 6, "ghij", 4);
    second = b.share(4, 6);
    CHECK(b.share(16, 0).empty());
  }
  CHECK(first.view() == "abcdef");
  CHECK(second.view() == "efghij");
  CHECK(first.retained() == 16);
}

TEST_CASE("nothing outside of a buffer is shared") {
  writable_bytes b = writable_bytes::allocate(16);
  writable_bytes none;
  CHECK_THROWS_WITH(b.share(17, 0), "writable_bytes::share outside the buffer");
  CHECK_THROWS_AS(b.share(0, 17), millrace::usage_error);
  CHECK_THROWS_AS(b.share(9, 8), millrace::usage_error);
  CHECK_THROWS_AS(b.share(16, SIZE_MAX), millrace::usage_error);
  CHECK_THROWS_AS(b.share(SIZE_MAX, 2), millrace::usage_error);
  CHECK_THROWS_AS(none.share(0, 1), millrace::usage_error);
  CHECK(b.share(15, 1).size() == 1);
}

TEST_CASE("a buffer that was moved from is empty and keeps no memory") {
  int recycled[2] = {0, 0};
  struct watched : millrace::detail::block {
    int* count = nullptr;
  };
  watched blocks[2];
  char memory[8];
  for (int i = 0; i < 2; ++i) {
    blocks[i].data = memory;
    blocks[i].capacity = sizeof memory;
    blocks[i].count = &recycled[i];
    blocks[i].recycle = [](millrace::detail::block* b) noexcept { ++*static_cast<watched*>(b)->count; };
  }
  writable_bytes a(&blocks[0]);
  writable_bytes b(&blocks[1]);
  a = std::move(b);
  CHECK(recycled[0] == 1);  // at once, not when b dies
  CHECK_FALSE(b);
  CHECK(recycled[1] == 0);
  writable_bytes c = std::move(a);
  CHECK_FALSE(a);
  c = writable_bytes();
  CHECK(recycled[1] == 1);
}
