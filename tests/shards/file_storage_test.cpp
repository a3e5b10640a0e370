// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Local files as shards, read through fetch.

#include <millrace/shards/file_storage.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loop/epoll_loop.hpp>
#include <millrace/shards/fetch.hpp>

#include "tests/loop/loops.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace millrace;

namespace {

constexpr std::size_t part_bytes = 64 * KiB;

std::string noise(std::size_t size) {
  rng random(7);
  std::string text;
  for (text.reserve(size + 8); text.size() < size;) {
    const std::uint64_t word = random.next();
    text.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  text.resize(size);
  return text;
}

void write_file(const std::string& path, const std::string& content) {
  std::FILE* f = std::fopen(path.c_str(), "wb");
  REQUIRE(f != nullptr);
  REQUIRE(std::fwrite(content.data(), 1, content.size(), f) == content.size());
  REQUIRE(std::fclose(f) == 0);
}

stream<chunk> chunks_of(std::string url, file_storage_options how = {}) {
  std::vector<shard> one;
  one.emplace_back(std::move(url));
  return from_range(std::move(one)) | fetch(files(how), {.shards = 2, .window = 4 * part_bytes, .part = part_bytes});
}

/// All of the content; each chunk must follow the one before and none come after the last.
task<std::string> content_of(stream<chunk> in) {
  std::string text;
  bool ended = false;
  while (std::optional<chunk> c = co_await in.next()) {
    const bool in_place = c->offset == text.size() && !ended;
    CHECK(in_place);
    text += c->data.view();
    ended = c->last;
  }
  CHECK(ended);
  co_return text;
}

task<void> append_to(std::string& text, stream<chunk> in) {
  while (std::optional<chunk> c = co_await in.next()) text += c->data.view();
}

/// Reads one chunk, gives the file another size, and reads on.
task<void> read_on_after(stream<chunk> in, std::string path, std::size_t new_size) {
  const std::optional<chunk> first = co_await in.next();
  const bool resized = first && ::truncate(path.c_str(), static_cast<off_t>(new_size)) == 0;
  CHECK(resized);
  while (co_await in.next()) continue;
}

/// A loop that looks at what is asked of files, and may cut the file that is about to be read.
class watching_loop final : public epoll_loop {
 public:
  ~watching_loop() override { shut_down(); }

  void start(file_operation& op) noexcept override {
    const file_request& r = op.request();
    if (r.what == file_request::kind::read) {
      ++reads;
      if ((::fcntl(r.fd, F_GETFL) & O_DIRECT) != 0) direct_bytes += r.size;
      if (cut != nullptr) cut_done = ::truncate(cut, static_cast<off_t>(cut_to)) == 0;
    }
    epoll_loop::start(op);
  }

  std::size_t reads = 0;
  std::size_t direct_bytes = 0;  ///< asked for past the page cache
  const char* cut = nullptr;
  std::size_t cut_to = 0;
  bool cut_done = false;
};

}  // namespace

TEST_CASE("a file of many parts is read whole and in order", "[files][slow]") {
  MILLRACE_EACH_LOOP(loop);
  test::temporary_folder folder;
  const std::string path = folder.file("20 MiB.bin");
  const std::string content = noise(20 * MiB + 333);
  write_file(path, content);
  CHECK((block_on(loop, content_of(chunks_of(path))) == content));
  CHECK((block_on(loop, content_of(chunks_of("file://" + path))) == content));
  CHECK((block_on(loop, content_of(chunks_of(path, {.direct = true}))) == content));
}

TEST_CASE("files around the size of a part, and an empty one", "[files]") {
  MILLRACE_EACH_LOOP(loop);
  test::temporary_folder folder;
  const std::string path = folder.file("f");
  for (const std::size_t size : {std::size_t(0), std::size_t(1), part_bytes - 1, part_bytes, part_bytes + 1}) {
    const std::string content = noise(size);
    write_file(path, content);
    CAPTURE(size);
    CHECK((block_on(loop, content_of(chunks_of(path))) == content));
  }
}

TEST_CASE("a file that grows or shrinks between two parts is an error that names it", "[files]") {
  MILLRACE_EACH_LOOP(loop);
  test::temporary_folder folder;
  const std::string path = folder.file("f");
  constexpr std::size_t size = 40 * part_bytes;
  for (const std::size_t new_size : {size + 1, 2 * size, size - 1, 20 * part_bytes, part_bytes, std::size_t(0)}) {
    write_file(path, noise(size));
    CAPTURE(new_size);
    try {
      block_on(loop, read_on_after(chunks_of(path), path, new_size));
      FAIL_CHECK("no error");
    } catch (const changed_error& e) {
      CHECK(e.object() == path);
      CHECK(e.offset().value_or(0) > 0);
      CHECK_THAT(e.reason(),
                 Catch::Matchers::Contains(std::to_string(new_size) + " bytes long, not " + std::to_string(size)));
    }
  }
}

TEST_CASE("a file that shrinks between the question for its size and the reading is an error", "[files]") {
  test::temporary_folder folder;
  const std::string path = folder.file("f");
  write_file(path, noise(part_bytes));
  watching_loop loop;
  loop.cut = path.c_str();
  loop.cut_to = part_bytes / 2;
  try {
    block_on(loop, content_of(chunks_of(path)));
    FAIL("no error");
  } catch (const io_error& e) {
    CHECK(e.object() == path);
    CHECK_THAT(e.reason(), Catch::Matchers::Contains("read " + std::to_string(part_bytes / 2) + " bytes instead of " +
                                                     std::to_string(part_bytes)));
  }
  CHECK(loop.cut_done);
}

TEST_CASE("a file that the kernel cannot read is an error that names it, after the files before it", "[files]") {
  MILLRACE_EACH_LOOP(loop);
  test::temporary_folder folder;
  const std::string content = noise(3 * part_bytes + 5);
  write_file(folder.file("good"), content);
  // Like a sector that is lost: it can be opened, and there is no memory at address 0 to read.
  const std::string bad = folder.file("bad");
  REQUIRE(::symlink("/proc/self/mem", bad.c_str()) == 0);
  std::vector<shard> both;
  both.emplace_back(folder.file("good"));
  both.emplace_back(bad);
  std::string text;
  try {
    block_on(loop, append_to(text, from_range(std::move(both)) |
                                       fetch(files(), {.shards = 2, .window = 4 * part_bytes, .part = part_bytes})));
    FAIL("no error");
  } catch (const io_error& e) {
    CHECK(e.code() == std::errc::io_error);
    CHECK(e.object() == bad);
    CHECK(e.offset() == 0U);
  }
  CHECK((text == content));
}

TEST_CASE("files({.direct = true}) reads past the page cache, files() does not", "[files]") {
  test::temporary_folder folder;
  const std::string path = folder.file("f");
  const std::string content = noise(3 * part_bytes + 10);
  write_file(path, content);
  {
    watching_loop loop;
    CHECK((block_on(loop, content_of(chunks_of(path))) == content));
    CHECK(loop.reads >= 4);
    CHECK(loop.direct_bytes == 0);
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0) MILLRACE_SKIP("the temporary folder's file system has no O_DIRECT");
  ::close(fd);
  watching_loop loop;
  CHECK((block_on(loop, content_of(chunks_of(path, {.direct = true}))) == content));
  CHECK(loop.direct_bytes >= 3 * part_bytes);
}
