// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/io/file.hpp>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/memory/slab_pool.hpp>

#include "tests/loop/loops.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

int open_descriptors() {
  int count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

void make_file(const std::string& path, std::size_t size) {
  const detail::owned_fd fd(::open(path.c_str(), O_WRONLY | O_CREAT, 0600));
  const std::string content(size, 'x');
  if (::write(fd.get(), content.data(), size) != static_cast<ssize_t>(size)) throw std::runtime_error("cannot write");
}

task<std::size_t> read_into(file& f, slab_pool& slabs, std::size_t length, std::uint64_t offset) {
  writable_bytes b = slabs.acquire();
  co_return co_await f.read_at(b, 0, length, offset);
}

/// Opens the reading end of a fifo and so waits for a writer: an operation that is under way for as long as a test
/// wants.
task<std::int64_t> open_fifo(std::string path) {
  detail::file_keep keep(nullptr);
  keep.path = path;
  file_request r;
  r.what = file_request::kind::open;
  r.flags = O_RDONLY | O_CREAT | O_CLOEXEC;  // O_CREAT: else a ring opens a fifo without waiting
  auto job = std::make_unique<detail::file_job>(r, std::move(keep));
  co_return co_await detail::file_wait(job);
}

TEST_CASE("a read dropped before the kernel has it never happens", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  temporary_folder folder;
  const std::string path = folder.file("a");
  make_file(path, 100000);
  file f = block_on(loop, file::open(path));
  slab_pool slabs(64 * KiB);
  { task<std::size_t> never = read_into(f, slabs, 4096, 0); }
  { spawned<std::size_t> not_begun(loop, read_into(f, slabs, 4096, 0)); }
  CHECK(loop.operations() == 0);
  {
    // The one that runs second drops the first, which has only been handed to the loop.
    spawned<std::size_t> first(loop, read_into(f, slabs, 4096, 0));
    const auto drop_first = [&]() -> task<void> {
      first = spawned<std::size_t>();
      co_return;
    };
    spawned<void> second(loop, drop_first());
    loop.run_until([&] { return second.done(); });
  }
  loop.drain();
  CHECK(slabs.live() == 0);
  CHECK(loop.frames() == 0);
}

TEST_CASE("an operation dropped in the kernel keeps what it needs until its own end", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  temporary_folder folder;
  const std::string path = folder.file("fifo");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  int before = 0;
  for (int times = 0; times < 3; ++times) {
    while (loop.operations() == 0) {
      spawned<std::int64_t> waiting(loop, open_fifo(path));
      turns(loop, 20);
      CHECK(loop.operations() == 1);
      CHECK_FALSE(waiting.done());
      // A helper thread may not have begun: then the operation is taken back when it is dropped, and tried once more.
    }
    CHECK(loop.frames() == 0);
    CHECK(loop.operations() == 1);  // orphaned
    // A ring can cancel it; a helper thread is let go by a writer.
    const detail::owned_fd writer(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    loop.drain();
    CHECK(loop.operations() == 0);
    if (times == 0) before = open_descriptors();
  }
  CHECK(open_descriptors() == before - 1);  // but for the writer
}

TEST_CASE("an open that succeeds after it was dropped is closed again", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  temporary_folder folder;
  const std::string path = folder.file("a");
  make_file(path, 10);
  turns(loop, 2);
  block_on(loop, file::open(path));  // whatever the loop opens for itself is open now
  const int before = open_descriptors();
  for (int k = 0; k < 12; ++k) {
    spawned<file> opening(loop, file::open(path));
    turns(loop, k % 6);
  }
  loop.drain();
  CHECK(open_descriptors() == before);
}

TEST_CASE("a descriptor is not reused under a dropped operation", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  temporary_folder folder;
  const std::string precious = folder.file("precious");
  make_file(precious, 1000);
  const std::string fifo = folder.file("fifo");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  for (int round = 0; round < 30; ++round) {
    const auto write_there = [&](std::string path) -> task<void> {
      file_options o;
      o.write = o.create = true;
      file f = co_await file::open(path, o);
      co_await f.write_at(bytes::copy(std::string(500, 'y')), 0);
    };
    {
      std::vector<spawned<void>> writers;
      for (int k = 0; k < 4; ++k) writers.emplace_back(loop, write_there(folder.file("scratch" + std::to_string(k))));
      turns(loop, round);
    }
    // The numbers of the dropped files may be this one's now.
    const detail::owned_fd fd(::open(precious.c_str(), O_RDWR | O_CLOEXEC));
    loop.drain();
    char text[1000];
    REQUIRE(::pread(fd.get(), text, sizeof text, 0) == 1000);
    CHECK(std::string(text, sizeof text) == std::string(1000, 'x'));
  }
}

TEST_CASE("reads dropped while they race to completion leave nothing", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  temporary_folder folder;
  const std::string path = folder.file("a");
  make_file(path, 1 * MiB);
  slab_pool slabs(256 * KiB);
  int unkept = 0;
  {
    file_options o;
    o.direct = GENERATE(false, true);
    file f = block_on(loop, file::open(path, o));
    rng random(11);
    const auto read_some = [&](std::size_t length, std::uint64_t offset) -> task<void> {
      (void)co_await read_into(f, slabs, length, offset);
    };
    std::vector<spawned<void>> reads(10);
    for (int round = 0; round < 1000; ++round) {
      const std::size_t length = 4096 + random.below(252 * KiB);  // aligned but for the end
      reads[random.below(reads.size())] = spawned<void>(loop, read_some(length, random.below(256) * 4096));
      turns(loop, static_cast<int>(random.below(4)));
      if (random.below(2) == 0) reads[random.below(reads.size())] = spawned<void>();
      unkept += slabs.live() < loop.operations() ? 1 : 0;  // each operation has a slab, dropped or not
    }
    // Among all that is dropped, a read that is awaited still completes.
    CHECK(block_on(loop, read_into(f, slabs, 4096, 8192)) == 4096);
  }
  loop.drain();
  CHECK(unkept == 0);
  CHECK(slabs.live() == 0);
  CHECK(loop.operations() == 0);
  CHECK(loop.frames() == 0);
}

}  // namespace
