// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/to_device.hpp>

#include <deque>
#include <string>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/device/device.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/device/batches.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

// Consumers that keep every slot and ask for one more.

TEST_CASE("a consumer that keeps every slot gets an error instead of waiting for ever", "[to_device][slot_wait]") {
  testing::virtual_loop loop;
  std::deque<device_batch> kept;
  SECTION("after half a minute") {
    auto stream = images(100) | batch(2) | to_device(host_device(), {.slots = 3});
    CHECK_THROWS_WITH(block_on(loop, take(stream, kept)),
                      Contains("to_device: all 3 slots are kept by the consumer") && Contains("30000 ms"));
    CHECK(loop.elapsed() == 30s);
    CHECK(kept.size() == 3);
  }
  SECTION("after the time it set") {
    auto stream = images(100) | batch(2) | to_device(host_device(), {.slots = 1, .slot_wait = 7s});
    CHECK_THROWS_WITH(block_on(loop, take(stream, kept)), Contains("the only slot is kept") && Contains("7000 ms"));
    CHECK(loop.elapsed() == 7s);
    CHECK(kept.size() == 1);
  }
  SECTION("never, when it said so") {
    auto stream = images(100) | batch(2) | to_device(host_device(), {.slots = 2, .slot_wait = 0s});
    CHECK_THROWS_AS(block_on(loop, take(stream, kept)), testing::deadlock);
  }
}

TEST_CASE("a wait that is as long as can be said ends when a batch is let go", "[to_device][slot_wait]") {
  testing::virtual_loop loop;
  run_context run;
  auto stream = images(100) | batch(2) | to_device(host_device(), {.slots = 1, .slot_wait = duration::max()});
  std::deque<device_batch> kept;
  spawned<void> asks({loop, run, nullptr}, take(stream, kept, 2));
  run.set_consumer_waits_since(loop.now_ns());
  loop.run_for(24h);
  REQUIRE_FALSE(asks.done());
  kept.pop_front();
  loop.run_until([&] { return asks.done(); });
  CHECK(kept.size() == 1);
}

TEST_CASE("the end of the source needs no slot", "[to_device][slot_wait]") {
  testing::virtual_loop loop;
  auto stream = images(6) | batch(2) | to_device(host_device(), {.slots = 3});
  std::deque<device_batch> kept;
  block_on(loop, take(stream, kept));
  CHECK(kept.size() == 3);
  CHECK(loop.elapsed() == 0s);
}

TEST_CASE("an error of the source needs no slot", "[to_device][slot_wait]") {
  testing::virtual_loop loop;
  const auto broken = []() -> async_generator<labelled_image> {
    for (int i = 0; i < 4; ++i) {
      labelled_image x = numbered(i);
      co_yield give(x);
    }
    throw decode_error("no image");
  };
  auto stream = broken() | batch(2) | to_device(host_device(), {.slots = 2});
  std::deque<device_batch> kept;
  CHECK_THROWS_AS(block_on(loop, take(stream, kept)), decode_error);
  CHECK(kept.size() == 2);
  CHECK(loop.elapsed() == 0s);
}

TEST_CASE("a consumer that lets a batch go in time gets the next one", "[to_device][slot_wait]") {
  testing::virtual_loop loop;
  auto stream = images(100) | batch(2) | to_device(host_device(), {.slots = 2});
  std::deque<device_batch> kept;
  block_on(loop, take(stream, kept, 2));
  for (int i = 0; i < 5; ++i) {
    std::deque<device_batch> more;
    spawned<void> asks(loop, take(stream, more, 1));
    block_on(loop, [](duration d) -> task<void> { co_await sleep_for(d); }(29s));  // another owner takes its time
    REQUIRE_FALSE(asks.done());
    kept.pop_front();
    loop.run_until([&] { return asks.done(); });
    REQUIRE(more.size() == 1);
    kept.push_back(std::move(more.front()));
  }
  CHECK(loop.elapsed() == 145s);
}

TEST_CASE("a consumer that keeps fewer batches than there are slots goes on to the end", "[to_device][slot_wait]") {
  testing::virtual_loop loop;
  auto stream = images(200) | batch(2) | to_device(host_device(), {.slots = 4});
  std::deque<device_batch> kept;
  block_on(loop, take(stream, kept, 3));  // for good
  std::string seen;
  for (;;) {
    std::deque<device_batch> one;
    block_on(loop, take(stream, one, 1));
    if (one.empty()) break;
    seen += labels_of(one[0].field("label"));
  }
  CHECK(seen.substr(0, 4) == "6 7 ");
  CHECK(seen.substr(seen.size() - 8) == "198 199 ");
  CHECK(labels_of(kept[0].field("label")) == "0 1 ");
  CHECK(loop.elapsed() == 0s);
}

TEST_CASE("a slow source and a slow device are no fault of the consumer", "[to_device][slot_wait]") {
  testing::virtual_loop loop;
  SECTION("the source") {
    const auto slow = []() -> async_generator<labelled_image> {
      for (int i = 0; i < 4; ++i) {
        co_await sleep_for(100s);
        labelled_image x = numbered(i);
        co_yield give(x);
      }
    };
    auto stream = slow() | batch(1) | to_device(host_device(), {.slots = 4});
    std::deque<device_batch> kept;
    block_on(loop, take(stream, kept));
    CHECK(kept.size() == 4);
  }
  SECTION("the device") {
    const late_device device;
    device.control().after = 100000;  // milliseconds
    auto stream = images(4) | batch(1) | to_device(device, {.slots = 1});
    for (int i = 0; i < 3; ++i) {
      std::deque<device_batch> one;
      block_on(loop, take(stream, one, 1));
      CHECK(one.size() == 1);
    }
    CHECK(loop.elapsed() > 100s);
  }
}

TEST_CASE("the time does not count while the training thread is busy", "[to_device][slot_wait]") {
  testing::virtual_loop loop;
  run_context run;
  run.set_consumer_waits_since(run_context::not_waiting);
  auto stream = images(100) | batch(2) | to_device(host_device(), {.slots = 2});
  std::deque<device_batch> kept;
  spawned<void> prefetch({loop, run, nullptr}, take(stream, kept));  // asks ahead of the training thread
  block_on(loop, [](duration d) -> task<void> { co_await sleep_for(d); }(1000s));
  REQUIRE_FALSE(prefetch.done());
  CHECK(kept.size() == 2);
  SECTION("it takes a batch in the end") {
    kept.pop_front();
    block_on(loop, [](duration d) -> task<void> { co_await sleep_for(d); }(1000s));
    CHECK(kept.size() == 2);
    CHECK_FALSE(prefetch.done());
  }
  SECTION("it asks, too") {
    run.set_consumer_waits_since(loop.now_ns());
    const time_point asked = loop.now();
    loop.run_until([&] { return prefetch.done(); });
    CHECK(loop.now() - asked == 30s);
    CHECK_THROWS_AS(prefetch.take(), configuration_error);
  }
}

TEST_CASE("a training loop that keeps every batch gets the sentence, or the end", "[to_device][slot_wait][run]") {
  const auto pipeline = [](int n) {
    return images(n) | batch(2) | to_device(host_device(), {.slots = 3, .slot_wait = 1ms});
  };
  std::vector<device_batch> keep;
  SECTION("more batches than slots") {
    const auto train = [&] {
      for (device_batch& b : run(pipeline(100))) keep.push_back(std::move(b));
    };
    CHECK_THROWS_WITH(train(), Contains("all 3 slots are kept by the consumer"));
  }
  SECTION("as many") {
    for (device_batch& b : run(pipeline(6))) keep.push_back(std::move(b));
  }
  CHECK(keep.size() == 3);
}
