// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The threads of a run: transfers go to all of its loops, and none of them does anything while the run is not read.

#include <millrace/loader/run.hpp>

#include <pthread.h>
#include <time.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/zero_storage.hpp"

using namespace millrace;

namespace {

/// A store that notes which thread has read how many parts.
class noting_storage final : public forwarding_storage {
 public:
  explicit noting_storage(std::shared_ptr<const storage> inner) : forwarding_storage(std::move(inner)) {}

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    task<part> reading = inner()->read(std::move(object), std::move(etag), offset, length, std::move(slabs));
    part result = co_await std::move(reading);
    std::lock_guard lock(mutex_);
    ++parts_[::pthread_self()];
    co_return std::move(result);
  }
  task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const override {
    return read(std::move(object), std::move(etag), 0, length, std::move(slabs));
  }

  std::map<pthread_t, int> parts() const {
    std::lock_guard lock(mutex_);
    return parts_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<pthread_t, int> parts_;
};

task<void> moment() { co_await sleep_for(std::chrono::milliseconds(100)); }

/// Nanoseconds that the thread has computed.
std::int64_t cpu_ns(pthread_t thread) {
  clockid_t clock{};
  timespec t{};
  REQUIRE(::pthread_getcpuclockid(thread, &clock) == 0);
  REQUIRE(::clock_gettime(clock, &t) == 0);
  return std::int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}
std::int64_t cpu_ns(const std::map<pthread_t, int>& threads) {
  std::int64_t sum = 0;
  for (const auto& [thread, parts] : threads) sum += cpu_ns(thread);
  return sum;
}

}  // namespace

TEST_CASE("a run over three loops reads on three threads, in turn; one over one loop on one") {
  for (const unsigned loops : {1u, 3u}) {
    const auto store = std::make_shared<noting_storage>(std::make_shared<test::zero_storage>());
    std::vector<shard> all;
    for (int i = 0; i < 6; ++i) all.emplace_back("mem:" + std::to_string(i), MiB);
    const std::shared_ptr<const storage> s = store;
    std::size_t bytes_read = 0;
    for (const chunk& c : run(from_range(std::move(all)) | fetch(s, {.shards = 3, .window = MiB, .part = 64 * KiB}), {},
                              {.loops = loops})) {
      bytes_read += c.data.size();
    }
    CHECK(bytes_read == 6 * MiB);
    const std::map<pthread_t, int> parts = store->parts();
    CHECK(parts.size() == loops);
    for (const auto& [thread, count] : parts) CHECK(count == 96 / static_cast<int>(loops));
  }
}

TEST_CASE("a pipeline that is not read uses under one percent of a core once it has read ahead") {
  s3_server::background server;
  const bytes content = bytes::copy(std::string(MiB, 'x'));
  for (int i = 0; i < 8; ++i) server.put("corpus", std::to_string(i), content);
  const std::string endpoint = server.endpoint();
  s3::config_options o;
  o.endpoint = endpoint;
  const s3::client c(s3::config(o), s3::credentials("test-key", "test-secret"));
  const std::unique_ptr<event_loop> clock = make_event_loop();
  for (const unsigned loops : {1u, 2u}) {
    for (const bool epoll : {false, true}) {
      CAPTURE(loops, epoll);
      const auto store = std::make_shared<noting_storage>(s3::as_storage(c));
      const std::shared_ptr<const storage> s = store;
      // A bound of 16 parts of the 64 that there are. The test does not wait for more than the first ones, so it is not
      // exhausted: two parts are prefetched, and one is read ahead.
      auto chunks = c.list("s3://corpus/") | fetch(s, {.shards = 4, .window = 512 * KiB, .part = 128 * KiB});
      auto r = run(std::move(chunks), {}, {.loops = loops, .force_epoll = epoll});
      // What the threads compute does not depend on what else the machine does: a pipeline at rest computes nothing,
      // and one that is not never gets there.
      bool idle = false;
      for (int tries = 0; tries < 100 && !idle; ++tries) {
        const std::map<pthread_t, int> before = store->parts();
        const std::int64_t cpu_before = cpu_ns(before);
        const std::int64_t since = monotonic_ns();
        block_on(*clock, moment());
        const std::map<pthread_t, int> after = store->parts();
        int parts = 0;
        for (const auto& [thread, count] : after) parts += count;
        CHECK(parts < 64);
        idle = after == before && after.size() == loops && parts >= 3 &&
               (cpu_ns(after) - cpu_before) * 100 < monotonic_ns() - since;
      }
      CHECK(idle);
      std::size_t bytes_read = 0;
      for (const chunk& piece : r) bytes_read += piece.data.size();
      CHECK(bytes_read == 8 * MiB);  // it was resting, not dead
    }
  }
}
