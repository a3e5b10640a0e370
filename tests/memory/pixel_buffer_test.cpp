// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/memory/pixel_pool.hpp>

#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>

#include "tests/support/catch.hpp"

using millrace::pixel_buffer;
using millrace::writable_bytes;

static_assert(std::is_nothrow_move_constructible_v<pixel_buffer>);
static_assert(std::is_nothrow_move_assignable_v<pixel_buffer>);
static_assert(std::is_constructible_v<std::span<std::uint8_t>, pixel_buffer&>);
static_assert(std::is_constructible_v<std::span<const std::uint8_t>, const pixel_buffer&>);
static_assert(!std::is_constructible_v<std::span<std::uint8_t>, const pixel_buffer&>);

namespace {

pixel_buffer counted_up(std::size_t size) {
  pixel_buffer b = pixel_buffer::allocate(size);
  for (std::size_t i = 0; i < size; ++i) b[i] = static_cast<std::uint8_t>(i);
  return b;
}

}  // namespace

TEST_CASE("a pixel buffer without bytes has no memory") {
  const std::vector<std::uint8_t> none;
  for (const pixel_buffer& b : {pixel_buffer(), pixel_buffer::allocate(0), pixel_buffer(none)}) {
    CHECK(b.empty());
    CHECK(b.size() == 0);
    CHECK(b.data() == nullptr);
    CHECK(b.begin() == b.end());
    CHECK(b == pixel_buffer());
    const pixel_buffer copy = b;
    CHECK(copy.empty());
  }
}

TEST_CASE("a pixel buffer that is larger than its memory is refused") {
  CHECK_NOTHROW(pixel_buffer(writable_bytes::allocate(8), 8));
  try {
    const pixel_buffer b(writable_bytes::allocate(8), 9);
    FAIL("no exception");
  } catch (const millrace::usage_error& e) {
    CHECK(std::string(e.what()) == "a pixel_buffer is larger than its memory");
  }
}

TEST_CASE("a pixel buffer is a range of its bytes") {
  pixel_buffer b = counted_up(5);
  CHECK(b.size() == 5);
  CHECK_FALSE(b.empty());
  int sum = 0;
  for (const std::uint8_t x : std::as_const(b)) sum += x;
  CHECK(sum == 10);
  for (std::uint8_t& x : b) x = 7;
  CHECK(std::as_const(b)[4] == 7);
  const std::span<std::uint8_t> view(b);
  CHECK(view.data() == b.data());
  CHECK(view.size() == 5);
}

TEST_CASE("a copy of a pixel buffer has memory of its own, and the one that was moved from none") {
  pixel_buffer a = counted_up(100);
  pixel_buffer copy = a;
  CHECK(copy.data() != a.data());
  CHECK(copy == a);
  copy[99] = 0;
  CHECK_FALSE(copy == a);
  CHECK_FALSE(counted_up(99) == a);

  const std::uint8_t* const where = a.data();
  pixel_buffer b = std::move(a);
  CHECK(b.data() == where);
  CHECK(a.size() == 0);
  CHECK(a.data() == nullptr);
  a = std::move(b);
  CHECK(a.data() == where);
  CHECK(a.size() == 100);
  CHECK(b.empty());
  pixel_buffer& same = a;
  a = same;
  CHECK(a == counted_up(100));
}

TEST_CASE("memory that is assigned over goes at once") {
  struct watched : millrace::detail::block {
    int recycled = 0;
  };
  watched owner;
  char memory[8];
  owner.data = memory;
  owner.capacity = sizeof memory;
  owner.recycle = [](millrace::detail::block* b) noexcept { ++static_cast<watched*>(b)->recycled; };
  pixel_buffer a(writable_bytes(&owner), 8);
  pixel_buffer b;
  a = std::move(b);
  CHECK(owner.recycled == 1);
}

TEST_CASE("a pixel buffer takes a vector over without a copy") {
  std::vector<std::uint8_t> v{1, 2, 3};
  const std::uint8_t* const where = v.data();
  pixel_buffer b = std::move(v);
  CHECK(b.data() == where);
  CHECK(b.size() == 3);
  CHECK(b[2] == 3);
  pixel_buffer moved = std::move(b);
  CHECK(moved.data() == where);
  CHECK(moved == pixel_buffer(std::vector<std::uint8_t>{1, 2, 3}));
  moved = std::vector<std::uint8_t>(2, 9);
  CHECK(moved.size() == 2);
  CHECK(moved[1] == 9);
}

TEST_CASE("more bytes than there can be are no memory") {
  CHECK_THROWS_AS(pixel_buffer::allocate(SIZE_MAX), std::bad_alloc);
  CHECK_THROWS_AS(pixel_buffer::allocate(SIZE_MAX - 8), std::bad_alloc);
}
