// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/disk_cache.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/log.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/detail/descriptors.hpp>
#include <millrace/testing/jumping_loop.hpp>

#include "tests/shards/cache_support.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

constexpr std::uint64_t blocks = 3;

/// Puts another file in the place of each descriptor that this process has of a file whose name ends like this. The
/// kernel's errors are then those of the other file: of /proc/self/mem EIO at a low offset, to reads and to writes,
/// as no memory is mapped there.
std::size_t fail_descriptors(std::string_view ending) {
  const int other = ::open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  REQUIRE(other >= 0);
  std::size_t replaced = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    std::error_code none;
    const std::string path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), none).string();
    if (path.size() < ending.size() || path.compare(path.size() - ending.size(), ending.size(), ending) != 0) continue;
    REQUIRE(::dup2(other, fd) == fd);
    ++replaced;
  }
  ::close(other);
  return replaced;
}

/// How many the cache has: of the headers one that reads by the page cache, too.
std::size_t descriptors_of(std::string_view name) { return name == "/headers" ? 2 : 1; }

/// The number of lines that the cache has written to the log.
std::size_t lines_of(const std::string& text) {
  std::size_t n = 0;
  for (std::size_t at = text.find("disk_cache"); at != std::string::npos; at = text.find("disk_cache", at + 1)) ++n;
  return n;
}

struct fixture {
  testing::jumping_loop loop;
  test::cache_folder in;
  std::shared_ptr<test::memory_store> store = std::make_shared<test::memory_store>();
  std::shared_ptr<const disk_cache_storage> cache;

  fixture() {
    store->objects["mem:a"] = test::random_text(7, blocks * MiB);
    in.clear();
    cache = disk_cache(std::shared_ptr<const storage>(store),
                       {.directory = in.path, .bytes = 64 * detail::disk_slots::slot_bytes, .keep_free = 0});
  }

  /// Reads a block, which must be the store's, or reads it again. Returns how often the store was asked.
  std::uint64_t read(std::uint64_t block, bool again = false) {
    const std::string& all = store->objects.at("mem:a");
    const std::uint64_t before = store->reads;
    const shard object("mem:a", all.size(), store->etag);
    const slab_pool slabs(2 * MiB);
    const storage::part p =
        block_on(coroutine_context(loop), again ? cache->read_again(object, std::string(), block * MiB, MiB, slabs)
                                                : cache->read(object, std::string(), block * MiB, MiB, slabs));
    CHECK((p.data.view() == std::string_view(all).substr(block * MiB, MiB)));
    return store->reads - before;
  }
  /// Reads all blocks of another object at once.
  std::uint64_t read_other() {
    const std::string& all = store->objects.at("mem:b");
    const std::uint64_t before = store->reads;
    const storage::part p = block_on(
        coroutine_context(loop),
        cache->read(shard("mem:b", all.size(), store->etag), std::string(), 0, all.size(), slab_pool(all.size())));
    CHECK((p.data.view() == all));
    return store->reads - before;
  }
};

}  // namespace

TEST_CASE("a disk that fails to read turns the cache off for a minute, with one line", "[disk_cache]") {
  const std::string name = GENERATE("/segment.000000", "/headers");
  INFO(name);
  fixture f;
  test::captured_stderr said(test::captured_stderr::into::pipe);
  CHECK(f.read(0) == 1);
  CHECK(f.read(0) == 0);
  REQUIRE(fail_descriptors(name) == descriptors_of(name));
  for (int i = 0; i < 3; ++i) CHECK(f.read(0) == 1);
  const std::string text = said.text();
  INFO(text);
  CHECK_THAT(text, Contains("disk_cache is off, and tried again every minute: " + f.in.path +
                            ": a slot of the cache cannot be read: Input/output error"));
  CHECK(lines_of(text) == 1);
  f.loop.advance(59s);
  CHECK(f.read(0) == 1);
  f.loop.advance(2s);
  CHECK(f.read(0) == 0);  // opened again: what was kept is there
  CHECK(f.cache->stats().damaged == 0);
}

TEST_CASE("a disk that fails to write turns the cache off for a minute, with one line", "[disk_cache]") {
  const bool data = GENERATE(true, false);
  const std::string name = data ? "/segment.000000" : "/headers";
  INFO(name);
  fixture f;
  test::captured_stderr said(test::captured_stderr::into::pipe);
  CHECK(f.read(0) == 1);
  CHECK(f.read(1) == 1);
  CHECK(f.read(1, true) == 1);  // forgets what was kept, but for its slot
  CHECK(f.cache->stats().admitted == 2);
  REQUIRE(fail_descriptors(name) == descriptors_of(name));
  CHECK(f.read(1) == 1);  // misses, and cannot be kept
  CHECK(f.cache->stats().refused == 1);
  CHECK(f.read(1) == 1);
  CHECK(f.read(2) == 1);
  CHECK(f.cache->stats().admitted == 2);
  const std::string text = said.text();
  INFO(text);
  CHECK_THAT(text, Contains("disk_cache is off, and tried again every minute: " + f.in.path + ": a slot of the cache " +
                            "cannot be written: Input/output error"));
  CHECK(lines_of(text) == 1);
  f.loop.advance(61s);
  CHECK(f.read(0) == 0);
  CHECK(f.read(1) == 1);
  CHECK(f.read(1) == 0);
  CHECK(f.cache->stats().admitted == 3);
}

TEST_CASE("without a descriptor for a segment, what is in the others is read from the disk", "[disk_cache]") {
  if (MILLRACE_ASAN || MILLRACE_TSAN) MILLRACE_SKIP("sanitizers need descriptors of their own, and end the program");
  fixture f;
  test::captured_stderr said(test::captured_stderr::into::pipe);
  for (std::uint64_t block = 0; block < blocks; ++block) CHECK(f.read(block) == 1);
  f.cache = disk_cache(std::shared_ptr<const storage>(f.store),
                       {.directory = f.in.path, .bytes = 64 * detail::disk_slots::slot_bytes, .keep_free = 0});
  CHECK(f.read(0) == 0);  // of a segment that is open from now on
  std::vector<detail::owned_fd> all;
  struct ::rlimit most {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &most) == 0);
  const ::rlim_t before = most.rlim_cur;
  most.rlim_cur = 256;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &most) == 0);
  for (int fd = 0; fd >= 0; all.emplace_back(fd)) fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  f.store->objects["mem:b"] = test::random_text(8, 8 * MiB);
  const std::uint64_t other = f.read_other();
  const std::uint64_t same = f.read(0);
  all.clear();
  most.rlim_cur = before;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &most) == 0);
  CHECK(other == 1);
  CHECK(same == 0);
  const std::string text = said.text();
  INFO(text);
  CHECK_THAT(text, Contains("disk_cache admits nothing, and tries again every minute: " + f.in.path +
                            ": a segment of the cache cannot be made: Too many open files (ulimit -n)"));
  CHECK(lines_of(text) == 1);
  f.loop.advance(61s);
  CHECK(f.read_other() == 1);
  CHECK(f.read_other() == 0);
}

TEST_CASE("a limit of the sizes of files ends what is written, and not the program", "[disk_cache]") {
  // In a child: the limit is that of a process, and its signal would end this one.
  const std::string beyond = GENERATE("the index", "new segments", "slots of a segment that is there");
  INFO(beyond);
  fixture f;
  if (beyond == "slots of a segment that is there") CHECK(f.read(0) == 1);
  const test::cache_folder& in = f.in;
  f.cache.reset();
  if (beyond != "slots of a segment that is there") in.clear();
  const ::pid_t child = ::fork();
  if (child == 0) {
    set_log([](const log_record&) {});
    const ::rlimit most{beyond == "the index" ? ::rlim_t(8192) : ::rlim_t(MiB), RLIM_INFINITY};
    int wrong = ::setrlimit(RLIMIT_FSIZE, &most) == 0 ? 0 : 9;
    try {
      testing::jumping_loop loop;
      const auto store = std::make_shared<test::memory_store>();
      store->objects["mem:b"] = test::random_text(7, 2 * MiB);
      const auto cache =
          disk_cache(std::shared_ptr<const storage>(store),
                     {.directory = in.path, .bytes = 64 * detail::disk_slots::slot_bytes, .keep_free = 0});
      for (int i = 0; i < 2; ++i) {
        const storage::part p =
            block_on(coroutine_context(loop),
                     cache->read(shard("mem:b", 2 * MiB, store->etag), std::string(), 0, 2 * MiB, slab_pool(2 * MiB)));
        if (p.data.view() != store->objects.at("mem:b")) wrong = 1;
      }
      if (cache->stats().admitted != 0) wrong = 2;
    } catch (...) {
      wrong = 3;
    }
    ::_exit(wrong);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
