// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/to_device.hpp>

#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/device/device.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/device/batches.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

TEST_CASE("items become batches on the host device, in order and complete", "[to_device]") {
  testing::virtual_loop loop;
  auto stream = images(10) | batch(4) | to_device(host_device(), {.slots = 2});
  std::string seen;
  for (int expected : {4, 4, 2}) {
    std::deque<device_batch> got;
    block_on(loop, take(stream, got, 1));
    REQUIRE(got.size() == 1);
    device_batch& b = got[0];
    CHECK(b.size() == static_cast<std::size_t>(expected));
    CHECK(b.device() == "host");
    b.wait(host_stream);
    CHECK(b.ready());
    b.synchronize();
    CHECK(b.field("image").dims().text() == std::to_string(expected) + "x2x2x3");
    CHECK(labels_of(b.field("label")) == labels_of(b.host_field("label")));
    CHECK(b.field("label").data() != b.host_field("label").data());
    seen += labels_of(b.field("label"));
    CHECK(b.keys().size() == b.size());
    CHECK(byte_size(b) == b.layout().bytes_for(b.size()));
    b.release(host_stream);
    CHECK_FALSE(b);
    CHECK(byte_size(b) == 0);
    CHECK_THROWS_AS(b.size(), usage_error);
    CHECK_THROWS_AS(b.wait(host_stream), usage_error);
    CHECK_THROWS_AS(b.release(host_stream), usage_error);
  }
  CHECK(seen == "0 1 2 3 4 5 6 7 8 9 ");
  std::deque<device_batch> end;
  block_on(loop, take(stream, end, 1));
  CHECK(end.empty());
}

TEST_CASE("a pool that ends before the stage that uses it ends the stream with a sentence", "[to_device]") {
  testing::virtual_loop loop;
  millrace::stream<device_batch> stream;
  {
    cpu_pool pool(1);
    stream = images(4) | batch(2) | to_device(host_device(), {.on = &pool});
  }
  std::deque<device_batch> got;
  CHECK_THROWS_AS(block_on(loop, take(stream, got, 1)), usage_error);
  CHECK(got.empty());
}

TEST_CASE("a function passed to the stage says how items are laid out", "[to_device]") {
  testing::virtual_loop loop;
  const auto number = [](const int& i, sample_writer& out) { out.write("n", static_cast<std::int64_t>(i)); };
  const auto numbers = []() -> async_generator<int> {
    for (int i = 0; i < 3; ++i) co_yield i;
  };
  auto stream = numbers() | batch(3) | to_device(host_device(), {}, number);
  std::deque<device_batch> got;
  block_on(loop, take(stream, got));
  REQUIRE(got.size() == 1);
  CHECK(labels_of(got[0].field("n")) == "0 1 2 ");
}

TEST_CASE("the stage works ahead as far as it has slots, and no farther", "[to_device]") {
  const late_device device;
  device.control().after = 0;
  {
    testing::virtual_loop loop;
    int made = 0;
    auto stream = images(100, &made) | batch(2) | to_device(device, {.slots = 3});
    CHECK(stream.bounds().back().items == 3);
    std::deque<device_batch> held;
    block_on(loop, take(stream, held, 1));
    for (int i = 0; i < 10; ++i)
      block_on(loop, [](executor& ex) -> task<void> {
        (void)ex;
        co_await yield_now();
      }(loop));
    CHECK(made == 8);  // three batches in the slots, one in hand
    CHECK(device.control().copies == 3);
    held.clear();  // released: one more
    block_on(loop, take(stream, held, 1));
    for (int i = 0; i < 10; ++i)
      block_on(loop, [](executor& ex) -> task<void> {
        (void)ex;
        co_await yield_now();
      }(loop));
    CHECK(made == 10);
    CHECK(device.control().device.size() == 3);  // the same three slots
  }
  check_all_returned(device);
}

TEST_CASE("the addresses of the slots stay the same", "[to_device]") {
  testing::virtual_loop loop;
  const late_device device;
  device.control().after = 0;
  auto stream = images(40) | batch(2) | to_device(device, {.slots = 3});
  std::set<void*> addresses;
  for (int i = 0; i < 20; ++i) {
    std::deque<device_batch> one;
    block_on(loop, take(stream, one, 1));
    REQUIRE(one.size() == 1);
    one[0].wait(user);
    addresses.insert(one[0].field(0).data());
  }
  CHECK(addresses.size() == 3);
}

TEST_CASE("a slot is used again only after the copy and every consumer's stream", "[to_device]") {
  testing::virtual_loop loop;
  const late_device device;
  auto stream = images(8) | batch(2) | to_device(device, {.slots = 1});
  std::deque<device_batch> got;
  block_on(loop, take(stream, got, 1));
  got[0].wait(user);
  got[0].release(user);
  got.clear();
  device.control().after = 5;  // from now on the events become true after six questions
  const std::size_t asked = device.control().asked;
  block_on(loop, take(stream, got, 1));
  CHECK(got.size() == 1);
  // Questions at 50, 150, 350, 750 us, then every millisecond: few, and none in between.
  CHECK(device.control().asked - asked <= 10);
  CHECK(loop.elapsed() >= 750us);
  CHECK(loop.elapsed() <= 6ms);
  CHECK(device.control().synchronized == 0);
}

TEST_CASE("while the consumer holds every slot nothing is polled, and its release wakes the stage", "[to_device]") {
  testing::virtual_loop loop;
  const late_device device;
  device.control().after = 0;
  auto stream = images(8) | batch(2) | to_device(device, {.slots = 2, .slot_wait = 0s});
  std::deque<device_batch> held;
  block_on(loop, take(stream, held, 2));
  std::deque<device_batch> more;
  CHECK_THROWS_AS(block_on(loop, take(stream, more, 1)), testing::deadlock);  // no timer is armed
  held.pop_front();
  block_on(loop, take(stream, more, 1));
  CHECK(more.size() == 1);
}

TEST_CASE("a release on another thread wakes the stage", "[to_device]") {
  testing::virtual_loop loop;
  cpu_pool cores(1);
  const late_device device;
  device.control().after = 0;
  auto stream = images(400) | batch(2) | to_device(device, {.slots = 2, .on = &cores});
  const auto consume = [](millrace::stream<device_batch>& from, cpu_pool& on) -> task<std::string> {
    std::string seen;
    for (;;) {
      std::optional<device_batch> b = co_await from.next();
      if (!b) break;
      seen += labels_of(b->host_field("label"));
      device_batch* const last = &*b;
      co_await on.run([last] {
        last->wait(user);
        last->release();
      });
    }
    co_return seen;
  };
  const std::string seen = block_on(loop, consume(stream, cores));
  std::string expected;
  for (int i = 0; i < 400; ++i) expected += std::to_string(i) + " ";
  CHECK(seen == expected);
}

TEST_CASE("batches that a pool of the device made are copied from where they lie", "[to_device]") {
  testing::virtual_loop loop;
  const late_device device;
  device.control().after = 0;
  const batch_layout layout(4, {{"label", dtype::i64}});
  {
    batch_pool pool(layout, device);
    auto stream = ready_batches(pool, 6) | to_device(device, {.slots = 2});
    for (int i = 0; i < 6; ++i) {
      std::deque<device_batch> got;
      block_on(loop, take(stream, got, 1));
      got[0].synchronize();
      CHECK(labels_of(got[0].field("label")).substr(0, 2) == std::to_string(i * 100).substr(0, 1) + (i ? "0" : " "));
    }
    CHECK(pool.peak() <= 3);
    CHECK(device.control().pinned.size() == pool.peak());
  }
  device.control().copies = 0;
  {
    auto stream = ready_batches(batch_pool(layout), 6) | to_device(device, {.slots = 2});
    for (int i = 0; i < 6; ++i) {
      std::deque<device_batch> got;
      block_on(loop, take(stream, got, 1));
      got[0].synchronize();
      CHECK(labels_of(got[0].field("label")) == labels_of(got[0].host_field("label")));
    }
  }
  CHECK(device.control().copies == 6);
  CHECK(device.control().unpinned == 0);  // staged first
}

TEST_CASE("an error upstream comes after the batches before it", "[to_device]") {
  testing::virtual_loop loop;
  const late_device device;
  device.control().after = 0;
  const auto broken = []() -> async_generator<labelled_image> {
    for (int i = 0; i < 4; ++i) {
      labelled_image x = numbered(i);
      co_yield give(x);
    }
    throw decode_error("no image");
  };
  auto stream = broken() | batch(2) | to_device(device, {.slots = 3});
  std::deque<device_batch> got;
  CHECK_THROWS_AS(block_on(loop, take(stream, got)), decode_error);
  CHECK(got.size() == 2);
  block_on(loop, take(stream, got));
  CHECK(got.size() == 2);
}

TEST_CASE("errors of the device end the stream and lose no memory", "[to_device]") {
  const late_device device;
  {
    testing::virtual_loop loop;
    auto stream = images(20) | batch(2) | to_device(device, {.slots = 2});
    std::deque<device_batch> got;
    device.control().after = 0;
    SECTION("the copy") {
      device.control().fail_copies = 2;
      CHECK_THROWS_WITH(block_on(loop, take(stream, got)), Contains("the copy failed"));
    }
    SECTION("the record after it") {
      device.control().fail_records = 2;
      CHECK_THROWS_WITH(block_on(loop, take(stream, got)), Contains("the record failed"));
    }
    SECTION("the record of a release") {
      block_on(loop, take(stream, got, 2));
      got[0].wait(user);
      device.control().fail_records = 1;
      got.pop_front();
      CHECK_THROWS_WITH(block_on(loop, take(stream, got)), Contains("the record failed"));
    }
    SECTION("a stream of another kind") {
      block_on(loop, take(stream, got, 1));
      CHECK_THROWS_AS(got[0].wait(host_stream), configuration_error);
      CHECK_THROWS_AS(got[0].release(host_stream), configuration_error);
      CHECK(got[0]);
    }
  }
  check_all_returned(device);
}
