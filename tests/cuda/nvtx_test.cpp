// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Ranges in NVTX, counted by a shared object in the place of a profiler.

#include <millrace/cuda/nvtx.hpp>

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/shards.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

struct row {
  explicit row(float v) : value(v) {}
  float value;
};
void collate(const row& r, sample_writer& out) { out.write("value", r.value); }

}  // namespace

TEST_CASE("a profiler sees jobs by their stages, copies and training steps as ranges of NVTX") {
  const char* const counter = MILLRACE_TEST_NVTX_COUNTER;
  if (::access(counter, R_OK) != 0) MILLRACE_SKIP("the counter of ranges is not here");
  REQUIRE(::setenv("NVTX_INJECTION64_PATH", counter, 1) == 0);  // no range has begun in this process
  {
    runtime rt({.threads = 2, .ranges = &cuda::nvtx_ranges});
    auto run = rt.run(shards("train-{0..7}.tar") |
                      map_concurrent([](const shard& s) { return row(static_cast<float>(s.url.size())); }) | batch(2) |
                      to_device(host_device()));
    while (run.next()) continue;
  }
  void* const object = ::dlopen(counter, RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(object != nullptr);  // NVTX has loaded it
  const auto seen = reinterpret_cast<int (*)(const char*)>(::dlsym(object, "nvtx_ranges_seen"));
  REQUIRE(seen != nullptr);
  CHECK(seen("map_concurrent") == 8);
  CHECK(seen("copy") == 4);
  CHECK(seen("first item") == 1);
  CHECK(seen("step") == 4);
  CHECK(seen("wait") == 4);
  CHECK(seen(nullptr) == 0);
  ::dlclose(object);
}
