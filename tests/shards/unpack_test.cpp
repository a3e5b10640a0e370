// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/unpack.hpp>

#include <algorithm>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"
#include "tests/tar/packers.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

constexpr const char* filters[] = {"gzip", "zstd", "xz", "bzip2", "lz4"};

/// The objects of a source, what has been asked of it, and who counts it.
class source {
 public:
  std::vector<std::string> objects;
  std::size_t piece = 1000;
  std::size_t* pulled = nullptr;  // bytes

  async_generator<chunk> chunks() const { return pieces(objects, piece, pulled); }

 private:
  static async_generator<chunk> pieces(std::vector<std::string> objects, std::size_t piece, std::size_t* pulled) {
    for (std::size_t n = 0; n < objects.size(); ++n) {
      auto from = std::make_shared<const shard>("o" + std::to_string(n), objects[n].size());
      const std::string_view text = objects[n];
      std::size_t at = 0;
      do {
        const std::size_t size = std::min(piece, text.size() - at);
        chunk c(from, at, bytes::copy(text.substr(at, size)), at + size == text.size());
        at += size;
        if (pulled != nullptr) *pulled += size;
        co_yield give(c);
      } while (at < text.size());
    }
  }
};

std::string noise(std::size_t size, std::uint64_t seed) {
  rng random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random.next());
  return text;
}

std::string tar_of(std::size_t members, std::size_t body, std::uint64_t seed) {
  std::string archive;
  for (std::size_t i = 0; i < members; ++i) {
    test::header_block h;
    h.name = std::to_string(seed) + "/" + std::to_string(i);
    archive += test::raw_member(h, noise(body + i % 7, seed * 1000 + i));
  }
  return archive + test::end_block();
}

/// What untar() makes of them: names, bodies' sizes and first bytes, places; then the error.
task<std::string> members_of(stream<member> in) {
  std::string told;
  try {
    while (std::optional<member> m = co_await in.next()) {
      told += m->entry.name + ' ' + std::to_string(m->entry.body.size()) + ' ' +
              std::to_string(static_cast<int>(m->entry.body.empty() ? 0 : m->entry.body.view()[0])) + '@' +
              std::to_string(m->from.offset) + (m->last ? "!\n" : "\n");
    }
  } catch (const error& e) {
    told += e.what();
  }
  co_return told;
}

std::string untarred(const source& s, cpu_pool* pool, unpack_options how = {}) {
  testing::virtual_loop loop;
  how.on = pool;
  return block_on(loop, members_of(s.chunks() | untar({}, how)));
}

task<std::string> text_of(stream<line_batch> in) {
  std::string told;
  try {
    while (std::optional<line_batch> b = co_await in.next()) {
      for (std::string_view l : *b) told += std::string(l) + '\n';
    }
  } catch (const error& e) {
    told += e.what();
  }
  co_return told;
}

std::string lines_of(const source& s, cpu_pool* pool) {
  testing::virtual_loop loop;
  return block_on(loop, text_of(s.chunks() | lines({.batch = 3, .unpack = {.on = pool}})));
}

/// Keeps a thread of the pool until `go_on`.
task<void> occupy(cpu_pool& pool, std::promise<void>& go_on) {
  co_await pool.run([&go_on] { go_on.get_future().wait(); });
}

/// Objects of 300 KiB each, in small pieces; `pulled` counts what was asked for.
source twenty_compressed(std::size_t& pulled) {
  source s;
  s.pulled = &pulled;
  s.piece = 10 * KiB;
  for (std::uint64_t n = 0; n < 20; ++n) s.objects.push_back(test::compress("gzip", tar_of(3, 100 * KiB, n)));
  return s;
}

}  // namespace

TEST_CASE(
    "compressed tars become the same members in the same order, wherever they are unpacked and in whatever pieces",
    "[slow]") {
  source s;
  std::string wanted;
  source plain;
  for (std::uint64_t n = 0; n < 12; ++n) {
    const std::string archive = tar_of(1 + n % 5, 3000 * (n % 4), n);
    plain.objects.push_back(archive);
    s.objects.push_back(n % 6 == 5 ? archive : test::compress(filters[n % 5], archive));
  }
  wanted = untarred(plain, nullptr);
  CHECK(std::count(wanted.begin(), wanted.end(), '!') == 12);
  for (const std::size_t piece : {std::size_t(1), std::size_t(700), SIZE_MAX}) {
    CAPTURE(piece);
    s.piece = piece;
    CHECK(untarred(s, nullptr) == wanted);
    for (const unsigned threads : {1u, 3u}) {
      cpu_pool pool(threads);
      CHECK(untarred(s, &pool) == wanted);
      CHECK(untarred(s, &pool, {.objects = 5, .bytes = 1}) == wanted);
    }
  }
}

TEST_CASE("it is the pool that unpacks, and plain data needs none") {
  source packed;
  packed.objects = {test::compress("gzip", tar_of(2, 100, 1))};
  source plain;
  plain.objects = {tar_of(2, 100, 1)};
  source text;
  text.objects = {test::compress("zstd", "one\ntwo\n")};
  unpack_options gone;
  lines_options gone_too;
  testing::virtual_loop loop;
  auto pool = std::make_unique<cpu_pool>(1);
  gone.on = *pool;
  gone_too.unpack.on = *pool;
  auto from_packed = packed.chunks() | untar({}, gone);
  auto from_plain = plain.chunks() | untar({}, gone);
  auto from_text = text.chunks() | lines(gone_too);
  pool.reset();
  CHECK_THAT(block_on(loop, members_of(std::move(from_packed))),
             Contains("the cpu_pool that a stage works on has ended"));
  CHECK_THAT(block_on(loop, members_of(std::move(from_plain))), Contains("1/1 101"));
  CHECK_THAT(block_on(loop, text_of(std::move(from_text))), Contains("the cpu_pool that a stage works on has ended"));
}

TEST_CASE("lines of any number of members and frames are those of the text", "[slow]") {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "line " + std::to_string(i * i) + "\n";
  cpu_pool pool(2);
  for (const char* const filter : filters) {
    std::string packed;
    for (std::size_t at = 0; at < text.size(); at += 7001) {
      if (std::string_view(filter) == "zstd")
        packed += std::string("\x50\x2a\x4d\x18\x03\0\0\0abc", 11);  // to be skipped
      packed += test::compress(filter, text.substr(at, 7001));
    }
    for (const std::size_t piece : {std::size_t(1), std::size_t(997), SIZE_MAX}) {
      CAPTURE(filter, piece);
      source s;
      s.objects = {packed, "plain\n", packed};
      s.piece = piece;
      const std::string wanted = text + "plain\n" + text;
      CHECK(lines_of(s, &pool) == wanted);
      CHECK(lines_of(s, nullptr) == wanted);
    }
  }
}

TEST_CASE("an object that is cut or damaged is an error after what came before it, the same on a pool") {
  cpu_pool pool(2);
  const std::string archive = tar_of(6, 5000, 9);
  for (const char* const filter : filters) {
    const std::string whole = test::compress(filter, archive);
    for (std::size_t k = 1; k < 40; ++k) {
      source s;
      s.objects = {test::compress("gzip", tar_of(2, 10, 1)), whole, test::compress("gzip", tar_of(2, 10, 3))};
      std::string& bad = s.objects[1];
      const std::size_t at = whole.size() * k / 40;
      if (k % 2 == 0) {
        bad.resize(at);
      } else {
        bad[at] = static_cast<char>(bad[at] ^ 0x55);
      }
      CAPTURE(filter, k);
      const std::string told = untarred(s, nullptr);
      CHECK_THAT(told, Contains("1/1 11 "));
      CHECK(untarred(s, &pool) == told);
      if (k % 2 == 0) {
        CHECK_THAT(told, Contains("o1"));
        CHECK(told.find("3/0") == std::string::npos);
      }
    }
  }
}

TEST_CASE("a run that is dropped while objects are unpacked leaves nothing behind") {
  source s;
  s.piece = 100 * KiB;
  for (std::uint64_t n = 0; n < 4; ++n) s.objects.push_back(test::compress("gzip", tar_of(40, 100000, n)));
  cpu_pool pool(3);
  for (int taken = 0; taken < 60; taken += 7) {
    testing::virtual_loop loop;
    auto some = [&]() -> task<void> {
      unpack_options how;
      how.on = pool;
      stream<member> in = s.chunks() | untar({}, how);
      for (int i = 0; i < taken; ++i) {
        std::optional<member> m = co_await in.next();
        REQUIRE(m);
      }
    };
    block_on(loop, some());
  }
}

TEST_CASE("no more is read ahead than the bound says") {
  std::size_t pulled = 0;
  source s = twenty_compressed(pulled);
  cpu_pool pool(3);
  testing::virtual_loop loop;
  std::size_t most = 0;
  auto all = [&]() -> task<void> {
    unpack_options how;
    how.on = pool;
    how.bytes = MiB;
    stream<member> in = s.chunks() | untar({}, how);
    std::size_t taken = 0;
    while (std::optional<member> m = co_await in.next()) {
      taken += m->entry.body.size();
      most = std::max(most, pulled - std::min(pulled, taken));
    }
    CHECK(taken > 6000000);
  };
  block_on(loop, all());
  CHECK(most > 300 * KiB);  // it does read ahead
  // What waits; a job's input and 4 MiB of output for each of the three would be more than all of it, but the objects
  // are smaller: one of them each.
  CHECK(most < MiB + 4 * 320 * KiB);
}

TEST_CASE("what is read ahead leaves half of the bound to what is unpacked: else only the first object would be") {
  std::size_t pulled = 0;
  source s = twenty_compressed(pulled);
  cpu_pool pool(1);
  std::promise<void> go_on;
  testing::virtual_loop loop;
  auto all = [&]() -> task<void> {
    executor& ex = co_await this_executor();
    spawned<void> busy(ex, occupy(pool, go_on));
    unpack_options how;
    how.on = pool;
    how.objects = 3;
    how.bytes = 2 * MiB;
    spawned<std::string> told(ex, members_of(s.chunks() | untar({}, how)));
    for (int turn = 0; turn < 10000; ++turn) co_await yield_now();
    const std::size_t ahead = pulled;
    go_on.set_value();
    co_await busy;
    co_await told;
    CHECK(ahead >= MiB);
    // The last piece, and one that each of the three has taken.
    CHECK(ahead <= MiB + 4 * 10 * KiB);
  };
  block_on(loop, all());
  CHECK(pulled > 6000000);
}

TEST_CASE("plain tars need nothing of a budget for unpacking; a bound that is stated counts", "[run]") {
  source s;
  for (std::uint64_t n = 0; n < 4; ++n) s.objects.push_back(tar_of(3, 1000, n));
  const auto sizes = [&](unpack_options how = {}) {
    return s.chunks() | untar({}, how) | map([](member m) { return m.entry.body.size(); });
  };
  const run_options two{.prefetch = 2, .budget = 2 * sizeof(std::size_t) + KiB};  // and room for a member
  std::size_t members = 0;
  for (const std::size_t size : run(sizes(), two)) members += size >= 1000;
  CHECK(members == 12);

  s.objects.assign(1, "a\nb\n");
  std::size_t texts = 0;
  for (const std::size_t size : run(s.chunks() | lines() | map([](line_batch b) { return b.size(); }), two)) {
    texts += size;
  }
  CHECK(texts == 2);

  CHECK_THROWS_WITH(run(sizes({.bytes = MiB}), two), Contains("untar, unpacked 1.05 MB"));
}

TEST_CASE("compressed tars are unpacked within half of what the budget leaves, also where that is a member", "[run]") {
  std::size_t pulled = 0;
  source s = twenty_compressed(pulled);
  runtime rt({.threads = 3});
  for (const std::size_t left : {100 * KiB, 2 * MiB}) {
    CAPTURE(left);
    std::size_t taken = 0, most = 0, members = 0;
    pulled = 0;
    auto pipeline = s.chunks() | untar() | map([&](member m) {
                      taken += m.entry.body.size();
                      most = std::max(most, pulled - std::min(pulled, taken));
                      return m.entry.body.size();
                    });
    for (const std::size_t size : rt.run(std::move(pipeline), {.budget = 2 * sizeof(std::size_t) + left})) {
      members += size >= 100 * KiB;
    }
    CHECK(members == 60);
    // What waits, and one object for each thread and for the consumer.
    CHECK(most < left / 2 + 4 * 320 * KiB);
  }
}

TEST_CASE("what unpacking takes of the budget comes back when the stage goes", "[run]") {
  source s;
  s.objects.assign(2, test::compress("gzip", tar_of(2, 1000, 1)));
  cpu_pool pool(1);
  testing::virtual_loop loop;
  run_context run(2 * MiB);
  auto some = [&]() -> task<void> {
    unpack_options how;
    how.on = pool;
    stream<member> in = s.chunks() | untar({}, how);
    std::optional<member> m = co_await in.next();
    REQUIRE(m);
    CHECK_FALSE(run.budget().take(MiB + 1));
  };
  block_on({loop, run, nullptr}, some());
  CHECK(run.budget().take(2 * MiB));
}
