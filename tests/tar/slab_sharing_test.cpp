// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/tar/reader.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <millrace/memory/slab_pool.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"

// Whom the slabs belong to while the members of a walk are put into one entry.

namespace {

using namespace millrace;
using test::raw_member;

bytes slab_with(slab_pool& pool, const std::string& text) {
  writable_bytes slab = pool.acquire();
  std::copy(text.begin(), text.end(), slab.data());
  return slab.share(0, text.size());
}

std::string three_members(char first) {
  std::string text;
  for (int i = 0; i < 3; ++i) text += raw_member({}, std::string(600, static_cast<char>(first + i)));
  return text;
}

}  // namespace

TEST_CASE("tar walk keeps a slab as long as the entry shows a body in it, and no longer") {
  slab_pool pool(16384);
  tar::reader reader("x.tar");
  tar::entry e;
  reader.feed(slab_with(pool, three_members('a')));
  for (char body : {'a', 'b', 'c'}) {
    REQUIRE(reader.next(e));
    CHECK(e.body.view() == std::string(600, body));
  }
  CHECK(!reader.next(e));
  reader.feed(slab_with(pool, three_members('d') + test::end_block()));
  REQUIRE(reader.next(e));
  CHECK(pool.live() == 1);  // the first slab is back
  CHECK(e.body.view() == std::string(600, 'd'));
  REQUIRE(reader.next(e));
  REQUIRE(reader.next(e));
  CHECK(!reader.next(e));
  CHECK(reader.done());
  e = tar::entry();
  CHECK(pool.live() == 0);
}

TEST_CASE("tar bodies that are copied or moved out of the entry stay as they were") {
  slab_pool pool(16384);
  tar::entry e;
  std::vector<bytes> copies;
  std::vector<bytes> moved;
  {
    tar::reader reader("x.tar");
    reader.feed(slab_with(pool, three_members('a') + three_members('d') + test::end_block()));
    for (int i = 0; i < 6; ++i) {
      REQUIRE(reader.next(e));
      if (i < 3) {
        copies.push_back(e.body);
      } else {
        moved.push_back(std::move(e.body));
      }
    }
    CHECK(!reader.next(e));
  }
  e = tar::entry();
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(copies[i].view() == std::string(600, static_cast<char>('a' + i)));
    CHECK(moved[i].view() == std::string(600, static_cast<char>('d' + i)));
  }
  CHECK(pool.live() == 1);
  copies.clear();
  CHECK(pool.live() == 1);
  moved.clear();
  CHECK(pool.live() == 0);
}

TEST_CASE("tar members without a body let go of the slab of the one before") {
  slab_pool pool(16384);
  tar::reader reader("x.tar");
  tar::entry e;
  reader.feed(slab_with(pool, raw_member({}, "abc")));
  REQUIRE(reader.next(e));
  CHECK(!reader.next(e));
  reader.feed(bytes::copy(test::header_block{.name = "empty"}.text()));
  REQUIRE(reader.next(e));
  CHECK(e.body.empty());
  CHECK(pool.live() == 0);
}

TEST_CASE("tar headers at the end of a piece are read before the piece is let go") {
  const std::string text = test::pax_header(test::pax_record("mtime", "1.5")) + raw_member({.name = "a"}, "abc") +
                           raw_member({.name = "b"}, "") + raw_member({.name = "dir/", .type = '5'}, "") +
                           raw_member({.name = "c"}, std::string(512, 'c')) + test::end_block();
  tar::reader reader("x.tar");
  for (std::size_t at = 0; at < text.size(); at += 512) reader.feed(bytes::copy(text.substr(at, 512)));
  tar::entry e;
  for (const char* name : {"a", "b", "dir/", "c"}) {
    REQUIRE(reader.next(e));
    CHECK(e.name == name);
  }
  CHECK(e.body.view() == std::string(512, 'c'));
  CHECK(!reader.next(e));
  CHECK(reader.done());
}
