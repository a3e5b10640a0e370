// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/to_device.hpp>

#include <atomic>
#include <deque>
#include <thread>

#include <millrace/coro/block_on.hpp>
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
    CHECK(device.control().synchronized == 0);
    CHECK(loop.background() == 1);
    device.control().after = 3;
    loop.drain();
    CHECK(device.control().synchronized >= 1);  // of events that are known to be done
    CHECK(device.control().pending.empty());
    CHECK(loop.background() == 0);
    check_all_returned(device);
  }
}

TEST_CASE("a batch may outlive the stage and the loop", "[to_device]") {
  const late_device device;
  std::deque<device_batch> kept;
  {
    testing::virtual_loop loop;
    auto stream = images(8) | batch(2) | to_device(device, {.slots = 3});
    block_on(loop, take(stream, kept, 2));
    stream = async_generator<device_batch>();
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
          started<void> asked(loop, take(stream, kept, 1));
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
      started<void> asked(loop, take(stream, more, 1));
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
