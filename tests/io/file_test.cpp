// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/io/file.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/loop/ring_loop.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/loop/loops.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace millrace;
using namespace millrace::test;

namespace {

std::string noise(std::size_t size, std::uint64_t seed = 1) {
  rng random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random.next());
  return text;
}

task<void> write_whole(std::string path, std::string content, file_options o = {}) {
  o.write = o.create = o.truncate = true;
  file f = co_await file::open(path, o);
  co_await f.write_at(bytes::copy(content), 0);
  co_await f.sync();
  co_await f.close();
}

task<std::string> read_part(std::string path, std::uint64_t offset, std::size_t length, file_options o = {}) {
  file f = co_await file::open(path, o);
  writable_bytes b = writable_bytes::allocate(length + 2);
  b.data()[0] = b.data()[length + 1] = '#';
  const std::size_t n = co_await f.read_at(b, 1, length, offset);
  std::string text(b.data(), length + 2);
  if (text.front() != '#' || text.back() != '#') throw std::logic_error("wrote beside the target");
  co_return text.substr(1, n);
}

/// what() and code() of the io_error that `t` throws.
template <class T>
std::pair<std::string, int> failure(executor& ex, task<T> t) {
  try {
    block_on(ex, std::move(t));
  } catch (const io_error& e) {
    return {e.what(), e.code().value()};
  }
  return {"no error", 0};
}

TEST_CASE("what is written is read back", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  temporary_folder folder;
  const std::string path = folder.file("a");
  const std::string content = noise(3 * MiB + 12345);
  block_on(loop, write_whole(path, content));
  const auto size_of = [](std::string p) -> task<std::uint64_t> {
    file f = co_await file::open(std::move(p));
    co_return co_await f.size();
  };
  CHECK(block_on(loop, size_of(path)) == content.size());
  CHECK(block_on(loop, read_part(path, 0, content.size())) == content);
  CHECK(block_on(loop, read_part(path, 1000001, 54321)) == content.substr(1000001, 54321));
  CHECK(block_on(loop, read_part(path, 0, 0)).empty());
  block_on(loop, write_whole(path, "short"));
  CHECK(block_on(loop, read_part(path, 0, 100)) == "short");
  CHECK(loop.operations() == 0);
}

TEST_CASE("reading past the end gives what is there", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  temporary_folder folder;
  const std::string path = folder.file("a");
  block_on(loop, write_whole(path, "0123456789"));
  CHECK(block_on(loop, read_part(path, 4, 100)) == "456789");
  CHECK(block_on(loop, read_part(path, 9, 1)) == "9");
  CHECK(block_on(loop, read_part(path, 10, 100)).empty());
  CHECK(block_on(loop, read_part(path, std::uint64_t(1) << 40, 100)).empty());
}

TEST_CASE("writing in place changes nothing else", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  temporary_folder folder;
  const std::string path = folder.file("a");
  block_on(loop, write_whole(path, "0123456789"));
  const auto patch = [](std::string p) -> task<void> {
    file_options o;
    o.write = true;
    file f = co_await file::open(std::move(p), o);
    co_await f.write_at(bytes::copy("abc"), 4);
    co_await f.write_at(bytes(), 2);
    co_await f.write_at(bytes::copy("z"), 12);
  };
  block_on(loop, patch(path));
  CHECK(block_on(loop, read_part(path, 0, 100)) == std::string("0123abc789\0\0z", 13));
}

TEST_CASE("errors name the file, the offset and the reason", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  temporary_folder folder;
  const std::string missing = folder.file("missing");
  CHECK(failure(loop, file::open(missing)) == std::pair(missing + ": cannot open: No such file or directory", ENOENT));
  CHECK(failure(loop, file::open(folder.path())) == std::pair(folder.path() + ": cannot open: Is a directory", EISDIR));
  const std::string fifo = folder.file("fifo");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(failure(loop, file::open(fifo)) == std::pair(fifo + ": not a regular file: Invalid argument", EINVAL));
  const std::string path = folder.file("a");
  block_on(loop, write_whole(path, "0123456789"));
  const auto write_to_read_only = [](std::string p) -> task<void> {
    file f = co_await file::open(std::move(p));
    co_await f.write_at(bytes::copy("abc"), 4);
  };
  CHECK(failure(loop, write_to_read_only(path)) ==
        std::pair(path + " at byte 4: cannot write: Bad file descriptor", EBADF));
  CHECK(failure(loop, read_part(path, std::uint64_t(1) << 63, 10)).second == EINVAL);
  const std::string full = "/dev/full";
  file_options o;
  o.write = true;
  CHECK(failure(loop, file::open(full, o)).second == EINVAL);  // a character device
  CHECK(loop.operations() == 0);
}

TEST_CASE("a file needs a real event loop", "[io]") {
  testing::virtual_loop loop;
  CHECK_THROWS_AS(block_on(loop, file::open("/etc/hostname")), configuration_error);
}

TEST_CASE("thousands of reads fit a ring of any size", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  temporary_folder folder;
  const std::string path = folder.file("a");
  const std::string content = noise(200000);
  block_on(loop, write_whole(path, content));
  file f = block_on(loop, file::open(path));
  constexpr std::size_t count = 5000;
  std::size_t right = 0;
  const auto read_one = [&](std::size_t offset) -> task<void> {
    writable_bytes b = writable_bytes::allocate(64);
    const std::size_t n = co_await f.read_at(b, 0, 64, offset);
    if (n == 64 && std::memcmp(b.data(), content.data() + offset, 64) == 0) ++right;
  };
  std::vector<spawned<void>> all;
  for (std::size_t i = 0; i < count; ++i) all.emplace_back(loop, read_one(i * 31));
  turns(loop, 1);
  if (auto* ring = dynamic_cast<ring_loop*>(&loop)) {
    CHECK(loop.operations() > 1000);
    CHECK(ring->under_way() <= ring->capacity());
  }
  for (spawned<void>& s : all) {
    loop.run_until([&] { return s.done(); });
    s.take();
  }
  CHECK(right == count);
  CHECK(loop.operations() == 0);
  if (auto* ring = dynamic_cast<ring_loop*>(&loop)) CHECK(ring->overflows() == 0);
}

TEST_CASE("32 MiB of reads are in the kernel, and others go there when some of them have come", "[io]") {
  using test::loop_kind;
  const auto kind = GENERATE(loop_kind::deferred, loop_kind::cooperative, loop_kind::plain);
  INFO(test::name(kind));
  const auto loop = test::make_loop(kind);
  if (loop == nullptr) MILLRACE_SKIP(std::string("no ") + test::name(kind) + " here");
  auto& ring = dynamic_cast<ring_loop&>(*loop);
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const auto reading_end = std::make_shared<detail::owned_fd>(ends[0]);
  const detail::owned_fd writing_end(ends[1]);
  // Reads that come when the test says so.
  constexpr std::size_t count = 20;
  std::size_t came = 0;
  const auto read_one = [&](std::size_t size) -> task<void> {
    const bytes memory = writable_bytes::allocate(size).share(0, size);
    file_request r;
    r.fd = reading_end->get();
    r.data = const_cast<char*>(memory.data());
    r.size = size;
    detail::file_keep keep(reading_end);
    keep.memory = memory;
    auto job = std::make_unique<detail::file_job>(r, std::move(keep));
    if (co_await detail::file_wait(job) == 1) ++came;
  };
  std::vector<spawned<void>> all;
  const std::size_t size = GENERATE(4 * MiB, 40 * MiB);
  for (std::size_t i = 0; i < count; ++i) all.emplace_back(*loop, read_one(size));
  const std::size_t most = std::max<std::size_t>(32 * MiB / size, 1);
  for (std::size_t done = 0; done < count; ++done) {
    test::turns(*loop, 2);
    CHECK(came == done);
    const std::size_t due = std::min(most, count - done);
    CHECK(ring.under_way() >= due);
    CHECK(ring.under_way() <= due + 1);  // and the poll of the wake-up
    REQUIRE(::write(writing_end.get(), "x", 1) == 1);
    loop->run_until([&] { return came > done; });
  }
  CHECK(came == count);
}

TEST_CASE("past the page cache every alignment gives the same bytes", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  temporary_folder folder;
  const std::string path = folder.file("a");
  const std::string content = noise(300 * KiB + 777);
  file_options direct;
  direct.direct = true;
  block_on(loop, write_whole(path, content, direct));
  slab_pool slabs(512 * KiB);
  file f = block_on(loop, file::open(path, direct));
  if (!f.direct()) MILLRACE_SKIP("the temporary folder's file system has no O_DIRECT");
  const auto check = [&](std::size_t at, std::size_t length, std::uint64_t offset) -> task<bool> {
    writable_bytes b = slabs.acquire();
    std::memset(b.data(), '#', b.capacity());
    const std::size_t n = co_await f.read_at(b, at, length, offset);
    const std::string expected = offset > content.size() ? "" : content.substr(offset, length);
    bool right = n == expected.size() && std::memcmp(b.data() + at, expected.data(), n) == 0;
    for (std::size_t i = 0; i < b.capacity(); ++i)
      right = right && ((i >= at && i < at + length) || b.data()[i] == '#');
    co_return right;
  };
  for (const std::size_t at : {0u, 1u, 4096u, 5000u}) {
    for (const std::size_t length : {1u, 4096u, 10000u, 262144u, 320u * 1024}) {
      for (const std::uint64_t offset : {0u, 904u, 4096u, 5000u, 300u * 1024, 400u * 1024}) {
        CAPTURE(at, length, offset);
        CHECK(block_on(loop, check(at, length, offset)));
      }
    }
  }
  // The whole file through the cache equals what went past it.
  CHECK(block_on(loop, read_part(path, 0, content.size())) == content);
}

TEST_CASE("the aligned part alone goes past the page cache", "[io]") {
  const auto* page = reinterpret_cast<const char*>(std::uintptr_t(1) << 20);
  const auto is = [](detail::file_part p, std::size_t size, bool direct) {
    return p.size == size && p.direct == direct;
  };
  CHECK(is(detail::direct_part(page, 8192, 4096), 8192, true));
  CHECK(is(detail::direct_part(page, 9000, 4096), 8192, true));
  CHECK(is(detail::direct_part(page, 100, 0), 100, false));
  CHECK(is(detail::direct_part(page + 100, 9000, 4196), 3996, false));
  CHECK(is(detail::direct_part(page + 100, 50, 4196), 50, false));
  CHECK(is(detail::direct_part(page + 100, 9000, 4096), 9000, false));
}

TEST_CASE("a file moves, closes once and reports afterwards that it is closed", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  temporary_folder folder;
  const std::string path = folder.file("a");
  block_on(loop, write_whole(path, "text"));
  file f = block_on(loop, file::open(path));
  CHECK(static_cast<bool>(f));
  CHECK(f.path() == path);
  file g = std::move(f);
  CHECK_FALSE(static_cast<bool>(f));  // NOLINT: looked at on purpose
  block_on(loop, g.close());
  CHECK_FALSE(static_cast<bool>(g));
  block_on(loop, g.close());
}

TEST_CASE("a file that is not open is refused, and so is a read outside the buffer", "[io]") {
  MILLRACE_EACH_LOOP(loop);
  file none;
  writable_bytes to = writable_bytes::allocate(16);
  CHECK_THROWS_AS(block_on(loop, none.size()), usage_error);
  CHECK_THROWS_AS(block_on(loop, none.read_at(to, 0, 1, 0)), usage_error);
  CHECK_THROWS_AS(block_on(loop, none.write_at(bytes::copy("x"), 0)), usage_error);
  CHECK_THROWS_AS(block_on(loop, none.sync()), usage_error);
  temporary_folder folder;
  block_on(loop, write_whole(folder.file("a"), "text"));
  file f = block_on(loop, file::open(folder.file("a")));
  CHECK_THROWS_AS(block_on(loop, f.read_at(to, 15, 2, 0)), usage_error);
  CHECK_THROWS_AS(block_on(loop, f.read_at(to, 17, 0, 0)), usage_error);
  CHECK(block_on(loop, f.read_at(to, 12, 4, 0)) == 4);
}

}  // namespace
