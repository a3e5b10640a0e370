// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/memory/bytes.hpp>

#include "tests/support/catch.hpp"

#include <cstdint>
#include <cstring>
#include <type_traits>

using millrace::bytes;
using millrace::writable_bytes;

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
