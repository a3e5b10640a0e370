// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/disk_cache.hpp>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include <millrace/base/clock.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "tests/shards/cache_support.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

constexpr std::uint64_t capacity = 10'000'000'000'000;
constexpr std::uint64_t segments = capacity / detail::disk_slots::slot_bytes / 1024 + 1;

/// A file of that size that takes no space; false where the file system cannot have one.
bool make_sparse(const std::string& path, std::uint64_t size) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const bool made = fd >= 0 && ::ftruncate(fd, static_cast<off_t>(size)) == 0;
  if (fd >= 0) ::close(fd);
  return made;
}

std::uint64_t resident_bytes() {
  std::uint64_t size = 0;
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> size >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace

TEST_CASE("a cache of 10 TB opens in less than a second, in less than 50 MB of memory") {
  const test::cache_folder in;
  struct ::statvfs fs {};
  if (::statvfs(in.path.c_str(), &fs) != 0 || std::uint64_t(fs.f_bavail) * fs.f_frsize < 4 * GiB) {
    MILLRACE_SKIP(in.path + " has less than 4 GiB free, and the index takes 1.1 GB");
  }
  const auto store = std::make_shared<test::memory_store>();
  const std::string url = "mem:a/0.tar";
  store->objects[url] = test::random_text(1, 8 * MiB);
  const auto loop = make_event_loop();
  const auto open = [&] {
    return disk_cache(std::shared_ptr<const storage>(store), {.directory = in.path, .bytes = capacity, .keep_free = 0});
  };
  const auto read = [&](const disk_cache_storage& cache) {
    const storage::part p =
        block_on(coroutine_context(*loop),
                 cache.read(shard(url, 8 * MiB, store->etag), std::string(), 0, 8 * MiB, slab_pool(8 * MiB)));
    CHECK((p.data.view() == store->objects.at(url)));
  };
  double made_in = 0;
  {
    const std::int64_t began = monotonic_ns();
    const auto cache = open();
    made_in = static_cast<double>(monotonic_ns() - began) * 1e-9;
    if (cache->caches_on_disk(url) == 0) MILLRACE_SKIP("the file system has no room for the index: " + in.path);
    read(*cache);
    loop->drain();
    REQUIRE(cache->stats().admitted == 8);
  }
  // Files as if all of it were in use.
  if (!make_sparse(in.path + "/headers", capacity / detail::disk_slots::slot_bytes * 4096)) {
    MILLRACE_SKIP(in.path + " has no sparse files of 40 GB: " + std::strerror(errno));
  }
  for (std::uint64_t n = 0; n < segments; ++n) {
    char name[32];
    std::snprintf(name, sizeof name, "/segment.%06llu", static_cast<unsigned long long>(n));
    if (!make_sparse(in.path + name, GiB)) {
      MILLRACE_SKIP(in.path + " has no " + std::to_string(segments) + " sparse files: " + std::strerror(errno));
    }
  }
  const std::uint64_t before = resident_bytes();
  const double cpu = cpu_seconds();
  const std::int64_t began = monotonic_ns();
  const auto cache = open();
  const double seconds = static_cast<double>(monotonic_ns() - began) * 1e-9;
  const double cpu_took = cpu_seconds() - cpu;
  const std::uint64_t opened = resident_bytes() - before;
  CHECK(cache->caches_on_disk(url) > capacity / 100 * 99);
  read(*cache);
  CHECK(cache->stats().hits == 1);
  const std::uint64_t used = resident_bytes() - before;
  INFO(segments << " segments: open in " << seconds << " s, " << cpu_took << " s of CPU, " << opened
                << " bytes of memory, " << used << " after a read; made in " << made_in << " s");
  CHECK(made_in < 1);
  CHECK(cpu_took < 1);
  CHECK(seconds < 1);
  CHECK(opened < 50'000'000);
  CHECK(used < 50'000'000);
}
