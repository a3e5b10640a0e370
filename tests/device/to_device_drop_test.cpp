// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/device/to_device.hpp>

#include <atomic>
#include <deque>
#include <set>
#include <thread>

#include <millrace/coro/block_on.hpp>
#include <millrace/device/device.hpp>
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
    CHECK(device.control().pending.size() >= 1);
    CHECK(loop.background() == 0);
    loop.drain();
    CHECK(device.control().waited == 0);
  }
  CHECK(device.control().waited >= 1);  // the loop's end, which frees the slots
  check_all_returned(device);
}

TEST_CASE("a stage takes over the slots of one that has ended, and waits for the device instead of allocating",
          "[to_device]") {
  const late_device device;
  {
    testing::virtual_loop loop;
    const auto pass = [&](std::size_t slot_bytes) {
      auto stream = images(8) | batch(2) | to_device(device, {.slots = 3, .slot_bytes = slot_bytes});
      std::deque<device_batch> got;
      block_on(loop, take(stream, got, 3));  // all at once: every slot is used
      CHECK(got.size() == 3);
    };
    const std::size_t given = GENERATE(std::size_t(0), std::size_t(1024));
    pass(given);
    CHECK(device.control().device_made == 3);
    const std::size_t pinned = device.control().pinned_made;
    CHECK(pinned == 3);
    CHECK(device.control().pending.size() == 3);  // nothing has happened yet
    const auto before = loop.elapsed();
    device.control().after = 4;
    pass(given);
    CHECK(loop.elapsed() > before);
    for (int i = 0; i < 5; ++i) pass(given);
    CHECK(device.control().device_made == 3);
    CHECK(device.control().pinned_made == pinned);
    CHECK(device.control().waited == 0);
    CHECK(device.control().wrong == "");
  }
  check_all_returned(device);
}

TEST_CASE("slots serve smaller batches too, and larger ones push them out", "[to_device]") {
  const late_device device;
  device.control().after = 0;
  {
    testing::virtual_loop loop;
    const auto pass = [&](int items) {
      auto stream = images(3 * items) | batch(static_cast<std::size_t>(items)) | to_device(device, {.slots = 2});
      std::deque<device_batch> got;
      block_on(loop, take(stream, got, 2));
      CHECK(got[1].field("label").bytes() == static_cast<std::size_t>(items) * 8);
    };
    for (int epoch = 0; epoch < 4; ++epoch) {
      pass(64);
      pass(32);
      CHECK(device.control().device_made == 2);
      CHECK(device.control().device.size() == 2);
      CHECK(device.control().pinned.size() == 4);
    }
    for (const int items : {1, 100, 200, 300}) pass(items);
    CHECK(device.control().device_made == 8);
    CHECK(device.control().device.size() == 3);
    CHECK(device.control().pinned.size() == 4);
  }
  CHECK(device.control().waited == 0);
  check_all_returned(device);
}

TEST_CASE("memory that is kept is given up where there is no other", "[to_device]") {
  const late_device device;
  device.control().after = 0;
  {
    testing::virtual_loop loop;
    const auto pass = [&](int items) {
      auto stream = images(2 * items) | batch(static_cast<std::size_t>(items)) | to_device(device, {.slots = 2});
      std::deque<device_batch> got;
      block_on(loop, take(stream, got, 2));
      return got.size();
    };
    CHECK(pass(32) == 2);
    device.control().room = 2;  // pieces of device memory
    CHECK(pass(64) == 2);
    CHECK(device.control().device.size() == 2);
  }
  check_all_returned(device);
}

TEST_CASE("the end of a run does not wait for the device, the end of the runtime does", "[to_device]") {
  for (const bool early : {false, true}) {
    INFO((early ? "left early" : "to the end"));
    const late_device device;  // nothing happens on it while the run goes on
    {
      runtime rt;
      int batches = 0;
      for (device_batch& b : rt.run(images(6) | batch(2) | to_device(device, {.slots = 3}))) {
        b.wait(user);
        b.release(user);
        ++batches;
        if (early) break;
      }
      CHECK(batches == (early ? 1 : 3));
      CHECK(device.control().pending.size() >= 1);
      CHECK(device.control().waited == 0);
      CHECK(device.control().device.size() >= 1);
    }
    CHECK(device.control().waited >= 1);
    check_all_returned(device);
  }
}

TEST_CASE("the end of run(), with its runtime, waits for no device", "[to_device]") {
  const auto one = [](const late_device& device, std::size_t slots, int leave_after, device_batch* keep = nullptr) {
    int batches = 0;
    for (device_batch& b : run(images(8) | batch(2) | to_device(device, {.slots = slots}), {.prefetch = 1})) {
      b.wait(user);
      if (++batches < leave_after) continue;
      if (keep != nullptr) *keep = std::move(b);
      break;
    }
    return batches;
  };
  for (const std::size_t slots : {1u, 2u, 3u}) {
    INFO(slots << " slots");
    const late_device device;  // nothing happens on it until the test says so
    CHECK(one(device, slots, 1) == 1);
    CHECK(device.control().waited == 0);
    CHECK(device.control().pending.size() >= 1);  // nothing was freed under these, or check_unused() would tell
    CHECK(device.control().wrong == "");
    const std::size_t made = device.control().device_made;
    CHECK(device.control().device.size() == made);

    device.control().go();  // the next run takes the slots over, or has them freed
    CHECK(one(device, slots, 1) == 1);
    CHECK(device.control().waited == 0);
    CHECK(device.control().device.size() <= slots);

    device_batch kept;
    device.control().go();
    CHECK(one(device, slots, 1, &kept) == 1);
    CHECK(device.control().waited == 0);
    REQUIRE(kept);
    CHECK(kept.host_field("label").values<const std::int64_t>()[0] == 0);
    kept = device_batch();  // its run and its runtime have gone
    CHECK(device.control().waited == 0);
    CHECK(device.control().device.size() >= 1);

    free_device_slots();  // this is the place to wait
    CHECK(device.control().waited >= 1);
    CHECK(device.control().device.empty());
    CHECK(device.control().pinned.empty());
    check_all_returned(device);
  }
}

TEST_CASE("run() on a device that is done leaves no memory", "[to_device]") {
  const late_device device;
  device.control().after = 0;
  for (const bool early : {true, false}) {
    int batches = 0;
    for (device_batch& b : run(images(8) | batch(2) | to_device(device, {.slots = 2}))) {
      b.wait(user);
      b.release(user);
      ++batches;
      if (early) break;
    }
    CHECK(batches == (early ? 1 : 4));
    CHECK(device.control().waited == 0);
    CHECK(device.control().device.empty());
    CHECK(device.control().pinned.empty());
  }
  check_all_returned(device);
}

TEST_CASE("runs by run() side by side share a device's memory", "[to_device]") {
  const late_device device;
  {
    auto left = run(images(8) | batch(2) | to_device(device, {.slots = 1}), {.prefetch = 1});
    auto right = run(images(8) | batch(2) | to_device(device, {.slots = 1}), {.prefetch = 1});
    std::optional<device_batch> a = left.next();
    std::optional<device_batch> b = right.next();
    REQUIRE((a && b));
    { const auto dropped = std::move(left); }
    free_device_slots();  // what the other one uses stays
    CHECK(b->field("label").dims() == shape{2});
    CHECK(device.control().device.size() >= 1);
    a.reset();
  }
  CHECK(device.control().device.size() >= 1);
  free_device_slots();
  check_all_returned(device);
}

TEST_CASE("epochs on a runtime allocate no device memory and no page-locked memory", "[to_device]") {
  const late_device one;
  const late_device other;
  for (const late_device* d : {&one, &other}) d->control().after = 1;
  {
    runtime rt;
    runtime second;
    const auto epoch = [](runtime& on, const late_device& d, bool all_slots) {
      std::deque<device_batch> held;
      int samples = 0;
      for (device_batch& b : on.run(images(100) | batch(10) | to_device(d, {.slots = 3}), {.prefetch = 1})) {
        samples += static_cast<int>(b.size());
        b.wait(user);
        held.push_back(std::move(b));
        if (held.size() == (all_slots ? 3u : 1u)) held.clear();
      }
      CHECK(samples == 100);
    };
    epoch(rt, one, true);
    CHECK(one.control().device_made == 3);
    const std::size_t pinned = one.control().pinned_made;
    CHECK(pinned == 3);
    for (int i = 0; i < 4; ++i) epoch(rt, one, false);
    CHECK(one.control().device_made == 3);
    CHECK(one.control().pinned_made == pinned);
    // Another device, and another runtime, have their own.
    epoch(rt, other, true);
    CHECK(other.control().device_made == 3);
    epoch(second, one, true);
    CHECK(one.control().device_made == 6);
    rt.free_device_slots();
    CHECK(one.control().device.size() == 3);
    CHECK(one.control().pinned.size() == 3);
    CHECK(other.control().device.empty());
    epoch(rt, one, false);
    CHECK(one.control().device_made == 9);
  }
  check_all_returned(one);
  check_all_returned(other);
}

TEST_CASE("epochs on the host device use the same memory", "[to_device]") {
  runtime rt;
  const auto epoch = [&rt](std::size_t at_once) {
    std::set<void*> places;
    std::deque<device_batch> held;
    for (device_batch& b : rt.run(images(60) | batch(5) | to_device(host_device(), {.slots = 3}), {.prefetch = 1})) {
      for (const std::size_t field : {0u, 1u}) places.insert(b.field(field).data());
      held.push_back(std::move(b));
      if (held.size() == at_once) held.clear();
    }
    return places;
  };
  const std::set<void*> first = epoch(3);  // all slots at once
  CHECK(first.size() == 6);
  for (int i = 0; i < 3; ++i) CHECK(epoch(1) == first);
}

TEST_CASE("the batch that a consumer keeps beyond the stage goes back to the next one", "[to_device]") {
  const late_device device;
  std::deque<device_batch> kept;
  {
    testing::virtual_loop loop;
    {
      auto stream = images(4) | batch(2) | to_device(device, {.slots = 2});
      block_on(loop, take(stream, kept, 2));
    }
    CHECK(labels_of(kept[1].host_field("label")) == "2 3 ");
    SECTION("released before the next stage") {
      void* const places[] = {kept[0].field(0).data(), kept[1].field(0).data()};
      kept.clear();
      CHECK(device.control().device.size() == 2);
      device.control().go();
      auto stream = images(4) | batch(2) | to_device(device, {.slots = 2});
      block_on(loop, take(stream, kept, 2));
      CHECK(kept[0].field(0).data() == places[0]);
      CHECK(kept[1].field(0).data() == places[1]);
      CHECK(device.control().device_made == 2);
    }
    SECTION("still held") {
      auto stream = images(4) | batch(2) | to_device(device, {.slots = 1});
      std::deque<device_batch> more;
      block_on(loop, take(stream, more, 1));
      CHECK(device.control().device_made == 3);
      CHECK(labels_of(kept[1].host_field("label")) == "2 3 ");
    }
  }
  CHECK(device.control().device.size() == 2);  // theirs alone
  kept.clear();  // it has no owner left
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
