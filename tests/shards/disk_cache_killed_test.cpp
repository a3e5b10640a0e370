// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/disk_cache.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/log.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/cache/cache_folder.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "tests/shards/cache_support.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;

// Processes of a host on one folder, which are killed.
namespace {

constexpr std::size_t object_bytes = MiB + 300'000;
constexpr std::uint64_t sets = 2, objects = 3, versions = 2;

std::string url_of(std::uint64_t set, std::uint64_t object) {
  return "mem:" + std::to_string(set) + '/' + std::to_string(object);
}

std::shared_ptr<test::memory_store> store_of(std::uint64_t version) {
  auto store = std::make_shared<test::memory_store>();
  store->etag = "\"v" + std::to_string(version) + "\"";
  for (std::uint64_t i = 0; i < sets * objects; ++i) {
    store->objects[url_of(i % sets, i / sets)] = test::random_text(100 * version + i + 1, object_bytes);
  }
  return store;
}

/// Reads ranges of one data set, which may take the place of another in the cache, until it is killed or has read
/// `reads`. The exit status: 0; 1 where bytes came that the store does not have, 2 for an error, 3 where nothing came
/// from the disk. Each read is a byte in `progress`.
int child(const std::string& folder, std::uint64_t seed, std::uint64_t reads, int progress) {
  set_log([](const log_record&) {});
  try {
    rng random(seed);
    const auto store = store_of(random.below(versions));
    const std::uint64_t set = random.below(sets);
    const auto cache = disk_cache(std::shared_ptr<const storage>(store),
                                  {.directory = folder, .bytes = 3 * detail::disk_slots::slot_bytes, .keep_free = 0});
    const auto loop = make_event_loop();
    for (std::uint64_t i = 0; i < reads; ++i) {
      const std::string url = url_of(set, random.below(objects));
      const std::uint64_t offset = random.below(2) == 0 ? random.below(object_bytes) : 0;
      const std::size_t length = 1 + random.below(object_bytes - offset);
      const storage::part p = block_on(
          coroutine_context(*loop),
          cache->read(shard(url, object_bytes, store->etag), std::string(), offset, length, slab_pool(2 * MiB)));
      if (p.data.view() != std::string_view(store->objects.at(url)).substr(offset, length)) return 1;
      if (progress >= 0 && ::write(progress, "", 1) != 1) return 2;
    }
    return cache->stats().hits > 0 || reads == 0 ? 0 : 3;
  } catch (...) {
    return 2;
  }
}

pid_t start(const std::string& folder, std::uint64_t seed, std::uint64_t reads, int progress) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(child(folder, seed, reads, progress));
  REQUIRE(pid > 0);
  return pid;
}

int status_of(pid_t pid) {
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return status;
}

void kill_processes(std::uint64_t kills, std::uint64_t seed) {
  constexpr std::size_t processes = 8;
  const test::cache_folder in;
  rng random(seed);
  int progress[2];
  REQUIRE(::pipe(progress) == 0);
  class all_of {  // killed where a check fails, too: they hold the test's output open
   public:
    ~all_of() {
      for (const pid_t p : running) {
        if (p > 0 && ::kill(p, SIGKILL) == 0) ::waitpid(p, nullptr, 0);
      }
    }
    pid_t running[processes] = {};
  } all;
  pid_t(&running)[processes] = all.running;
  std::uint64_t next = seed * 100'000;
  for (pid_t& p : running) p = start(in.path, ++next, 1'000'000, progress[1]);
  for (std::uint64_t i = 0; i < kills; ++i) {
    char done[64];
    for (std::uint64_t reads = random.below(20); reads > 0; --reads) REQUIRE(::read(progress[0], done, 1) == 1);
    pid_t& p = running[random.below(processes)];
    ::kill(p, SIGKILL);
    const int status = status_of(std::exchange(p, 0));
    INFO("kill " << i << " of seed " << seed << ", status " << status);
    REQUIRE(WIFSIGNALED(status));  // else it had ended with a wrong byte (1) or an error (2)
    p = start(in.path, ++next, 1'000'000, progress[1]);
  }
  for (pid_t& p : running) {
    ::kill(p, SIGKILL);
    CHECK(WIFSIGNALED(status_of(std::exchange(p, 0))));
  }
  ::close(progress[0]);
  ::close(progress[1]);
  // What is left of it serves the next process, and every claim is free.
  CHECK(status_of(start(in.path, ++next, 30, -1)) == 0);
  const auto slots = detail::disk_slots::open(in.path, 64 * MiB, 0, true);
  for (std::uint64_t i = 0; i < sets * objects; ++i) {
    CHECK(slots->try_claim(url_of(i % sets, i / sets), 0, object_bytes));
  }
}

}  // namespace

TEST_CASE("processes that share three slots are killed at any moment", "[disk_cache]") {
  kill_processes(25, 1);
}

TEST_CASE("locks of a process that is killed are free, though it has forked a child that goes on", "[disk_cache]") {
  const test::cache_folder in;
  int ready[2], ends[2];
  REQUIRE(::pipe(ready) == 0);
  REQUIRE(::pipe(ends) == 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    set_log([](const log_record&) {});
    const auto store = store_of(0);
    const auto loop = make_event_loop();
    const auto cache = disk_cache(std::shared_ptr<const storage>(store),
                                  {.directory = in.path, .bytes = 16 * detail::disk_slots::slot_bytes, .keep_free = 0});
    static_cast<void>(block_on(coroutine_context(*loop), cache->read(shard(url_of(0, 0), object_bytes, store->etag), "",
                                                                     0, MiB, slab_pool(2 * MiB))));
    const auto slots = detail::disk_slots::open(in.path, 64 * MiB, 0, true);
    const auto claim = slots->try_claim(url_of(0, 1), 0, MiB);
    if (::fork() == 0) {
      char none;
      ::close(ends[1]);
      static_cast<void>(::write(ready[1], "", 1));
      static_cast<void>(::read(ends[0], &none, 1));  // until the test ends
      ::_exit(0);
    }
    for (;;) ::pause();
  }
  ::close(ends[0]);
  char done;
  REQUIRE(::read(ready[0], &done, 1) == 1);
  const auto slots = detail::disk_slots::open(in.path, 64 * MiB, 0, true);
  CHECK_FALSE(slots->try_claim(url_of(0, 1), 0, MiB));
  CHECK(detail::cache_folder::inspect(in.path, false).used == 1);
  ::kill(parent, SIGKILL);
  CHECK(WIFSIGNALED(status_of(parent)));
  CHECK(slots->try_claim(url_of(0, 1), 0, MiB));
  CHECK(detail::cache_folder::inspect(in.path, false).used == 0);
  ::close(ends[1]);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("a child of fork() that reads by its parent's cache opens it anew, and harms nothing", "[disk_cache]") {
  const test::cache_folder in;
  const auto store = store_of(0);
  const auto loop = make_event_loop();
  const auto cache = disk_cache(std::shared_ptr<const storage>(store),
                                {.directory = in.path, .bytes = 16 * detail::disk_slots::slot_bytes, .keep_free = 0});
  const shard object(url_of(0, 0), object_bytes, store->etag);
  const auto read = [&](executor& ex) {
    static_cast<void>(block_on(coroutine_context(ex), cache->read(object, "", 0, MiB, slab_pool(2 * MiB))));
  };
  read(*loop);
  read(*loop);
  REQUIRE(cache->stats().hits == 1);
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {  // as the workers of a loader: all at once
    const pid_t child = ::fork();
    if (child == 0) {
      const auto own = make_event_loop();
      for (int n = 0; n < 2; ++n) read(*own);
      const disk_cache_stats s = cache->stats();
      ::_exit(s.hits == 3 && s.damaged == 0 && s.misses == 1 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) CHECK(status_of(child) == 0);
  CHECK(cache->is_local(object, 0, MiB));
  read(*loop);
  CHECK(cache->stats().hits == 2);
  CHECK(cache->stats().damaged == 0);
}

TEST_CASE("a thousand kills", "[disk_cache][slow]") {
  // Of which a sanitizer, whose processes start slowly, sees two hundred.
  const std::uint64_t rounds = MILLRACE_ASAN || MILLRACE_TSAN ? 2 : 10;
  for (std::uint64_t seed = 2; seed < 2 + rounds; ++seed) kill_processes(100, seed);
}
