// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Each allocation of the disk cache fails in turn: what it had taken is free again, and what is lost is said.

#include <millrace/shards/disk_cache.hpp>

#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "tests/shards/cache_support.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/replaced_new.hpp"

#if !MILLRACE_ASAN && !MILLRACE_TSAN

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

thread_local std::int64_t failing = -1;  // how many allocations are left until one fails; -1: all succeed

}  // namespace

bool millrace::test::allocation_fails() noexcept { return failing >= 0 && failing-- == 0; }

TEST_CASE("a claim whose making finds no memory is free", "[disk_cache]") {
  const test::cache_folder in;
  const std::string name(100, 'a');
  bool made = false;
  int failed = 0;
  for (std::int64_t nth = 0; !made && nth < 1000; ++nth) {
    const auto slots = detail::disk_slots::open(in.path, 64 * MiB, 0, true);  // whose list of claims has no memory yet
    failing = nth;
    try {
      const auto own = slots->try_claim(name, 0, 8 * MiB);
      made = failing >= 0;
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    failing = -1;
    INFO(nth);
    REQUIRE(slots->try_claim(name, 0, 8 * MiB));
    REQUIRE(detail::disk_slots::open(in.path, 64 * MiB, 0, true)->try_claim(name, 0, 8 * MiB));
  }
  CHECK(made);
  CHECK(failed > 3);
}

TEST_CASE("blocks that are not kept for want of memory are counted, and one line says it", "[disk_cache]") {
  const test::cache_folder in;
  const auto store = std::make_shared<test::memory_store>();
  store->objects["mem:0"] = test::random_text(1, 3 * MiB);
  const auto loop = make_event_loop();
  const auto cache = disk_cache(std::shared_ptr<const storage>(store),
                                {.directory = in.path, .bytes = 64 * detail::disk_slots::slot_bytes, .keep_free = 0});
  const shard object("mem:0", 3 * MiB, store->etag);
  test::captured_stderr said(test::captured_stderr::into::pipe);
  // After the part has come: the allocations of its writing fail.
  const auto read = [&](std::int64_t nth) {
    const auto reading = [](const disk_cache_storage& from, shard s, std::int64_t fail) -> task<std::size_t> {
      slab_pool slabs(4 * MiB);
      const storage::part p = co_await from.read(std::move(s), std::string(), 0, 3 * MiB, std::move(slabs));
      failing = fail;
      co_return p.data.size();
    };
    try {
      static_cast<void>(block_on(coroutine_context(*loop), reading(*cache, object, nth)));
    } catch (const std::bad_alloc&) {  // of what ends the reading
    }
    failing = -1;
  };
  std::uint64_t nth = 0;
  for (; nth < 1000; ++nth) {
    const disk_cache_stats before = cache->stats();
    read(static_cast<std::int64_t>(nth));
    const disk_cache_stats now = cache->stats();
    INFO(nth);
    REQUIRE(now.hits + now.misses == before.hits + before.misses + 1);
    if (now.hits > before.hits) break;
    CHECK(now.admitted + now.refused >= before.admitted + before.refused + 3);
  }
  CHECK(nth > 5);
  CHECK(nth < 1000);
  const std::string text = said.text();
  INFO(text);
  CHECK_THAT(text, Contains("millrace: disk_cache: memory is lacking to write what was read: it is not kept"));
  CHECK(text.find("memory is lacking") == text.rfind("memory is lacking"));
}

#endif
