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
#include <millrace/device/device.hpp>
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

namespace {

/// Refuses lines that begin with 'b'.
numbers good_letters(std::string_view line) {
  if (!line.empty() && line[0] == 'b') throw decode_error("no such letter");
  return letters(line);
}
/// What comes of each document, then what ended the stream.
task<std::vector<std::string>> documents_of(stream<token_batch> in) {
  std::vector<std::string> got;
  try {
    while (std::optional<token_batch> b = co_await in.next()) {
      CHECK(b->size() != 0);
      for (std::size_t i = 0; i < b->size(); ++i) got.emplace_back((*b)[i].begin(), (*b)[i].end());
    }
  } catch (const error& e) {
    got.emplace_back(e.what());
  }
  co_return got;
}

}  // namespace

TEST_CASE("an error of a tokenizer names the line") {
  testing::virtual_loop loop;
  cpu_pool pool(1);
  try {
    block_on(loop, all(shards_of({"good\n", "good\nbad\n"}) | lines() | tokens(good_letters, {.on = pool})));
    FAIL("no error");
  } catch (const decode_error& e) {
    CHECK(e.object() == "s1");
    CHECK(e.offset() == 5);
    CHECK(e.key() == "line 2");
  }
  const auto foreign = [](std::string_view line) -> std::vector<std::int32_t> {
    if (line == "bad") static_cast<void>(std::stoi("x"));
    return {1};
  };
  try {
    block_on(loop, all(shards_of({"good\n", "good\nbad\n"}) | lines() | tokens(foreign, {.on = pool})));
    FAIL("no error");
  } catch (const item_error& e) {
    CHECK(e.what() == std::string("s1 at byte 5, line 2: stoi"));
    CHECK_THROWS_AS(e.rethrow_nested(), std::invalid_argument);
  }
}

TEST_CASE("a line that cannot be tokenized is judged alone, not with its batch") {
  testing::virtual_loop loop;
  cpu_pool pool(2);
  using texts = std::vector<std::string>;
  const auto run = [&](failure_policy policy, std::size_t size) {
    policy.report = false;
    return block_on(loop, documents_of(shards_of({"b0\na1\nb2\n", "a3\nb4\na5\n", "b6\n"}) | lines({.batch = size}) |
                                       tokens(good_letters, {.on = pool, .failures = policy})));
  };
  for (const std::size_t size : {1, 2, 3, 100}) {
    INFO("batches of " << size);
    CHECK(run({.then = on_failure::skip}, size) == texts{"a1", "a3", "a5"});
    CHECK(run({.then = on_failure::skip, .limit = 4}, size) == texts{"a1", "a3", "a5"});
    const texts limited = run({.then = on_failure::skip, .limit = 2}, size);
    REQUIRE(limited.size() == 3);
    CHECK(limited[1] == "a3");
    CHECK(limited[2].find("tokens: 3 of 5 items failed, more than the limit of 2: s0 at byte 0, line 1: no such "
                          "letter; s0 at byte 6, line 3: no such letter; s1 at byte 3, line 2: ") == 0);
    const texts share = run({.then = on_failure::skip, .rate = 0.5}, size);
    REQUIRE(share.size() == 4);
    CHECK(share[3].find("tokens: 4 of 7 items failed, more than the share of 0.5") == 0);
    CHECK(run({.then = on_failure::stop}, size) == texts());
  }
  const auto later = [&](failure_policy policy) {
    policy.report = false;
    return block_on(loop, documents_of(shards_of({"a0\na1\nb2\na3\n"}) | lines() |
                                       tokens(good_letters, {.on = pool, .failures = policy})));
  };
  CHECK(later({.then = on_failure::stop}) == texts{"a0", "a1"});
  // Only errors about data are tolerated; what came before is delivered.
  const auto misled = [](std::string_view line) {
    if (line[0] == 'b') throw configuration_error("no vocabulary");
    return letters(line);
  };
  const map_concurrent_options skipping{.on = pool, .failures = {.then = on_failure::skip}};
  const texts ended = block_on(
      loop, documents_of(shards_of({"a0\na1\nb2\na3\n"}) | lines() | tokens(misled, skipping)));
  CHECK(ended == texts{"a0", "a1", "no vocabulary"});
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
