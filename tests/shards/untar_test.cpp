// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/untar.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/io/timeout.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"
#include "tests/tar/packers.hpp"

using namespace millrace;

namespace {

async_generator<chunk> chunk_of(std::string content) {
  chunk c(std::make_shared<const shard>("x.tar", content.size()), 0, bytes::copy(content), true);
  co_yield give(c);
}

/// "name=content@offset " of every member, "!" after the last one's.
task<std::string> told(stream<member> in) {
  std::string text;
  while (std::optional<member> m = co_await in.next()) {
    text += m->entry.name + '=' + std::string(m->entry.body.view()) + '@' + std::to_string(m->from.offset);
    text += m->last ? "! " : " ";
  }
  co_return text;
}

template <class Stage>
std::string members(const std::string& content, Stage stage) {
  testing::virtual_loop loop;
  return block_on(loop, told(chunk_of(content) | std::move(stage)));
}

/// The first bytes of an object whose rest never comes.
async_generator<chunk> stalled(std::string content) {
  chunk c(std::make_shared<const shard>("x.tar"), 0, bytes::copy(content), false);
  co_yield give(c);
  co_await sleep_for(std::chrono::hours(1));
}

/// Whether a run is dropped while it waits for more of an object than `content`.
task<bool> is_dropped(std::string content) {
  task<std::string> waiting = told(stalled(std::move(content)) | untar());
  try {
    co_await with_timeout(std::chrono::milliseconds(1), std::move(waiting));
  } catch (const timeout_error&) {
    co_return true;
  }
  co_return false;
}

/// The header of something that is no regular file; `target` is what a link names.
std::string special(char type, const std::string& name, const std::string& target = std::string()) {
  test::header_block h;
  h.name = name;
  h.type = type;
  std::string block = h.text();
  block.replace(157, target.size(), target);
  return test::header_block::sealed(block);
}

std::string regular(const std::string& name, const std::string& body) {
  test::header_block h;
  h.name = name;
  return test::raw_member(h, body);
}

}  // namespace

TEST_CASE("untar yields regular files only: no links, folders or devices") {
  const std::string archive = special('5', "train/") + regular("train/a.txt", "one") +
                              special('1', "train/hard.txt", "train/a.txt") + special('2', "train/soft.txt", "a.txt") +
                              regular("train/b.txt", "two") + special('3', "train/null") + special('4', "train/disk") +
                              special('6', "train/fifo") + special('2', "train/last.txt", "b.txt") + test::end_block();
  // The last file is the last member, whatever comes after it.
  const std::string wanted = "train/a.txt=one@512 train/b.txt=two@2560! ";
  CHECK(members(archive, untar()) == wanted);
  CHECK(members(archive, untar_plain()) == wanted);
  CHECK(members(test::compress("gzip", archive), untar()) == wanted);
}

TEST_CASE("an archive of nothing but links has no members") {
  const std::string archive = special('2', "a", "b") + special('1', "c", "d") + test::end_block();
  CHECK(members(archive, untar()).empty());
  CHECK(members(archive, untar_plain()).empty());
}

TEST_CASE("a link that claims to have content has none: what follows is the next header") {
  // Old tools repeat the size of the file that a hard link names.
  test::header_block h;
  h.name = "hard.txt";
  h.type = '1';
  h.size = test::octal_size(3);
  const std::string archive = regular("a.txt", "one") + h.text() + regular("b.txt", "two") + test::end_block();
  CHECK(members(archive, untar()) == "a.txt=one@0 b.txt=two@1536! ");
}

TEST_CASE("a run that waits for the rest of an archive can be dropped, whatever the archive and wherever it waits") {
  const std::string plain = regular("a.txt", std::string(3000, 'a')) + regular("b.txt", "two") + test::end_block();
  std::vector<std::string> archives = {plain, test::pack("zip", {{"a.txt", "one"}, {"b.txt", "two"}}),
                                       test::pack("newc", {{"a.txt", "one"}, {"b.txt", "two"}}),
                                       // A gzip header whose name does not end.
                                       std::string("\x1f\x8b\x08\x08\0\0\0\0\0\xff", 10) + std::string(300, 'n')};
  for (const char* filter : {"gzip", "bzip2", "xz", "zstd", "lz4"}) archives.push_back(test::compress(filter, plain));
  testing::virtual_loop loop;
  for (const std::string& archive : archives) {
    for (std::size_t length = 1; length < archive.size(); length += 1 + archive.size() / 100) {
      CAPTURE(archive.substr(0, 4), length);
      CHECK(block_on(loop, is_dropped(archive.substr(0, length))));
    }
  }
}
