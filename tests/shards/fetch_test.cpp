// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/fetch.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/testing/census.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

constexpr std::size_t part_bytes = 64 * KiB;

/// A store in memory whose answers take random virtual time; it notes what is under way.
class slow_store final : public storage {
 public:
  explicit slow_store(std::uint64_t seed) : random_(seed) {}

  std::map<std::string, std::string> objects;
  std::map<std::string, std::uint64_t> fail_at;  // offset whose part fails
  std::string changes;                           // gets another ETag after its first part
  std::string no_ranges;                         // is served in one go
  mutable std::size_t reading = 0;
  mutable std::size_t most_reading = 0;
  mutable std::size_t reads = 0;
  testing::census* slabs_counted = nullptr;  // told of the pool with the first read, when all of it is there

  bool serves(std::string_view url) const noexcept override { return url.substr(0, 4) == "mem:"; }
  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    struct counted {
      explicit counted(const slow_store& s) : store(s) {
        ++store.reads;
        store.most_reading = std::max(store.most_reading, ++store.reading);
      }
      ~counted() { --store.reading; }
      const slow_store& store;
    } count(*this);
    if (reads == 1 && slabs_counted != nullptr) slabs_counted->count_slabs(slabs);
    const auto delay = std::chrono::microseconds(random_.below(5000));
    co_await sleep_for(delay);
    const auto failing = fail_at.find(object.url);
    if (failing != fail_at.end() && failing->second == offset) {
      throw io_error(std::errc::io_error, "broken on purpose", where{object.url, offset, std::string()});
    }
    const std::string& content = objects.at(object.url);
    part p;
    p.etag = object.url == changes && offset > 0 ? "\"new\"" : "\"tag\"";
    if (object.url == no_ranges) {
      p.rest = std::make_unique<rest>(content);
      co_return p;
    }
    if (!etag.empty()) CHECK(etag == "\"tag\"");
    p.total = content.size();
    const std::string_view piece =
        std::string_view(content).substr(std::min<std::size_t>(offset, content.size()), length);
    writable_bytes slab = slabs.acquire();
    std::copy(piece.begin(), piece.end(), slab.data());
    p.data = slab.share(0, piece.size());
    co_return p;
  }

 private:
  class rest final : public sequential_rest {
   public:
    explicit rest(std::string text) : text_(std::move(text)) {}
    task<bytes> next() override {
      co_await sleep_for(std::chrono::microseconds(100));
      const std::size_t n = std::min<std::size_t>(10000, text_.size() - at_);
      bytes piece = bytes::copy(std::string_view(text_).substr(at_, n));
      at_ += n;
      co_return piece;
    }

   private:
    std::string text_;
    std::size_t at_ = 0;
  };
  mutable rng random_;
};

std::string text_of(int n, std::size_t size) {
  std::string text(size, static_cast<char>('a' + n));
  for (std::size_t i = 0; i < size; i += 509) text[i] = static_cast<char>(i / 509);
  return text;
}

/// Objects of 0 to 600 KB.
std::shared_ptr<slow_store> store_of(std::uint64_t seed) {
  auto store = std::make_shared<slow_store>(seed);
  const std::size_t sizes[] = {300000, 0, 1, part_bytes, part_bytes + 1, 600000, 2 * part_bytes, 5000};
  for (int n = 0; n < 8; ++n) store->objects["mem:" + std::to_string(n)] = text_of(n, sizes[n]);
  return store;
}
std::vector<shard> shards_of(const slow_store& store, bool sizes_known) {
  std::vector<shard> out;
  for (const auto& [url, content] : store.objects) {
    out.push_back(sizes_known ? shard(url, content.size(), "\"tag\"") : shard(url));
  }
  return out;
}

/// Reads everything, checks the rules for chunks, and gives "url=content" per object.
task<std::vector<std::string>> collect(stream<chunk> in, std::vector<std::string>& out) {
  std::string current;
  std::shared_ptr<const shard> from;
  while (std::optional<chunk> c = co_await in.next()) {
    if (from == nullptr) from = c->from;
    const bool same = from == c->from;
    const bool in_place = c->offset == current.size();
    CHECK(same);
    CHECK(in_place);
    current += c->data.view();
    if (c->last) {
      out.push_back(from->url + "=" + current);
      current.clear();
      from = nullptr;
    }
  }
  CHECK(from == nullptr);
  co_return out;
}

const fetch_options narrow{.shards = 3, .window = 2 * part_bytes, .part = part_bytes};

}  // namespace

TEST_CASE("fetch gives every object whole and in order, whatever the timing, the bound and the order of wake-ups") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const std::shared_ptr<slow_store> store = store_of(seed);
    std::vector<std::string> expected;
    for (const auto& [url, content] : store->objects) expected.push_back(url + "=" + content);
    for (bool sizes_known : {true, false}) {
      for (std::size_t shards : {1, 2, 5}) {
        testing::virtual_loop loop(seed);
        INFO(loop.seed_text());
        store->most_reading = 0;
        const std::shared_ptr<const storage> s = store;
        std::vector<std::string> got;
        block_on(loop, collect(from_range(shards_of(*store, sizes_known)) |
                                   fetch(s, {.shards = shards, .window = 2 * part_bytes, .part = part_bytes}),
                               got));
        INFO(shards << " shards");
        CHECK(got == expected);
        CHECK(store->reading == 0);
        CHECK(store->most_reading <= 2 * shards);
        CHECK(loop.frames() == 0);
      }
    }
  }
}

TEST_CASE("bounds as large as can be said are none") {
  CHECK(fetch_options{.window = SIZE_MAX}.bytes() == SIZE_MAX);
  CHECK(fetch_options{.shards = SIZE_MAX}.bytes() == SIZE_MAX);
  CHECK(fetch_options{.shards = SIZE_MAX / 8, .window = 9}.bytes() == SIZE_MAX);
  const std::shared_ptr<slow_store> store = store_of(1);
  testing::virtual_loop loop;
  const std::shared_ptr<const storage> s = store;
  auto chunks = from_range(shards_of(*store, true)) |
                fetch(s, {.shards = SIZE_MAX, .window = SIZE_MAX, .part = part_bytes, .requests = SIZE_MAX});
  for (const stage_bounds& b : chunks.bounds()) {
    if (std::string(b.name) == "fetch") CHECK(b.bytes == SIZE_MAX);
  }
  std::vector<std::string> got;
  block_on(loop, collect(std::move(chunks), got));
  CHECK(got.size() == 8);
}

TEST_CASE("parts of one large object are read side by side") {
  auto store = std::make_shared<slow_store>(1);
  store->objects["mem:x"] = text_of(1, 20 * part_bytes);
  testing::virtual_loop loop;
  const std::shared_ptr<const storage> s = store;
  std::vector<std::string> got;
  block_on(loop, collect(from_range(shards_of(*store, true)) |
                             fetch(s, {.shards = 4, .window = 2 * part_bytes, .part = part_bytes}),
                         got));
  CHECK(got.at(0) == "mem:x=" + store->objects["mem:x"]);
  CHECK(store->most_reading == 8);  // the bound, to which the window has grown while its consumer waited
  CHECK(store->reads == 20);
}

TEST_CASE("nothing is read beyond the bound while the consumer waits") {
  auto store = store_of(3);
  testing::virtual_loop loop;
  const std::shared_ptr<const storage> s = store;
  auto take_one = [](stream<chunk> in) -> task<int> {
    std::optional<chunk> first = co_await in.next();
    co_await sleep_for(std::chrono::seconds(60));
    co_return first ? 1 : 0;
  };
  auto chunks = from_range(shards_of(*store, true)) | fetch(s, narrow);
  CHECK(block_on(loop, take_one(std::move(chunks))) == 1);
  CHECK(store->reads <= 6);
}

TEST_CASE("a part that fails is an error at its place, after everything before it") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    auto store = store_of(seed);
    store->fail_at["mem:5"] = 2 * part_bytes;
    testing::virtual_loop loop(seed);
    INFO(loop.seed_text());
    const std::shared_ptr<const storage> s = store;
    std::vector<std::string> got;
    try {
      block_on(loop, collect(from_range(shards_of(*store, true)) | fetch(s, narrow), got));
      FAIL("no error");
    } catch (const io_error& e) {
      CHECK(e.object() == "mem:5");
      CHECK(e.offset() == 2 * part_bytes);
    }
    CHECK(got.size() == 5);
    CHECK(loop.frames() == 0);
    CHECK(store->reading == 0);
  }
}

TEST_CASE("an object that changes under the reader is an error with both ETags") {
  for (bool known : {true, false}) {
    auto store = store_of(1);
    store->changes = "mem:5";
    testing::virtual_loop loop;
    const std::shared_ptr<const storage> s = store;
    std::vector<std::string> got;
    try {
      block_on(loop, collect(from_range(shards_of(*store, known)) | fetch(s, narrow), got));
      FAIL("no error");
    } catch (const changed_error& e) {
      CHECK(e.object() == "mem:5");
      CHECK_THAT(e.what(), Catch::Matchers::Contains("\"tag\"") && Catch::Matchers::Contains("\"new\""));
    }
  }
  // One that is not as long as it was listed.
  auto store = store_of(1);
  testing::virtual_loop loop;
  const std::shared_ptr<const storage> s = store;
  std::vector<std::string> got;
  CHECK_THROWS_AS(
      block_on(loop,
               collect(from_range(std::vector<shard>{shard("mem:0", 299999, "\"tag\"")}) | fetch(s, narrow), got)),
      changed_error);
}

TEST_CASE("an object without ranges is read on in order") {
  auto store = store_of(1);
  store->no_ranges = "mem:5";
  testing::virtual_loop loop;
  const std::shared_ptr<const storage> s = store;
  std::vector<std::string> got;
  block_on(loop, collect(from_range(shards_of(*store, false)) | fetch(s, narrow), got));
  REQUIRE(got.size() == 8);
  CHECK(got[5] == "mem:5=" + store->objects["mem:5"]);
}

TEST_CASE("an error of the source comes after the objects that it gave") {
  auto failing = [](std::vector<shard> some) -> async_generator<shard> {
    for (shard& s : some) co_yield give(s);
    throw configuration_error("the listing broke");
  };
  auto store = store_of(1);
  testing::virtual_loop loop;
  const std::shared_ptr<const storage> s = store;
  std::vector<std::string> got;
  CHECK_THROWS_AS(block_on(loop, collect(failing(shards_of(*store, true)) | fetch(s, narrow), got)),
                  configuration_error);
  CHECK(got.size() == 8);
}

TEST_CASE("fetch dropped after any number of steps leaves nothing behind") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    auto store = store_of(seed);
    store->no_ranges = "mem:3";
    testing::virtual_loop loop(seed);
    INFO(loop.seed_text());
    testing::census before(loop);
    store->slabs_counted = &before;
    const std::shared_ptr<const storage> s = store;
    std::vector<std::string> got;
    {
      spawned<std::vector<std::string>> running(
          loop, collect(from_range(shards_of(*store, seed % 2 == 0)) | fetch(s, narrow), got));
      std::uint64_t steps = seed;
      loop.run_until([&] { return running.done() || steps-- == 0; });
    }
    CHECK(before.difference() == "");
    CHECK(store->reading == 0);
  }
}
