// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Objects that ask for work or memory without end: layers in layers, and headers that do not stop.

#include <millrace/tar/archive_reader.hpp>

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"
#include "tests/tar/packers.hpp"
#include "tests/tar/tools.hpp"

namespace {

using namespace millrace;
using namespace std::string_literals;
using namespace std::string_view_literals;

/// A gzip file that unpacks to itself, made as Russ Cox describes in "Zip Files All The Way Down". Its checksum is
/// right.
constexpr std::string_view quine =
    "\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\xff\x72\x00\x00\x11\x00\xee\xff\x1f\x8b\x08\x08\x00"
    "\x00\x00\x00\x00\xff\x72\x00\x00\x11\x00\xee\xff\x82\x09\xc0\x05\x00\x00\x05\x00\xfa\xff"
    "\x82\x09\xc0\x05\x00\x00\x05\x00\xfa\xff\x00\x05\x00\xfa\xff\x00\x14\x00\xeb\xff\x82\x09"
    "\xc0\x05\x00\x00\x05\x00\xfa\xff\x00\x05\x00\xfa\xff\x00\x14\x00\xeb\xff\x42\x88\x21\xc4"
    "\x00\x00\x14\x00\xeb\xff\x42\x88\x21\xc4\x00\x00\x14\x00\xeb\xff\x42\x88\x21\xc4\x00\x00"
    "\x14\x00\xeb\xff\x42\x88\x21\xc4\x00\x00\x14\x00\xeb\xff\x42\x88\x21\xc4\x00\x00\x00\x00"
    "\xff\xff\x00\x00\x00\xff\xff\x00\x0d\x00\xf2\xff\x42\x88\x21\xc4\x00\x00\x00\x00\xff\xff"
    "\x00\x00\x00\xff\xff\x00\x0d\x00\xf2\xff\x83\x70\xa0\x1c\x00\xae\x1b\x22\xce\xbe\x00\x00"
    "\x00\x83\x70\xa0\x1c\x00\xae\x1b\x22\xce\xbe\x00\x00\x00"sv;

/// A gzip header whose file name has not ended yet.
constexpr std::string_view endless_name = "\x1f\x8b\x08\x08\0\0\0\0\0\xff"sv;

/// Bytes that no filter makes much smaller, none of them NUL.
std::string noise(std::size_t size) {
  rng random(7);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(1 + random.below(255));
  return text;
}

/// Feeds `text` in pieces until there is an error. Tells how much was fed.
struct fed {
  std::size_t bytes = 0;
  std::string error;
};
fed feed_until_error(const std::string& text, std::size_t piece, tar::archive_options options = {}) {
  fed result;
  tar::archive_reader reader("test", options);
  tar::entry e;
  try {
    while (result.bytes < text.size()) {
      const std::string_view next = std::string_view(text).substr(result.bytes, piece);
      reader.feed(bytes::copy(next));
      result.bytes += next.size();
      while (reader.next(e)) {
      }
    }
  } catch (const archive_error& failed) {
    result.error = failed.reason();
  }
  return result;
}

/// The low `size` bytes of a number, as a zip has it.
std::string number(std::size_t value, std::size_t size) {
  std::string text;
  for (; text.size() < size; value >>= 8) text += static_cast<char>(value & 0xff);
  return text;
}

/// A zip of one folder that has a body, which is stored as it is.
std::string zip_of_folder(const std::string& body) {
  const std::string common = std::string(12, '\0') + number(body.size(), 4) + number(body.size(), 4) + number(7, 2);
  const std::string member = "PK\3\4\x14\0"s + common + number(0, 2) + "folder/" + body;
  const std::string record = "PK\1\2\x14\0\x14\0"s + common + std::string(16, '\0') + "folder/";
  return member + record + "PK\5\6\0\0\0\0\1\0\1\0"s + number(record.size(), 4) + number(member.size(), 4) +
         number(0, 2);
}

}  // namespace

TEST_CASE("a gzip file that unpacks to itself is unpacked once") {
  const std::string text(quine);
  for (const test::split& how : test::splits()) {
    const test::outcome got = test::read_all(tar::archive_reader("test"), text, how);
    CHECK(got.error == "the object is compressed more than once");
    CHECK(got.error_offset == 0u);
  }
  for (std::size_t length = 0; length <= text.size(); ++length) {  // and dropped while it waits for more
    tar::archive_reader reader("test");
    reader.feed(bytes::copy(std::string_view(text).substr(0, length)));
    tar::entry e;
    CHECK_FALSE(reader.next(e));
  }
  if (!test::have_tool("gzip")) MILLRACE_SKIP("no gzip to prove that it unpacks to itself");
  const test::temporary_folder folder;
  test::write_file(folder.path() + "/quine.gz", text);
  CHECK(test::shell("cd '" + folder.path() + "' && gzip -dc quine.gz | cmp - quine.gz"));
}

TEST_CASE("nothing is looked for inside what one layer of compression gives") {
  for (const std::string filter : {"gzip", "bzip2", "xz", "zstd", "lz4"}) {
    CAPTURE(filter);
    const std::string inner = std::string(endless_name) + noise(filter == "lz4" ? 6 * MiB : 2 * MiB);
    const std::string packed = test::compress(filter, inner);
    REQUIRE(packed.size() > MiB);
    const fed got = feed_until_error(packed, 16 * KiB);
    CHECK(got.error == "the object is compressed more than once");
    CHECK(got.bytes < packed.size());  // a block of bzip2 has 900 kB, one of lz4 4 MiB
  }
}

TEST_CASE("a gzip header without an end is an error at the end of the object") {
  const std::string header = std::string(endless_name) + std::string(3 * MiB, 'n');
  const std::string whole = test::compress("gzip", std::string(10240, '\0'));
  for (const std::string& text : {header, whole + header}) {
    const std::string wanted = "the gzip data is broken or cut near its byte " + std::to_string(text.size());
    CHECK(test::read_all(tar::archive_reader("test"), text, {}).error == wanted + ": it ends too early");
  }
}

TEST_CASE("a folder in a zip may have an empty body and no other") {
  for (const std::size_t piece : {std::size_t(4096), std::size_t(1) << 20}) {
    CHECK(feed_until_error(zip_of_folder(std::string()), piece).error.empty());
    CHECK(feed_until_error(zip_of_folder("small"), piece).error.empty());
    const std::string large = zip_of_folder(noise(2 * MiB));
    const fed got = feed_until_error(large, piece);
    CHECK(got.error == "the zip data has a folder with a body");
    CHECK(got.bytes < large.size());
  }
}

TEST_CASE("a reader that gathers an endless header can be dropped") {
  for (std::size_t pieces = 0; pieces < 20; ++pieces) {
    tar::archive_reader reader("test");
    tar::entry e;
    reader.feed(bytes::copy(std::string(endless_name) + std::string(600, 'n')));
    for (std::size_t i = 0; i < pieces; ++i) {
      CHECK_FALSE(reader.next(e));
      reader.feed(bytes::copy(std::string(1000, 'n')));
    }
  }
}
