// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Archives that are unusual but not broken: untar reads them, and says so.

#include <millrace/shards/untar.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/take.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/tar/packers.hpp"

using namespace millrace;
using test::captured_stderr;

namespace {

struct object {
  object(std::string where, std::string what) : url(std::move(where)), content(std::move(what)) {}
  std::string url;
  std::string content;
};

/// A tar of members of 512 bytes, a.txt and so on.
std::string tar_of(std::size_t members) {
  std::string out;
  tar::writer<tar::string_sink> w{tar::string_sink(out)};
  for (std::size_t i = 0; i < members; ++i) w.add(std::string(1, static_cast<char>('a' + i)) + ".txt", "text");
  w.finish();
  return out;
}
/// Cut behind its n-th member.
std::string cut_behind(std::size_t n) { return tar_of(4).substr(0, n * 1024); }

async_generator<chunk> chunks_of(std::vector<object> objects) {
  for (const object& o : objects) {
    chunk c(std::make_shared<const shard>(o.url, o.content.size()), 0, bytes::copy(o.content), true);
    co_yield give(c);
  }
}

struct outcome {
  std::size_t members = 0;
  std::string said;
};

template <class Stage>
outcome read(std::vector<object> objects, Stage stage) {
  testing::virtual_loop loop;
  const auto count = [](stream<member> in) -> task<std::size_t> {
    std::size_t n = 0;
    while (std::optional<member> m = co_await in.next()) ++n;
    co_return n;
  };
  outcome result;
  captured_stderr heard(captured_stderr::into::pipe);
  result.members = block_on(loop, count(chunks_of(std::move(objects)) | std::move(stage)));
  // Line by line: a sanitizer may have something to say about fibers, too.
  const std::string all = heard.text();
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\n', at), all.size() - 1) + 1;
    if (all.compare(at, 10, "millrace: ") == 0) result.said += all.substr(at, end - at);
    at = end;
  }
  return result;
}

const char cut_off[] = ": no end-of-archive block: the archive may have been cut between two members\n";

}  // namespace

TEST_CASE("a tar that may have been cut between two members is reported by name, a whole one is not") {
  const std::vector<object> objects = {object("s3://b/whole.tar", tar_of(4)), object("s3://b/cut.tar", cut_behind(3))};
  const std::string wanted = std::string("millrace: untar: s3://b/cut.tar") + cut_off;
  const outcome any = read(objects, untar());
  CHECK(any.members == 7);
  CHECK(any.said == wanted);
  const outcome plain = read(objects, untar_plain());
  CHECK(plain.members == 7);
  CHECK(plain.said == wanted);
}

TEST_CASE("what is said of an archive comes before its last member is handed on") {
  const std::vector<object> objects = {object("cut.tar", cut_behind(3))};
  CHECK(read(objects, untar() | take(3)).said == std::string("millrace: untar: cut.tar") + cut_off);
}

TEST_CASE("half an end-of-archive block is reported; gzip data of several streams is nothing unusual") {
  const std::vector<object> half = {object("half.tar", tar_of(4).substr(0, 4 * 1024 + 512))};
  CHECK(read(half, untar()).said == "millrace: untar: half.tar: only half of the end-of-archive block is there\n");
  // Names come from servers: a terminal must not obey them.
  const std::string hostile = read({object("\x1b[2J.tar", cut_behind(1))}, untar()).said;
  CHECK(hostile == std::string("millrace: untar: \\x1b[2J.tar") + cut_off);

  const std::string whole = tar_of(4);
  const std::string several =
      test::compress("gzip", whole.substr(0, 2000)) + test::compress("gzip", whole.substr(2000));
  const outcome gz =
      read({object("two.tar.gz", several), object("one.tar.gz", test::compress("gzip", whole))}, untar());
  CHECK(gz.members == 8);
  CHECK(gz.said.empty());
}

TEST_CASE("of many cut archives the first five are named and the others counted; or none, when told so") {
  std::vector<object> objects;
  std::string wanted;
  for (std::size_t i = 0; i < 8; ++i) {
    objects.emplace_back(std::to_string(i), cut_behind(1));
    if (i < 5) wanted += "millrace: untar: " + std::to_string(i) + cut_off;
  }
  CHECK(read(objects, untar()).said == wanted + "millrace: untar: 3 more archives with such warnings\n");
  CHECK(read(objects, untar_plain({.report = false})).said.empty());
  const outcome quiet = read(objects, untar({.members = {.report = false}}));
  CHECK(quiet.members == 8);
  CHECK(quiet.said.empty());
}

TEST_CASE("nothing is said of an object that may be empty and is") {
  const outcome empty = read({object("empty.tar", std::string())}, untar({.members = {.allow_empty = true}}));
  CHECK(empty.members == 0);
  CHECK(empty.said.empty());
}
