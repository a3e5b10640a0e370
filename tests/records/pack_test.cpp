// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/records/pack.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/device/host_device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using numbers = std::vector<std::int32_t>;

namespace {

async_generator<chunk> shards_of(std::vector<std::string> texts) {
  for (std::size_t n = 0; n < texts.size(); ++n) {
    chunk c(std::make_shared<const shard>("s" + std::to_string(n)), 0, bytes::copy(texts[n]), true);
    co_yield give(c);
  }
}

/// A token a letter.
numbers letters(std::string_view text) { return numbers(text.begin(), text.end()); }

template <class T>
task<std::vector<T>> all(stream<T> in) {
  std::vector<T> got;
  while (std::optional<T> item = co_await in.next()) got.push_back(std::move(*item));
  co_return got;
}

std::string text_of(const packed_sequence& s) { return std::string(s.tokens.begin(), s.tokens.end()); }

std::vector<packed_sequence> packed(packer& p, const std::vector<numbers>& documents) {
  std::vector<packed_sequence> got;
  for (const numbers& d : documents) {
    p.add(d);
    while (std::optional<packed_sequence> s = p.next()) got.push_back(std::move(*s));
  }
  return got;
}

}  // namespace

TEST_CASE("documents become sequences over the ends of batches and shards, with their numbers and a mask") {
  testing::virtual_loop loop;
  cpu_pool pool(2);
  pack_options how;
  how.end = '$';
  how.pad = '_';
  auto pipeline =
      shards_of({"abc\nde\n\n", "fghijklmnop\nq"}) | lines({.batch = 2}) | tokens(letters, {.on = pool}) | pack(5, how);
  const std::vector<packed_sequence> got = block_on(loop, all(std::move(pipeline)));
  REQUIRE(got.size() == 5);
  CHECK(text_of(got[0]) == "abc$d");
  CHECK(got[0].documents == numbers{0, 0, 0, 0, 1});
  CHECK(got[0].mask == std::vector<std::uint8_t>{0, 1, 1, 1, 0});
  CHECK(text_of(got[1]) == "e$fgh");
  CHECK(got[1].documents == numbers{0, 0, 1, 1, 1});
  CHECK(got[1].mask == std::vector<std::uint8_t>{0, 1, 0, 1, 1});
  CHECK(text_of(got[2]) == "ijklm");
  CHECK(got[2].documents == numbers{0, 0, 0, 0, 0});
  CHECK(text_of(got[3]) == "nop$q");
  CHECK(text_of(got[4]) == "$____");
  CHECK(got[4].documents == numbers{0, -1, -1, -1, -1});
  CHECK(got[4].mask == std::vector<std::uint8_t>{0, 0, 0, 0, 0});
}

TEST_CASE("a rest that does not fill a sequence can be left out, and a full one leaves none") {
  pack_options drop;
  drop.last = last_batch::drop;
  packer p(2, drop);
  CHECK(packed(p, {{1, 2, 3}}).size() == 1);
  CHECK_FALSE(p.finish());
  packer q(3);
  CHECK(packed(q, {{1, 2}, {}, {3}}).size() == 1);
  CHECK_FALSE(q.finish());
  CHECK(q.save() == pack_state());
}

TEST_CASE("a packer goes on with the rest of another as if it had been that one") {
  rng random(1);
  std::vector<numbers> documents;
  for (int i = 0; i < 60; ++i) {
    documents.emplace_back();
    for (std::uint64_t n = random.below(40); n > 0; --n)
      documents.back().push_back(static_cast<std::int32_t>(random.below(1000)));
  }
  pack_options how;
  how.end = -7;
  packer whole(16, how);
  const std::vector<packed_sequence> wanted = packed(whole, documents);
  for (std::size_t cut = 0; cut <= documents.size(); ++cut) {
    CAPTURE(cut);
    const auto middle = documents.begin() + static_cast<std::ptrdiff_t>(cut);
    packer first(16, how);
    std::vector<packed_sequence> got = packed(first, std::vector<numbers>(documents.begin(), middle));
    pack_options more = how;
    more.rest = first.save();
    CHECK(more.rest.tokens.size() < 16);
    packer second(16, more);
    for (packed_sequence& s : packed(second, std::vector<numbers>(middle, documents.end())))
      got.push_back(std::move(s));
    REQUIRE(got.size() == wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      REQUIRE(got[i].tokens == wanted[i].tokens);
      REQUIRE(got[i].documents == wanted[i].documents);
      REQUIRE(got[i].mask == wanted[i].mask);
    }
    CHECK(second.save() == whole.save());
  }
}

TEST_CASE("what cannot be packed is refused") {
  CHECK_THROWS_AS(pack(0), configuration_error);
  pack_options odd;
  odd.rest.tokens = {1, 2};
  CHECK_THROWS_AS(packer(4, odd), configuration_error);
  odd.rest.ends = {1};
  CHECK_THROWS_AS(packer(4, odd), configuration_error);
  odd.rest.ends = {2, 1};
  CHECK_THROWS_AS(packer(4, odd), configuration_error);
}

TEST_CASE("an error of a tokenizer says the batch and the line in it") {
  testing::virtual_loop loop;
  cpu_pool pool(1);
  const auto refuses = [](std::string_view line) {
    if (line == "bad") throw decode_error("no such letter");
    return letters(line);
  };
  try {
    block_on(loop, all(shards_of({"good\nbad\n"}) | lines() | tokens(refuses, {.on = pool})));
    FAIL("no error");
  } catch (const decode_error& e) {
    CHECK(e.object() == "s0");
    CHECK(e.key() == "line 1 of its batch");
  }
}

TEST_CASE("sequences become batches of three tensors") {
  testing::virtual_loop loop;
  cpu_pool pool(1);
  auto pipeline = shards_of({"abcdefgh\n"}) | lines() | tokens(letters, {.on = pool}) | pack(4) | batch(2) |
                  to_device(host_device());
  const auto got = block_on(loop, all(std::move(pipeline)));
  REQUIRE(got.size() == 1);
  const auto values = got[0].field("tokens").values<std::int32_t>();
  CHECK(std::string(values.begin(), values.end()) == "abcdefgh");
  CHECK(got[0].field("mask").dims() == shape{2, 4});
  CHECK(got[0].field("documents").type() == dtype::i32);
}
