// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/cuda/stream_device.hpp>
#include <millrace/loader/run.hpp>

#include <cstdint>
#include <string>
#include <utility>

#include <millrace/device/fill_batches.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/sources.hpp>

#include "tests/cuda/session.hpp"

using namespace millrace;

// The whole way on real threads: a loop, a pool, a training thread, copies on one stream and work on another.

namespace {

auto squares(std::int64_t n, const cuda::stream& copies, std::size_t slots) {
  batch_pool pool(batch_layout(100, {{"square", dtype::i64}}), copies);
  const auto fill = [](std::int64_t i, const batch_row& row) {
    row.set("square", i * i);
    row.key(std::to_string(i));
  };
  return iota(n) | fill_batches(pool, fill) | to_device(copies, {.slots = slots});
}

}  // namespace

TEST_CASE("a training loop on its own thread gets every batch complete", "[cuda][run]") {
  MILLRACE_CUDA_SESSION();
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  for (std::size_t slots : {1, 2, 3}) {
    std::int64_t next = 0;
    for (device_batch& b : run(squares(5000, copies, slots), {.prefetch = 2})) {
      b.wait(training.get());
      const tensor_view there = b.field("square");
      const std::string got = test::read_back(training.get(), there.data(), there.bytes());
      const tensor_view here = b.host_field("square");
      CHECK(got == std::string(static_cast<const char*>(here.data()), here.bytes()));
      for (std::int64_t v : here.values<std::int64_t>()) {
        if (v != next * next) FAIL_CHECK("item " << next << " is " << v);
        ++next;
      }
    }
    CHECK(next == 5000);
  }
  free_device_slots();
}

TEST_CASE("a training loop may leave early and keep a batch", "[cuda][run]") {
  MILLRACE_CUDA_SESSION();
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  device_batch kept;
  for (int leave_at : {1, 2, 7}) {
    int n = 0;
    for (device_batch& b : run(squares(100000, copies, 3), {.prefetch = 2})) {
      b.wait(training.get());
      if (++n < leave_at) continue;
      kept = std::move(b);
      break;
    }
    REQUIRE(kept);
    const tensor_view there = kept.field("square");
    const std::string got = test::read_back(training.get(), there.data(), there.bytes());
    const tensor_view here = kept.host_field("square");
    CHECK(got == std::string(static_cast<const char*>(here.data()), here.bytes()));
    CHECK(kept.keys()[0] == std::to_string((leave_at - 1) * 100));
  }
  kept = device_batch();
  free_device_slots();
}
