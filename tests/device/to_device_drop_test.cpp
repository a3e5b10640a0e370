// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/to_device.hpp>

#include <atomic>
#include <deque>
#include <thread>

#include <millrace/coro/block_on.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/device/batches.hpp"

using namespace millrace;
using namespace millrace::test;

TEST_CASE("dropping the stage in the middle of a copy frees nothing too early", "[to_device]") {
  const late_device device;
  {
    testing::virtual_loop loop;
    {
      auto stream = images(8) | batch(2) | to_device(device, {.slots = 3});
      std::deque<device_batch> got;
      block_on(loop, take(stream, got, 1));
      CHECK(device.control().pending.size() >= 1);
    }
    CHECK(device.control().device.size() >= 1);
    CHECK(loop.background() == 0);
    loop.drain();
  }
  CHECK(device.control().pending.size() >= 1);
  CHECK(device.control().waited == 0);
  check_all_returned(device);
}

TEST_CASE("what an ended stage leaves is freed when another one needs a slot", "[to_device]") {
  const late_device device;
  {
    testing::virtual_loop loop;
    const auto pass = [&] {
      auto stream = images(8) | batch(2) | to_device(device, {.slots = 3});
      std::deque<device_batch> got;
      block_on(loop, take(stream, got, 3));
    };
    pass();
    pass();
    CHECK(device.control().device.size() == 6);  // nothing has happened yet
    device.control().go();
    pass();
    CHECK(device.control().device.size() == 3);
    device.control().go();
    pass();
    CHECK(device.control().device.size() == 3);
    CHECK(device.control().waited == 0);
    CHECK(device.control().wrong == "");
  }
  check_all_returned(device);
}

TEST_CASE("the end of a run does not wait for the device", "[to_device]") {
  for (const bool early : {false, true}) {
    INFO((early ? "left early" : "to the end"));
    const late_device device;  // nothing happens on it while the run goes on
    int batches = 0;
    for (device_batch& b : run(images(6) | batch(2) | to_device(device, {.slots = 3}))) {
      b.wait(user);
      b.release(user);
      ++batches;
      if (early) break;
    }
    CHECK(batches == (early ? 1 : 3));
    CHECK(device.control().pending.size() >= 1);
    CHECK(device.control().waited == 0);
    CHECK(device.control().device.size() >= 1);
    check_all_returned(device);
  }
}

TEST_CASE("the last batch of an ended stage frees its slots, or leaves them to the device", "[to_device]") {
  const late_device device;
  std::deque<device_batch> kept;
  {
    testing::virtual_loop loop;
    auto stream = images(4) | batch(2) | to_device(device, {.slots = 2});
    block_on(loop, take(stream, kept, 2));
  }
  SECTION("the device is done") {
    device.control().go();
    kept.pop_front();
    CHECK(device.control().device.size() == 2);
    kept.clear();
    CHECK(device.control().device.empty());
  }
  SECTION("the device is not done") {
    kept.clear();
    CHECK(device.control().device.size() == 2);
    device.control().go();
  }
  SECTION("it is still held") {
    free_ended_slots();
    CHECK(device.control().device.size() == 2);
    CHECK(labels_of(kept[1].host_field("label")) == "2 3 ");
    kept.clear();
  }
  check_all_returned(device);
}

TEST_CASE("a batch may outlive the stage and the loop", "[to_device]") {
  const late_device device;
  std::deque<device_batch> kept;
  {
    testing::virtual_loop loop;
    auto stream = images(8) | batch(2) | to_device(device, {.slots = 3});
    block_on(loop, take(stream, kept, 2));
    stream = {};
    device.control().after = 1;
  }
  REQUIRE(kept.size() == 2);
  kept[0].wait(user);
  kept[0].synchronize();
  CHECK(labels_of(kept[1].field("label")) == "2 3 ");
  CHECK(kept[1].keys()[1] == "k3");
  kept.clear();
  check_all_returned(device);
}

TEST_CASE("dropped at a random moment, nothing is lost and nothing freed too early", "[to_device]") {
  const std::uint64_t first = testing::virtual_loop::seed_from_environment(1);
  for (std::uint64_t seed = first; seed < first + 300; ++seed) {
    INFO("seed " << seed);
    const late_device device;
    rng random(seed);
    device.control().after = static_cast<int>(random.below(4));
    std::deque<device_batch> kept;
    {
      testing::virtual_loop loop(seed);
      const std::size_t slots = 1 + random.below(4);
      auto stream = images(30) | batch(2) | to_device(device, {.slots = slots});
      const std::uint64_t rounds = random.below(12);
      for (std::uint64_t i = 0; i < rounds; ++i) {
        if (kept.size() == slots) kept.pop_front();
        if (random.below(4) == 0) {  // a wait for the next batch that is dropped
          spawned<void> asked(loop, take(stream, kept, 1));
          int turns = static_cast<int>(random.below(4));
          loop.run_until([&] { return turns-- <= 0 || asked.done(); });
          continue;
        }
        block_on(loop, take(stream, kept, 1));
        if (!kept.empty() && random.below(2) == 0) kept.back().wait(user);
        if (random.below(2) == 0) kept.clear();
      }
      if (random.below(2) == 0) kept.clear();
    }
    kept.clear();
    check_all_returned(device);
  }
}

TEST_CASE("releases race with the dropping of the stage", "[to_device]") {
  for (int round = 0; round < 200; ++round) {
    const late_device device;
    device.control().after = 0;
    std::deque<device_batch> held;
    std::atomic<bool> go{false};
    std::thread consumer;
    {
      testing::virtual_loop loop;
      auto stream = images(30) | batch(2) | to_device(device, {.slots = 2});
      block_on(loop, take(stream, held, 2));
      consumer = std::thread([&held, &go] {
        while (!go.load()) {
        }
        held.clear();
      });
      std::deque<device_batch> more;
      spawned<void> asked(loop, take(stream, more, 1));
      go.store(true);
      for (int attempt = 0; attempt < round % 8; ++attempt) {
        int turns = round % 5;
        try {
          loop.run_until([&] { return turns-- <= 0 || asked.done(); });
        } catch (const testing::deadlock&) {  // the other thread has not released yet
        }
      }
    }
    consumer.join();
    check_all_returned(device);
  }
}
