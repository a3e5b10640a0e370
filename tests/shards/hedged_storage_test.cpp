// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/hedged_storage.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/storage_set.hpp>
#include <millrace/testing/store_limits.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using testing::virtual_loop;

namespace {

/// A store whose n-th read takes the n-th time, the usual 10 ms after the last, and fails where told to. Every byte of
/// a part is the number of its read.
class timed_store final : public storage {
 public:
  std::vector<duration> times;
  std::vector<bool> fails;
  duration held{0};  // of each part, while the store asks for fewer requests
  mutable std::size_t reads = 0;
  mutable std::size_t small_reads = 0;
  mutable std::size_t under_way = 0;

  bool serves(std::string_view url) const noexcept override { return url == "mem:x"; }
  task<part> read(shard object, std::string, std::uint64_t offset, std::size_t length, slab_pool) const override {
    struct counted {
      explicit counted(const timed_store& s) : store(s) { ++store.under_way; }
      ~counted() { --store.under_way; }
      const timed_store& store;
    } count(*this);
    const std::size_t n = reads++;
    // Not inside the co_await: g++ 12 evaluates both arms there.
    const duration pause = n < times.size() ? times[n] : duration(10ms);
    co_await sleep_for(pause);
    if (n < fails.size() && fails[n]) throw io_error("read " + std::to_string(n), where{object.url, offset, ""});
    storage::part p;
    p.data = bytes::copy(std::string(length, static_cast<char>(n)));
    p.total = 1'000'000;
    p.first_byte = 5ms;
    p.held = held;
    co_return p;
  }
  task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const override {
    ++small_reads;
    return read(std::move(object), std::move(etag), 0, length, std::move(slabs));
  }
};

class fixture {
 public:
  explicit fixture(double extra = 1) : store(std::make_shared<timed_store>()), hedge(hedged(store, extra)) {}

  /// Reads once; the number of the read that came first, or what went wrong.
  std::string read(std::size_t length = 1000, bool small = false) {
    const duration before = loop.elapsed();
    std::string result;
    try {
      task<storage::part> asking = small ? hedge->read_small(shard("mem:x"), "", length, slab_pool(64 * KiB))
                                         : hedge->read(shard("mem:x"), "", 0, length, slab_pool(64 * KiB));
      const storage::part p = block_on(loop, std::move(asking));
      CHECK(p.data.size() == length);
      first_byte = p.first_byte;
      result = std::to_string(static_cast<int>(p.data.view().front()));
    } catch (const error& e) {
      result = e.reason();
    }
    took = loop.elapsed() - before;
    CHECK(store->under_way == 0);
    CHECK(loop.frames() == 0);
    CHECK(loop.timers() == 0);
    return result;
  }
  /// Enough reads of the usual 10 ms for a judgement.
  void learn() {
    store->times.resize(store->reads + detail::part_times::least, 10ms);
    for (std::size_t i = 0; i < detail::part_times::least; ++i) {
      const std::size_t n = store->reads;
      CHECK(read() == std::to_string(n));
    }
  }

  virtual_loop loop;
  std::shared_ptr<timed_store> store;
  std::shared_ptr<const storage> hedge;
  duration took{0};
  duration first_byte{0};
};

/// So long, and as much longer as the times that are known may be off.
bool about(duration d, duration expected) { return d >= expected && d <= expected + 2ms; }

}  // namespace

TEST_CASE("a part much slower than its peers is asked for again, and the first to come counts") {
  fixture f;
  f.learn();
  f.store->times.push_back(1h);  // number 20; the second request takes the usual time
  CHECK(f.read() == "21");
  CHECK(about(f.took, 30ms));  // twice the usual, then once
  CHECK(about(f.first_byte, 25ms));
  f.store->times.resize(22, 10ms);
  f.store->times.push_back(25ms);  // number 22 is late, and still first
  f.store->times.push_back(1h);
  CHECK(f.read() == "22");
  CHECK(f.took == 25ms);
  CHECK(f.store->reads == 24);
}

TEST_CASE("a small object that is slow to come is asked for again in the same way") {
  fixture f;
  f.learn();
  CHECK(f.store->small_reads == 0);
  f.store->times.push_back(1h);
  CHECK(f.read(1000, true) == "21");
  CHECK(f.store->small_reads == 2);
}

TEST_CASE("no second request before there is something to compare with") {
  fixture f;
  f.store->times.push_back(1h);
  CHECK(f.read() == "0");
  f.learn();
  f.store->times.push_back(1h);
  CHECK(f.read(1'000'000) == "21");  // nothing is known about parts of that size
  CHECK(f.took == 1h);
  fixture longer;
  longer.store->times.resize(detail::part_times::least, 10ms);
  for (std::size_t i = 0; i < detail::part_times::least; ++i) longer.read(1'000'000);
  longer.store->times.push_back(1h);
  CHECK(longer.read() == "21");  // a longer one would have come
  CHECK(about(longer.took, 30ms));
}

TEST_CASE("second requests are bounded") {
  fixture f(0.1);
  f.learn();  // three are allowed by now
  f.store->times.resize(1000, 10ms);
  const std::size_t before = f.store->reads;
  for (int i = 0; i < 40; ++i) {
    f.store->times[f.store->reads] = 100ms;
    f.read();
  }
  CHECK(f.store->reads - before <= 40 + 7);
  CHECK(f.store->reads - before >= 40 + 2);
}

TEST_CASE("a part whose second request is late, too, is asked for once more, and no more than that") {
  fixture f;
  f.learn();
  f.store->times.insert(f.store->times.end(), {1h, 1h});
  CHECK(f.read() == "22");
  CHECK(about(f.took, 50ms));
  f.store->times.resize(23, 10ms);
  f.store->times.insert(f.store->times.end(), {200ms, 1h, 1h});
  CHECK(f.read() == "23");
  CHECK(f.store->reads == 26);
}

TEST_CASE("a part that was requested before anything was known is late as soon as it is by others") {
  fixture f;
  f.store->times.push_back(1h);
  spawned<storage::part> early(f.loop, f.hedge->read(shard("mem:x"), "", 0, 1000, slab_pool(64 * KiB)));
  f.loop.run_until([&] { return f.store->under_way == 1; });
  for (std::size_t i = 0; i < detail::part_times::least; ++i) {
    static_cast<void>(block_on(f.loop, f.hedge->read(shard("mem:x"), "", 0, 1000, slab_pool(64 * KiB))));
  }
  f.loop.run_for(120ms);
  CHECK(early.done());
  CHECK(f.store->reads == 22);
}

TEST_CASE("a part that is very late takes what later requests will allow, and no other does") {
  fixture f(0.02);
  f.learn();  // one is allowed
  f.store->times.push_back(1h);
  CHECK(f.read() == "21");
  CHECK(about(f.took, 30ms));
  f.store->times.resize(22, 10ms);
  f.store->times.push_back(30ms);
  CHECK(f.read() == "22");
  CHECK(f.store->reads == 23);
  f.store->times.push_back(1h);
  CHECK(f.read() == "24");
  CHECK(f.took >= 50ms);  // after twice its patience, which has become longer
  CHECK(f.took < 65ms);
}

TEST_CASE("while the store asks for fewer requests there are no second ones") {
  fixture f(0.02);
  f.learn();
  f.store->held = 1ms;
  f.read();
  f.store->held = 0ms;
  f.store->times.resize(f.store->reads, 10ms);
  f.store->times.push_back(1h);
  CHECK(f.read() == "21");
  CHECK(f.took == 1h);
}

TEST_CASE("nothing is asked for twice where that is off, or where all parts take as long") {
  fixture off(0);
  off.learn();
  off.store->times.push_back(1h);
  CHECK(off.read() == "20");
  fixture even;
  even.learn();
  for (int i = 0; i < 1000; ++i) {
    even.store->times.push_back(i % 2 == 0 ? 10ms : 18ms);
    even.read();
  }
  CHECK(even.store->reads == 1020);
}

TEST_CASE("second requests for the parts of a store far away are few, and halve the longest times") {
  fixture f(retry_options().hedges);
  rng random(7, 0, 0);
  for (int i = 0; i < 30'000; ++i) {
    f.store->times.push_back(testing::latency_curve().draw(random));
  }
  std::vector<duration> took;
  for (int i = 0; i < 20'000; ++i) {
    f.read();
    took.push_back(f.took);
  }
  CHECK(f.store->reads > 20'100);
  CHECK(f.store->reads < 20'400);
  std::sort(took.begin(), took.end());
  CHECK(took[19'980] < 500ms);  // one of 1,000: a second without them
}

TEST_CASE("a part fails when both requests have; before that, the other one counts") {
  fixture f;
  f.learn();
  f.store->fails.assign(20, false);
  f.store->fails.push_back(true);  // number 20 fails at once: that is no slowness
  CHECK(f.read() == "read 20");
  CHECK(f.store->reads == 21);
  f.store->times.resize(21, 10ms);
  f.store->times.push_back(25ms);
  f.store->fails.push_back(true);  // number 21 is late and fails, its second request does not
  CHECK(f.read() == "22");
  CHECK(about(f.took, 30ms));
  f.store->times = std::vector<duration>(23, 10ms);
  f.store->times.push_back(35ms);
  f.store->fails.resize(24, false);
  f.store->fails.push_back(true);  // number 24, the second request for 23, fails
  CHECK(f.read() == "23");
  CHECK(f.took == 35ms);
  f.store->times.resize(25, 10ms);
  f.store->times.push_back(35ms);
  f.store->fails.push_back(true);
  f.store->fails.push_back(true);  // both
  CHECK(f.read() == "read 25");    // which failed first
}

TEST_CASE("a part that fails when its second request comes is there") {
  for (const bool first_fails : {true, false}) {
    fixture f;
    f.learn();
    f.store->times.insert(f.store->times.end(), {40ms, 20ms});  // asked for again after 20 ms
    f.store->fails.assign(20, false);
    f.store->fails.insert(f.store->fails.end(), {first_fails, !first_fails});
    CHECK(f.read() == (first_fails ? "21" : "20"));
    CHECK(f.took == 40ms);
  }
}

TEST_CASE("dropping a part that was asked for twice drops both requests") {
  fixture f;
  f.learn();
  f.store->times.insert(f.store->times.end(), {1h, 1h});
  {
    spawned<storage::part> reading(f.loop, f.hedge->read(shard("mem:x"), "", 0, 1000, slab_pool(64 * KiB)));
    f.loop.run_until([&] { return f.store->under_way == 2; });
  }
  CHECK(f.store->under_way == 0);
  CHECK(f.loop.frames() == 0);
  CHECK(f.loop.timers() == 0);
}

TEST_CASE("a hedged store is a store, and its options are checked") {
  const auto inner = std::make_shared<timed_store>();
  CHECK(hedged(inner)->serves("mem:x"));
  CHECK_FALSE(hedged(inner)->serves("mem:y"));
  CHECK_FALSE(hedged(inner)->may_be_sequential());
  CHECK_THROWS_AS(hedged(inner, -0.1), configuration_error);
  CHECK_THROWS_AS(hedged(inner, std::numeric_limits<double>::quiet_NaN()), configuration_error);
  CHECK_THROWS_AS(hedged(inner, 2), configuration_error);
  virtual_loop loop;
  std::vector<shard> one{shard("mem:x", 1000)};
  struct count {
    static task<std::size_t> run(stream<chunk> in) {
      std::size_t n = 0;
      while (std::optional<chunk> c = co_await in.next()) n += c->data.size();
      co_return n;
    }
  };
  inner->times.push_back(1ms);
  CHECK_THROWS_AS(block_on(loop, count::run(from_range(std::move(one)) | fetch(hedged(inner)))), changed_error);
}
