// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/tar/archive_reader.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/tar/writer.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"
#include "tests/tar/packers.hpp"
#include "tests/tar/tools.hpp"

namespace {

using namespace millrace;
using test::compress;
using test::outcome;

const std::vector<std::string>& filters() {
  static const std::vector<std::string> all = {"gzip", "bzip2", "xz", "zstd", "lz4"};
  return all;
}

outcome read_any(const std::string& text, tar::archive_options options = {}, test::split how = {},
                 slab_pool pool = slab_pool(64 * KiB)) {
  return test::read_all(tar::archive_reader("test", options, std::move(pool)), text, how);
}

/// A tar whose bodies are words with some noise: compressible, but not to nothing.
std::string sample_tar(std::size_t members, std::size_t most_body) {
  std::string text;
  tar::writer archive(text);
  rng random(5);
  for (std::size_t i = 0; i < members; ++i) {
    std::string body;
    const std::uint64_t size = random.below(most_body + 1);
    while (body.size() < size) {
      body += random.below(3) == 0 ? std::string(1, static_cast<char>(random.next())) : std::string("word ");
    }
    archive.add("train/" + std::to_string(i) + ".txt", body, {.mtime_ns = i % 2 == 0 ? 0 : 1500000000});
  }
  archive.finish();
  return text;
}

/// zstd by its own tool, which adds a checksum; libarchive's writer does not, and then there is nothing to verify.
std::string compress_with_checksum(const std::string& text) {
  if (!test::have_tool("zstd")) return std::string();
  const test::temporary_folder folder;
  test::write_file(folder.path() + "/text", text);
  REQUIRE(test::shell("zstd -q --check '" + folder.path() + "/text'"));
  return test::read_file(folder.path() + "/text.zst");
}

bool is_prefix(const std::vector<test::member>& some, const std::vector<test::member>& all) {
  return some.size() <= all.size() && std::equal(some.begin(), some.end(), all.begin());
}

}  // namespace

TEST_CASE("compressed tars give what the plain tar gives, however they are cut", "[slow]") {
  const std::string plain = sample_tar(60, 20000);
  const outcome wanted = test::read_tar(plain);
  REQUIRE(wanted.members.size() == 60);
  for (const test::split& how : test::splits()) CHECK((read_any(plain, {}, how) == wanted));
  for (const std::string& filter : filters()) {
    CAPTURE(filter);
    const std::string packed = compress(filter, plain);
    REQUIRE(packed.size() < plain.size());
    for (const test::split& how : test::splits()) {
      CAPTURE(how.size, how.seed);
      CHECK((read_any(packed, {}, how) == wanted));
      CHECK((read_any(packed, {}, how, slab_pool(4096)) == wanted));
    }
  }
}

TEST_CASE("compressed tars cut anywhere are errors") {
  const std::string plain = sample_tar(4, 1200);
  const outcome wanted = test::read_tar(plain);
  for (const std::string& filter : filters()) {
    CAPTURE(filter);
    const std::string packed = compress(filter, plain);
    for (std::size_t length = 0; length < packed.size(); ++length) {
      const outcome got = read_any(packed.substr(0, length), {}, {700, 0});
      if (got.error.empty() || !got.error_offset || !is_prefix(got.members, wanted.members)) {
        CAPTURE(length, packed.size(), test::describe(got));
        FAIL("a cut archive passes");
      }
    }
  }
}

TEST_CASE("compressed tars with a flipped bit are errors or unchanged") {
  const std::string plain = sample_tar(3, 600);
  const outcome wanted = test::read_tar(plain);
  rng random(3);
  for (const std::string& filter : filters()) {
    CAPTURE(filter);
    const std::string packed = filter == "zstd" ? compress_with_checksum(plain) : compress(filter, plain);
    if (packed.empty()) continue;
    int errors = 0;
    for (std::size_t at = 0; at < packed.size(); ++at) {
      std::string flipped = packed;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << random.below(8)));
      const outcome got = read_any(flipped);
      errors += !got.error.empty();
      if (got.error.empty() && got.members != wanted.members && got.warning.empty()) {
        CAPTURE(at, test::describe(got));
        FAIL("damaged data passes");
      }
    }
    CHECK(errors > static_cast<int>(packed.size() / 2));
  }
}

TEST_CASE("compressed tars may be followed by zeros and by nothing else") {
  const std::string plain = sample_tar(3, 600);
  const outcome wanted = test::read_tar(plain);
  for (const std::string& filter : filters()) {
    const std::string packed = compress(filter, plain);
    for (const std::string& rest :
         {std::string("x"), std::string("garbage after the end"), packed.substr(0, 5), std::string(600, '\0') + "x"}) {
      CAPTURE(filter, rest);
      for (const test::split& how : {test::split{0, 0}, test::split{1, 0}, test::split{packed.size(), 0}}) {
        const outcome got = read_any(packed + rest, {}, how);
        CHECK(!got.error.empty());
        CHECK(is_prefix(got.members, wanted.members));
      }
    }
    if (filter == "gzip" || filter == "bzip2" || filter == "xz") {
      for (const test::split& how : {test::split{0, 0}, test::split{1, 0}}) {
        CHECK((read_any(packed + std::string(600, '\0'), {}, how) == wanted));
      }
    }
  }
}

TEST_CASE("several streams, one after the other, are one: verified, and an error where one is cut or damaged") {
  const std::string plain = sample_tar(3, 600);
  const outcome wanted = test::read_tar(plain);
  rng random(8);
  for (const std::string& filter : filters()) {
    CAPTURE(filter);
    const auto pack = [&](const std::string& text) {
      const std::string checked = filter == "zstd" ? compress_with_checksum(text) : std::string();
      return checked.empty() ? compress(filter, text) : checked;
    };
    // libarchive's writer of lz4 crashes when it gets nothing to write.
    const std::string first = pack(plain.substr(0, 300)) + (filter == "lz4" ? "" : pack(""));
    const std::string packed = first + pack(plain.substr(300));
    for (const test::split& how : test::splits()) CHECK((read_any(packed, {}, how) == wanted));
    for (std::size_t length = 0; length < packed.size(); ++length) {
      const outcome got = read_any(packed.substr(0, length), {}, {700, 0});
      if (got.error.empty() || !got.error_offset || !is_prefix(got.members, wanted.members)) {
        CAPTURE(length, first.size(), packed.size(), test::describe(got));
        FAIL("a cut archive passes");
      }
    }
    if (filter == "zstd" && !test::have_tool("zstd")) continue;  // without checksums
    for (std::size_t at = 0; at < packed.size(); ++at) {
      std::string flipped = packed;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << random.below(8)));
      const outcome got = read_any(flipped);
      if (got.error.empty() && got != wanted) {
        CAPTURE(at, first.size(), test::describe(got));
        FAIL("damaged data passes");
      }
    }
  }
  std::string wrong = compress("gzip", plain);
  const std::string where = "the gzip data is broken or cut near its byte ";
  wrong[wrong.size() - 6] ^= 1;
  CHECK(read_any(wrong).error == where + std::to_string(wrong.size() - 4) + ": incorrect data check");
  wrong[wrong.size() - 6] ^= 1;
  wrong[wrong.size() - 1] ^= 1;
  CHECK(read_any(wrong).error == where + std::to_string(wrong.size()) + ": incorrect length check");
}

TEST_CASE("zstd frames that are skipped give nothing, and are errors where they are cut") {
  const std::string plain = sample_tar(3, 600);
  const outcome wanted = test::read_tar(plain);
  const std::string skipped = std::string("\x53\x2a\x4d\x18\x14\0\0\0", 8) + "twenty bytes to skip";
  const std::string frame = compress("zstd", plain);
  const std::string packed = skipped + frame + skipped + skipped;
  for (const test::split& how : {test::split{0, 0}, test::split{1, 0}, test::split{7, 0}}) {
    CHECK((read_any(packed, {}, how) == wanted));
  }
  for (std::size_t length = 1; length < packed.size(); ++length) {
    const outcome got = read_any(packed.substr(0, length));
    const bool behind_frame =
        length == skipped.size() || length == skipped.size() + frame.size() || length == packed.size() - skipped.size();
    CAPTURE(length, test::describe(got));
    const bool only_skipped = length == skipped.size() && got.error == "the object is empty, not an archive";
    REQUIRE((got.error.empty() || only_skipped) == behind_frame);
  }
}

TEST_CASE("compressed things that are no tar are errors") {
  CHECK(read_any(compress("gzip", "just text")).error ==
        "the archive is cut inside a header, or no tar, but text: it begins with \"just text\"");
  CHECK(read_any(compress("zstd", std::string(600, 'x'))).error ==
        "not a tar archive, but text: it begins with \"xxxxxxxxxxxxxxxxxxxxxxxx\"");
  CHECK(read_any(compress("gzip", "")).error == "the object is empty, not an archive");
  CHECK(read_any(compress("gzip", compress("gzip", sample_tar(3, 600)))).error ==
        "the object is compressed more than once");
}

TEST_CASE("compressed bombs are stopped") {
  std::string plain;
  tar::writer archive(plain);
  archive.add("zeros", std::string(30000000, '\0'));
  archive.finish();
  const std::string packed = compress("zstd", plain);
  REQUIRE(packed.size() < 10000);
  const outcome ratio = read_any(compress("zstd", std::string(70 * MiB, '\0')));
  CHECK(ratio.error == "the object unpacks to more than max_ratio times its size");
  CHECK(ratio.error_offset < 66 * MiB);
  CHECK(read_any(packed, {.max_output_bytes = 20000000}).error == "the object unpacks to more than max_output_bytes");
  CHECK(read_any(packed).members.size() == 1);
  CHECK(read_any(packed, {.members = {.max_member_bytes = 1000}}).error ==
        "the member's 30000000 bytes are more than max_member_bytes");
}

TEST_CASE("compressed archives can be dropped at any moment") {
  const std::string plain = sample_tar(30, 3000);
  for (const std::string& filter : filters()) {
    const std::string packed = compress(filter, plain);
    for (std::size_t taken = 0; taken < 30; taken += 3) {
      auto reader = std::make_unique<tar::archive_reader>("test", tar::archive_options(), slab_pool(4096));
      tar::entry e;
      std::vector<bytes> kept;
      for (std::size_t at = 0; at < packed.size() && kept.size() < taken; at += 100) {
        reader->feed(bytes::copy(packed.substr(at, 100)));
        while (kept.size() < taken && reader->next(e)) kept.push_back(e.body);
      }
      reader.reset();  // the bodies outlive the reader and its pool
      for (const bytes& body : kept) CHECK((body.empty() || plain.find(body.view()) != std::string::npos));
    }
    tar::archive_reader moved("other");
    tar::archive_reader fed("test");
    fed.feed(bytes::copy(packed));
    fed.finish();
    tar::entry e;
    CHECK(fed.next(e));
    moved = std::move(fed);
    CHECK(moved.next(e));
  }
}

TEST_CASE("compressed WebDataset shard is read") {
  const std::string folder = test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data folder");
  const std::string text = test::read_file(folder + "/tar/webdataset/sample.tgz");
  const outcome got = read_any(text);
  CHECK(got.error.empty());
  CHECK(got.warning.empty());
  CHECK(got.members.size() == 180);
  for (const test::split& how : test::splits()) CHECK((read_any(text, {}, how) == got));
  const outcome large = read_any(test::read_file(folder + "/tar/go/pax-bad-hdr-large.tar.bz2"));
  CHECK(large.error == "a pax header of 1048577 bytes is larger than 1 MiB");
  CHECK(large.error_offset == 0u);
}
