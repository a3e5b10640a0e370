// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// How fetch() begins, and how far it reads ahead: the sizes, the order and the times of its requests.

#include <millrace/shards/fetch.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
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
#include <millrace/shards/hedged_storage.hpp>
#include <millrace/shards/range_scheduler.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using lengths = std::vector<std::size_t>;

namespace {

/// One request of a part, as a store saw it.
struct request {
  std::string url;
  std::uint64_t offset = 0;
  std::size_t length = 0;
  std::string etag;  // that the part must have
  duration at{0};    // since the first request
};

/// Objects of a byte that follows from its place, over a line that takes `latency` for each answer, of all requests at
/// once, and `per_part` for the bytes of each, one part after the other.
class line_store : public storage {
 public:
  explicit line_store(duration latency, duration per_part = 0ms) : latency_(latency), per_part_(per_part) {}

  std::map<std::string, std::size_t> objects;
  bool ranges = true;
  std::uint64_t jitter = 0;  // seed of a latency that differs from part to part; 0: it does not
  mutable std::vector<request> requests;
  mutable std::size_t reading = 0;
  mutable std::size_t most_reading = 0;

  static char content(const std::string& url, std::uint64_t at) noexcept {
    return static_cast<char>(at * 2654435761u >> 13) ^ url.back();
  }

  bool serves(std::string_view) const noexcept override { return true; }
  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    executor& ex = co_await this_executor();
    if (requests.empty()) begun_ = ex.now();
    request r;
    r.url = object.url;
    r.offset = offset;
    r.length = length;
    r.etag = std::move(etag);
    r.at = ex.now() - begun_;
    requests.push_back(std::move(r));
    const std::uint64_t number = requests.size();
    struct under_way {
      explicit under_way(const line_store& s) : store(s) {
        store.most_reading = std::max(store.most_reading, ++store.reading);
      }
      ~under_way() { --store.reading; }
      const line_store& store;
    } const counted(*this);
    free_at_ = std::max(free_at_, ex.now()) + per_part_;
    duration due = std::max(latency_, free_at_ - ex.now());
    if (jitter != 0) due += std::chrono::microseconds(rng(jitter, number, 0).below(50'000));
    co_await sleep_for(due);
    part p;
    p.etag = "\"v\"";
    const std::size_t size = objects.at(object.url);
    if (!ranges) {
      p.rest = std::make_unique<rest>(object.url, size);
      co_return std::move(p);
    }
    p.total = size;
    const std::size_t n = std::min<std::size_t>(length, size - std::min<std::uint64_t>(size, offset));
    if (!filled) {
      writable_bytes slab = slabs.acquire();
      p.data = slab.share(0, n);
    } else if (n > 0) {
      writable_bytes own = writable_bytes::allocate(n);
      for (std::size_t i = 0; i < n; ++i) own.data()[i] = content(object.url, offset + i);
      p.data = own.share(0, n);
    }
    co_return std::move(p);
  }

  bool filled = false;  // the bytes are looked at

 private:
  class rest final : public sequential_rest {
   public:
    rest(std::string url, std::size_t size) : url_(std::move(url)), size_(size) {}
    task<bytes> next() override {
      const std::size_t n = std::min<std::size_t>(300'000, size_ - at_);
      std::string piece(n, '\0');
      for (std::size_t i = 0; i < n; ++i) piece[i] = content(url_, at_ + i);
      at_ += n;
      co_return bytes::copy(piece);
    }

   private:
    const std::string url_;
    const std::size_t size_;
    std::size_t at_ = 0;
  };

  const duration latency_;
  const duration per_part_;
  mutable time_point begun_{};
  mutable time_point free_at_{};
};

std::vector<shard> shards_of(const line_store& store, bool sizes_known, const std::string& etag = std::string()) {
  std::vector<shard> all;
  for (const auto& [url, size] : store.objects) all.push_back(sizes_known ? shard(url, size, etag) : shard(url));
  return all;
}

/// Takes everything, `pause` after each chunk; notes "url@offset+length".
template <class Chunks>
task<void> take_all(Chunks in, duration pause, std::vector<std::string>* pieces = nullptr, bool look = false) {
  while (std::optional<chunk> c = co_await in.next()) {
    if (pieces != nullptr) {
      pieces->push_back(c->from->url + '@' + std::to_string(c->offset) + '+' + std::to_string(c->data.size()));
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; look && i < c->data.size(); ++i) {
      wrong += c->data.data()[i] != line_store::content(c->from->url, c->offset + i) ? 1 : 0;
    }
    CHECK(wrong == 0);
    c.reset();
    if (pause.count() > 0) co_await sleep_for(pause);
  }
}

/// Reads all objects of the store; the requests are in the store then.
void read_all(const std::shared_ptr<line_store>& store, const fetch_options& how, bool sizes_known = true,
              duration pause = 0ms) {
  testing::virtual_loop loop;
  const std::shared_ptr<const storage> s = store;
  auto chunks = from_range(shards_of(*store, sizes_known)) | fetch(s, how);
  block_on(loop, take_all(std::move(chunks), pause));
}

lengths lengths_of(const line_store& store, const std::string& url) {
  std::map<std::uint64_t, std::size_t> by_offset;
  for (const request& r : store.requests) {
    if (r.url == url) CHECK(by_offset.emplace(r.offset, r.length).second);
  }
  lengths all;
  std::uint64_t next = 0;
  for (const auto& [offset, length] : by_offset) {
    CHECK(offset == next);
    next += length;
    all.push_back(length);
  }
  return all;
}

/// How many requests were made in the same instant as the first one, a window later, and so on.
std::vector<std::size_t> bursts_of(const line_store& store) {
  std::vector<std::size_t> all;
  duration at(-1);
  for (const request& r : store.requests) {
    if (r.at != at) all.push_back(0);
    at = r.at;
    ++all.back();
  }
  return all;
}

}  // namespace

TEST_CASE("as many small objects are in flight by their names as by a listing") {
  duration took[2];
  std::size_t most[2];
  for (const bool sizes_known : {true, false}) {
    const auto store = std::make_shared<line_store>(20ms);
    for (int i = 0; i < 2000; ++i) store->objects["mem:" + std::to_string(i)] = 100'000;
    read_all(store, {}, sizes_known);
    CHECK(store->requests.size() == 2000);
    most[sizes_known ? 0 : 1] = store->most_reading;
    took[sizes_known ? 0 : 1] = store->requests.back().at;
    // A little more than the objects before, and not a part.
    CHECK(store->requests.back().length <= 128 * KiB);
  }
  CHECK(most[0] > 16);
  CHECK(most[1] >= most[0]);
  CHECK(took[1] < took[0] * 3 / 2);
}

TEST_CASE("the first object begins with parts of 256 KiB that double, the others are cut into whole parts") {
  for (const bool sizes_known : {true, false}) {
    INFO("sizes known: " << sizes_known);
    const auto store = std::make_shared<line_store>(1ms);
    store->objects = {{"mem:a", 6 * MiB + 5}, {"mem:b", 5 * MiB}, {"mem:c", 300 * KiB}};
    read_all(store, {.shards = 3, .window = 2 * MiB, .part = MiB}, sizes_known);
    CHECK(lengths_of(*store, "mem:a") ==
          lengths{256 * KiB, 512 * KiB, MiB, MiB, MiB, MiB, MiB, 256 * KiB + 5});
    // What is asked for of an object whose size is not known is a part, whatever there is of it.
    CHECK(lengths_of(*store, "mem:b") == lengths{MiB, MiB, MiB, MiB, MiB});
    CHECK(lengths_of(*store, "mem:c") == lengths{sizes_known ? 300 * KiB : MiB});
  }
}

TEST_CASE("small parts end where the options say: at a part of any size, at the end of the object") {
  const auto store = std::make_shared<line_store>(1ms);
  store->objects = {{"mem:a", 5 * MiB}};
  read_all(store, {.shards = 1, .window = 3 * MiB, .part = 1'500'000});
  CHECK(lengths_of(*store, "mem:a") ==
        lengths{256 * KiB, 512 * KiB, MiB, 1'500'000, 1'500'000, 5 * MiB - 7 * 256 * KiB - 3'000'000});
  for (const std::size_t part : {64 * KiB, 256 * KiB}) {  // nothing to begin with is smaller
    const auto even = std::make_shared<line_store>(1ms);
    even->objects = {{"mem:a", 2 * part + 1}};
    read_all(even, {.shards = 1, .window = 3 * part, .part = part});
    CHECK(lengths_of(*even, "mem:a") == lengths{part, part, 1});
  }
  const auto little = std::make_shared<line_store>(1ms);
  little->objects = {{"mem:a", 100}, {"mem:b", 3 * MiB}};
  read_all(little, {.shards = 2, .window = 4 * MiB, .part = 2 * MiB});
  CHECK(lengths_of(*little, "mem:b") == lengths{2 * MiB, MiB});
}

TEST_CASE("an empty object before all others, as a listing has of a folder, is not the first one") {
  const auto store = std::make_shared<line_store>(1ms);
  store->objects = {{"mem:a", 0}, {"mem:b", MiB}};
  read_all(store, {.shards = 2, .window = 4 * MiB, .part = 2 * MiB});
  CHECK(lengths_of(*store, "mem:b") == lengths{256 * KiB, 512 * KiB, 256 * KiB});
}

TEST_CASE("chunks are the same for every timing, window and way of asking, and so is what is in them", "[slow]") {
  std::vector<std::string> expected;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    for (const bool sizes_known : {true, false}) {
      const auto store = std::make_shared<line_store>(1ms);
      store->objects = {{"mem:a", 2 * MiB + 5}, {"mem:b", MiB + 7}, {"mem:c", 100}};
      store->jitter = seed + 1;
      store->filled = true;
      std::shared_ptr<const storage> s = store;
      if (seed % 3 == 1) s = hedged(s, 1);
      testing::virtual_loop loop(seed);
      INFO(loop.seed_text());
      std::vector<std::string> pieces;
      auto chunks = from_range(shards_of(*store, sizes_known)) |
                    fetch(s, {.shards = 1 + seed % 3, .window = (1 + seed % 5) * MiB / 2, .part = 512 * KiB});
      block_on(loop, take_all(std::move(chunks), seed % 2 == 0 ? 0ms : 10ms, &pieces, true));
      if (expected.empty()) expected = pieces;
      CHECK(pieces.size() == 5 + 3 + 1);
      CHECK(pieces == expected);
      CHECK(loop.frames() == 0);
    }
  }
}

TEST_CASE("an object that is sent in one go is read on from its small beginning") {
  const auto store = std::make_shared<line_store>(1ms);
  store->objects = {{"mem:a", 2 * MiB + 5}, {"mem:b", 100'000}};
  store->ranges = false;
  testing::virtual_loop loop;
  const std::shared_ptr<const storage> s = store;
  std::vector<std::string> pieces;
  auto chunks = from_range(shards_of(*store, false)) | fetch(s, {.shards = 2, .window = 2 * MiB, .part = MiB});
  block_on(loop, take_all(std::move(chunks), 0ms, &pieces, true));
  CHECK(store->requests.size() == 2);
  CHECK(std::count(pieces.begin(), pieces.end(), "mem:b@0+100000") == 1);
  CHECK(pieces[1] == "mem:a@0+300000");
}

TEST_CASE("until the first bytes are there, no more is asked for than two parts hold") {
  const auto store = std::make_shared<line_store>(60ms);
  store->objects = {{"mem:a", 100 * MiB}, {"mem:b", 100 * MiB}};
  testing::virtual_loop loop;
  const std::shared_ptr<const storage> s = store;
  {
    auto chunks = from_range(shards_of(*store, true)) | fetch(s);
    const spawned<void> running(loop, take_all(std::move(chunks), 0ms));
    loop.run_until([&] { return loop.elapsed() >= 59ms || store->requests.size() > 8; });
  }
  // Nothing is known of the store yet: six requests. The second object waits for the first one.
  CHECK(lengths_of(*store, "mem:a") == lengths{256 * KiB, 512 * KiB, MiB, 2 * MiB, 2 * MiB, 2 * MiB});
  CHECK(store->requests.size() == 6);
}

TEST_CASE("later ranges must be of the version that the first one was of") {
  for (const bool sizes_known : {true, false}) {
    const auto store = std::make_shared<line_store>(10ms);
    store->objects = {{"mem:a", 6 * MiB}};
    read_all(store, {.shards = 1, .window = 8 * MiB, .part = 2 * MiB}, sizes_known);
    for (const request& r : store->requests) CHECK(r.etag == (r.at < 10ms ? "" : "\"v\""));
    CHECK((store->requests.back().at >= 10ms));
  }
}

TEST_CASE("a consumer that waits has the window doubled to its bound, and never more than that") {
  const auto store = std::make_shared<line_store>(100ms);
  store->objects = {{"mem:a", 256 * MiB}};
  const fetch_options how{.shards = 4, .window = 4 * MiB, .part = MiB};
  read_all(store, how);
  CHECK(store->most_reading == how.bytes() / MiB);
  std::vector<std::size_t> bursts = bursts_of(*store);
  // The steady state: a window of parts at a time, which its consumer takes in one instant.
  CHECK(bursts.at(bursts.size() - 3) >= how.bytes() / MiB - 1);
  // 256 parts, 16 at a time, take 16 answers; to come there takes a few more.
  CHECK(bursts.size() < 16 + 8);
}

TEST_CASE("a consumer that is slower than the store has two parts read ahead, however long") {
  const auto store = std::make_shared<line_store>(10ms);
  store->objects = {{"mem:a", 128 * MiB}};
  read_all(store, {.shards = 4, .window = 4 * MiB, .part = MiB}, true, 100ms);
  CHECK(store->most_reading <= 4);  // the small ones at the beginning; then one, beside the one that is taken
  std::size_t at_the_end = 0;
  for (const request& r : store->requests) at_the_end += r.at >= store->requests.back().at - 1s ? 1 : 0;
  CHECK(at_the_end <= 11);
}

TEST_CASE("where the line is the limit few more parts are asked for than fill it, however much the window holds") {
  // Parts side by side take as long as one after the other: no further one spares any waiting.
  const auto most_reading_of = [](std::size_t parts) {
    const auto store = std::make_shared<line_store>(20ms, 20ms);
    store->objects = {{"mem:a", parts * MiB}};
    read_all(store, {.shards = 16, .window = 4 * MiB, .part = MiB});
    return store->most_reading;
  };
  CHECK(most_reading_of(20) <= 20);
  CHECK(most_reading_of(60) <= 20);
  CHECK(most_reading_of(400) <= 20);
}

TEST_CASE("many small objects are open from the beginning") {
  const auto store = std::make_shared<line_store>(50ms);
  for (char c = 'a'; c < 'q'; ++c) store->objects[std::string("mem:") + c] = 100 * KiB;
  read_all(store, {.shards = 8, .window = 16 * MiB});
  CHECK(store->most_reading == 8);
}

namespace {

/// A window of parts of 1 MiB that are passed one after the other.
class hand {
 public:
  hand(std::size_t least, std::size_t most) : window(least * MiB, most * MiB) {
    window.took(least * MiB / 2, 1s, now_);  // this says nothing
  }
  hand(std::size_t kept, std::size_t least, std::size_t most) : window(kept * MiB, least * MiB, most * MiB) {
    window.took(least * MiB, 1s, now_);  // nor does all of it
  }
  /// A window of parts: the consumer waits for each, and works on each.
  void round(duration wait, duration work = 0ms) {
    const std::size_t parts = size();
    for (std::size_t i = 0; i < parts; ++i) {
      now_ += wait + work;
      window.took(MiB, wait, now_);
    }
  }
  std::size_t size() const { return window.bytes() / MiB; }

  detail::read_window window;

 private:
  time_point now_{};
};

}  // namespace

TEST_CASE("a window doubles as long as that spares waiting, and up to its bound") {
  hand h(2, 12);
  h.round(8ms);
  CHECK(h.size() == 4);
  h.round(4ms);
  CHECK(h.size() == 8);
  h.round(2ms);
  CHECK(h.size() == 12);
  h.round(2ms);
  CHECK(h.size() == 12);
  CHECK(hand(4, 2).size() == 2);
}

TEST_CASE("a window that was doubled in vain rests, and is then doubled again") {
  hand h(2, 64);
  h.round(8ms);
  CHECK(h.size() == 4);
  for (int i = 0; i < detail::read_window::rest; ++i) {
    h.round(7ms);
    CHECK(h.size() == 4);
  }
  h.round(7ms);
  CHECK(h.size() == 8);
  h.round(4ms);  // less waiting: it goes on at once
  CHECK(h.size() == 16);
}

TEST_CASE("of a window the bytes that are no reading ahead do not double, and a doubling in vain is undone") {
  hand h(6, 8, 20);
  h.round(80ms);
  CHECK(h.size() == 10);
  h.round(40ms);  // less waiting
  CHECK(h.size() == 14);
  h.round(40ms);  // not less
  CHECK(h.size() == 10);
  for (int i = 1; i < detail::read_window::rest; ++i) {
    h.round(40ms);
    CHECK(h.size() == 10);
  }
  h.round(40ms);
  CHECK(h.size() == 14);
  h.round(20ms);
  CHECK(h.size() == 20);
  h.round(20ms);  // its bound, too, is undone
  CHECK(h.size() == 14);
  h.window.raise(16 * MiB);
  CHECK(h.size() == 16);
}

TEST_CASE("where doublings are undone a round lasts a while: a moment that was disturbed does not make one look paid") {
  hand h(6, 8, 20);
  for (int i = 0; i < 6; ++i) {
    h.round(1ms);
    CHECK(h.size() == 8);
  }
  h.round(1ms);  // 56 parts in 56 ms
  CHECK(h.size() == 10);
}

TEST_CASE("a window stays while the consumer does not wait, or for less than a sixty-fourth of the time") {
  hand h(2, 64);
  for (int i = 0; i < 100; ++i) h.round(0ms, 10ms);
  for (int i = 0; i < 100; ++i) h.round(1ms, 63ms);
  CHECK(h.size() == 2);
  h.round(1ms, 60ms);
  CHECK(h.size() == 4);
}

TEST_CASE("what the consumer does itself says nothing about a window") {
  hand h(2, 64);
  h.round(8ms);
  h.round(4ms, 200ms);  // a validation in between
  CHECK(h.size() == 8);
}
