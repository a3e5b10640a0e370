// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/tar/archive_reader.hpp>

#include <string>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"
#include "tests/tar/packers.hpp"

namespace {

using namespace millrace;
using test::outcome;
using test::packed_file;

outcome read_any(const std::string& text, tar::archive_options options = {}, test::split how = {}) {
  return test::read_all(tar::archive_reader("test", options), text, how);
}

std::vector<packed_file> files() {
  std::string noise(70000, '\0');
  rng random(9);
  for (char& c : noise) c = static_cast<char>(random.next());
  return {{"a.txt", "abc"},
          {"dir/", "", AE_IFDIR},
          {"dir/noise.bin", noise},
          {"empty", ""},
          {"\xe6\x97\xa5\xe6\x9c\xac.txt", std::string(5000, 'w')}};
}

void check_files(const outcome& got) {
  CAPTURE(test::describe(got));
  CHECK(got.error.empty());
  const std::vector<packed_file> wanted = files();
  REQUIRE(got.members.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CAPTURE(wanted[i].name);
    const bool directory = wanted[i].type == AE_IFDIR;
    CHECK((got.members[i].name == wanted[i].name || (directory && got.members[i].name + "/" == wanted[i].name)));
    CHECK((got.members[i].body == wanted[i].body));
    CHECK(got.members[i].type == (directory ? '5' : '0'));
    CHECK(got.members[i].size == wanted[i].body.size());
    if (i != 0) CHECK(got.members[i].header_offset > got.members[i - 1].header_offset);
  }
}

}  // namespace

TEST_CASE("zip and cpio archives are read, however they are cut") {
  for (const auto& [format, options] : std::vector<std::pair<std::string, const char*>>{{"zip", "compression=deflate"},
                                                                                        {"zip", "compression=store"},
                                                                                        {"newc", nullptr},
                                                                                        {"odc", nullptr},
                                                                                        {"bin", nullptr}}) {
    CAPTURE(format);
    const std::string text = test::pack(format, files(), options);
    const outcome whole = read_any(text);
    check_files(whole);
    for (const test::split& how : test::splits()) CHECK((read_any(text, {}, how) == whole));
  }
}

TEST_CASE("zip and cpio archives that are cut are errors") {
  const std::vector<packed_file> small = {{"a", "abc"}, {"b", std::string(300, 'b')}, {"c", "c"}};
  for (const char* format : {"zip", "newc", "odc", "bin"}) {
    CAPTURE(format);
    const std::string text = test::pack(format, small);
    const outcome whole = read_any(text);
    REQUIRE(whole.members.size() == 3);
    // What follows the name of a cpio's end mark is not needed.
    const std::size_t end = std::string(format) == "zip" ? text.size() : text.find("TRAILER!!!");
    REQUIRE(end != std::string::npos);
    for (std::size_t length = 0; length < text.size(); ++length) {
      const outcome got = read_any(text.substr(0, length), {}, {50, 0});
      if (got.error.empty() ? got.members != whole.members || length < end : !got.error_offset.has_value()) {
        CAPTURE(length, end, text.size(), test::describe(got));
        FAIL("a cut archive passes");
      }
    }
  }
}

TEST_CASE("zip members with a flipped bit in their bodies are errors") {
  for (const char* options : {"compression=store", "compression=deflate"}) {
    CAPTURE(options);
    const std::string text = test::pack("zip", {{"a.txt", std::string(100, 'a') + "0123456789abcdefghij"}}, options);
    // After the local header, the name and the extra fields (APPNOTE.TXT, 4.3.7): libarchive's versions differ there.
    const auto short_at = [&](std::size_t at) {
      return static_cast<unsigned char>(text[at]) + 256u * static_cast<unsigned char>(text[at + 1]);
    };
    const std::size_t begin = 30 + short_at(26) + short_at(28);
    const outcome whole = read_any(text);
    int noticed = 0;
    for (std::size_t at = begin; at < begin + 20; ++at) {
      std::string flipped = text;
      flipped[at] ^= 4;
      const outcome got = read_any(flipped);
      if (got == whole) continue;  // some bits of a deflate stream mean nothing
      CAPTURE(at, test::describe(got));
      CHECK(got.members.empty());
      CHECK(got.error_offset == 0u);
      ++noticed;
    }
    CHECK(noticed >= 15);
  }
}

TEST_CASE("a zip that is packed by Deflate64 is refused by that name") {
  std::string text = test::pack("zip", {{"a.txt", std::string(1000, 'a')}}, "compression=deflate");
  REQUIRE(text[8] == '\x08');
  text[8] = '\x09';
  CHECK_THAT(read_any(text).error, Catch::Matchers::Contains("the member is packed by Deflate64"));
}

TEST_CASE("zip and cpio members are not lost when a header is damaged") {
  const std::vector<packed_file> small = {{"a", "abc"}, {"b", std::string(300, 'b')}, {"c", "c"}};
  for (const char* format : {"zip", "newc", "odc", "bin"}) {
    CAPTURE(format);
    const std::string text = test::pack(format, small);
    const outcome whole = read_any(text);
    for (std::size_t at = 0; at < text.size(); ++at) {
      for (int bit : {0, 3, 6}) {
        std::string flipped = text;
        flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
        const outcome got = read_any(flipped);
        if (got.error.empty() && got.members.size() != whole.members.size()) {
          CAPTURE(at, bit, test::describe(got));
          FAIL("a member is lost");
        }
      }
    }
  }
  std::string text = test::pack("zip", small);
  text[text.find("PK\x03\x04", 4)] ^= 1;
  const outcome got = read_any(text);
  CHECK(got.error == "the zip's directory lists 3 members, 2 were found");
  CHECK(got.error_offset == text.find("PK\x01\x02"));
}

TEST_CASE("cpio members are not lost when a header is damaged, wherever the archive is cut") {
  // libarchive says nothing of what it passes over in its search for a header when a piece ends there.
  const std::vector<packed_file> small = {{"a", "abc"}, {"b", std::string(300, 'b')}, {"c", "c"}, {"d", "dd"}};
  for (const char* format : {"newc", "odc"}) {
    CAPTURE(format);
    const std::string text = test::pack(format, small);
    const std::size_t first_headers = text.find("bbb") + 10;
    for (std::size_t at = 0; at < first_headers; at += 5) {
      std::string flipped = text;
      flipped[at] = static_cast<char>(flipped[at] ^ 8);
      for (std::size_t cut = at + 1; cut < text.size(); cut += 23) {
        tar::archive_reader reader("test", {});
        std::size_t members = 0;
        try {
          for (const std::string_view piece :
               {std::string_view(flipped).substr(0, cut), std::string_view(flipped).substr(cut), std::string_view()}) {
            if (piece.empty()) {
              reader.finish();
            } else {
              reader.feed(bytes::copy(piece));
            }
            tar::entry e;
            while (reader.next(e)) ++members;
          }
        } catch (const archive_error&) {
          continue;
        }
        if (members != small.size()) {
          CAPTURE(at, cut, members);
          FAIL("a member is lost");
        }
      }
    }
  }
}

TEST_CASE("zip and cpio members respect the limits") {
  for (const char* format : {"zip", "newc"}) {
    CAPTURE(format);
    const std::string text = test::pack(format, {{"name", std::string(100000, 'x')}});
    const outcome large = read_any(text, {.members = {.max_member_bytes = 99999}});
    CHECK(large.error.find("max_member_bytes") != std::string::npos);
    CHECK(large.members.empty());
    CHECK(read_any(text, {.members = {.max_member_bytes = 100000}}).members.size() == 1);
  }
  const std::string bomb = test::pack("zip", {{"name", std::string(70 * MiB, '\0')}});
  CHECK(read_any(bomb, {.max_ratio = 500}).error == "the object unpacks to more than max_ratio times its size");
  const std::string long_name = test::pack("newc", {{std::string(4097, 'n'), "x"}});
  CHECK(read_any(long_name).error == "a name is longer than 4096 bytes");
}

TEST_CASE("the input of an unpacker counts what it holds, and long zip members are read") {
  tar::detail::packed_input input(16);
  input.push(bytes::copy("abc"));
  input.push(bytes::copy("de"));
  CHECK(input.next() == "abc");
  CHECK(input.held() == 5);
  CHECK(input.next() == "de");
  CHECK(input.held() == 2);
  const std::string text = test::pack("zip", {{"a", std::string(40 * MiB, 'x')}}, "compression=store");
  for (const std::size_t piece : {text.size(), std::size_t(MiB)}) {
    CHECK((read_any(text, {}, {piece, 0}).members.at(0).body == std::string(40 * MiB, 'x')));
  }
}

TEST_CASE("cpio links are distinguished from files") {
  const std::string text = test::pack("newc", {{"link", "target", AE_IFLNK}, {"file", "body"}});
  const outcome got = read_any(text);
  REQUIRE(got.members.size() == 2);
  CHECK(got.members[0].type == '2');
  CHECK(got.members[0].body.empty());
  CHECK(got.members[1].body == "body");
}

TEST_CASE("cpio hard links are refused where the body may lie elsewhere") {
  std::string text = test::pack("newc", {{"one", ""}, {"two", "body"}});
  text.replace(6 + 8 * 4, 8, "00000002");  // newc: inode, mode, uid, gid, then the number of links
  const outcome got = read_any(text);
  CAPTURE(test::describe(got));
  CHECK(got.error.find("hard-linked files are not supported") == 0);
}

TEST_CASE("archive_reader gives slices of a plain tar") {
  const bytes text = bytes::copy(test::raw_member({}, std::string(600, 'a')) + test::end_block());
  tar::archive_reader reader("x");
  tar::entry e;
  reader.feed(text.slice(0, 100));
  CHECK(!reader.next(e));
  CHECK(reader.kind() == tar::format::unknown);
  reader.feed(text.slice(100, text.size() - 100));
  REQUIRE(reader.next(e));
  CHECK(reader.kind() == tar::format::tar);
  CHECK(e.body.data() == text.data() + 512);
  CHECK(!reader.next(e));
  CHECK(reader.done());
}

TEST_CASE("archive_reader resumes plain tars in the middle") {
  const std::string text = test::raw_member({}, "abc") + test::raw_member({}, "def") + test::end_block();
  const outcome got = read_any(text.substr(1024), {.members = {.object_bytes = text.size(), .start = 1024}});
  REQUIRE(got.members.size() == 1);
  CHECK(got.members[0].body == "def");
  CHECK(got.members[0].header_offset == 1024);
}

TEST_CASE("archive_reader says what it cannot read") {
  CHECK(read_any("").error == "the object is empty, not an archive");
  const outcome xml = read_any("<?xml version=\"1.0\"?><Error><Code>SlowDown</Code></Error>");
  CHECK(xml.error.find("not an archive of a known kind, but XML or HTML") == 0);
  CHECK(xml.error_offset == 0u);
  const outcome text = read_any(std::string(2000, 'x'));
  CHECK(text.error.find("not an archive of a known kind, but text: it begins with \"xxx") == 0);
  CHECK(read_any("7z\xbc\xaf\x27\x1c" + std::string(600, '\0')).error.find("7z archives are not supported") == 0);
  CHECK(read_any("\x1f\x8b").error.find("the gzip data is broken or cut") == 0);
}

TEST_CASE("archive formats are detected from their first bytes") {
  using tar::detect;
  using tar::format;
  CHECK(detect("") == format::unknown);
  CHECK(detect("hello") == format::unknown);
  CHECK(detect(test::header_block().text()) == format::tar);
  CHECK(detect(test::header_block{.magic = ""}.text()) == format::tar);
  CHECK(detect(test::end_block()) == format::tar);
  CHECK(detect(test::header_block().text().substr(0, 300)) == format::tar);
  CHECK(detect(test::header_block{.name = "BZh91AY.jpg"}.text()) == format::tar);
  for (const char* name : {"gzip", "bzip2", "xz", "zstd", "lz4"}) {
    CHECK(std::string(format_name(detect(test::compress(name, "abc")))) == name);
  }
  CHECK(detect(test::pack("zip", {{"a", "b"}})) == format::zip);
  CHECK(detect(test::pack("newc", {{"a", "b"}})) == format::cpio);
  CHECK(detect("7z\xbc\xaf\x27\x1c") == format::seven_zip);
}
