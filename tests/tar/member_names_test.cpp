// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Names of members beyond ASCII are the archive's bytes, whatever the locale; a member without a name is an error.

#include <millrace/tar/archive_reader.hpp>

#include <clocale>
#include <cstdint>
#include <string>
#include <vector>

#include <zlib.h>

#include "tests/support/catch.hpp"
#include "tests/support/test_data.hpp"
#include "tests/tar/archives.hpp"
#include "tests/tar/packers.hpp"
#include "tests/tar/tools.hpp"

namespace {

using namespace millrace;
using namespace std::string_literals;
using test::outcome;

outcome read_any(const std::string& text, test::split how = {}) {
  return test::read_all(tar::archive_reader("test"), text, how);
}

std::string little(std::uint64_t n, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(n >> (8 * i));
  return text;
}

std::uint32_t crc_of(const std::string& text) {
  return static_cast<std::uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(text.data()), uInt(text.size())));
}

struct zip_file {
  std::string name;
  std::string body;
  unsigned flags = 0;  // 0x800: the name is UTF-8
  std::string extra = {};
  std::string gap = {};  // bytes before the member
};

/// A stored zip, byte for byte: APPNOTE 4.3.7, 4.3.12, 4.3.16.
std::string zip_of(const std::vector<zip_file>& files) {
  std::string text;
  std::string directory;
  for (const zip_file& f : files) {
    text += f.gap;
    const std::string common = little(20, 2) + little(f.flags, 2) + little(0, 2) + little(0, 4) +
                               little(crc_of(f.body), 4) + little(f.body.size(), 4) + little(f.body.size(), 4) +
                               little(f.name.size(), 2) + little(f.extra.size(), 2);
    directory += "PK\1\2" + little(20, 2) + common + little(0, 2) + little(0, 2) + little(0, 2) + little(0, 4) +
                 little(text.size(), 4) + f.name + f.extra;
    text += "PK\3\4" + common + f.name + f.extra + f.body;
  }
  return text + directory + "PK\5\6" + little(0, 4) + little(files.size(), 2) + little(files.size(), 2) +
         little(directory.size(), 4) + little(text.size(), 4) + little(0, 2);
}

/// Info-ZIP's field 0x7075: the name in UTF-8, with the CRC of the other one.
std::string unicode_path(const std::string& utf8, std::uint32_t crc) {
  return little(0x7075, 2) + little(5 + utf8.size(), 2) + "\1" + little(crc, 4) + utf8;
}

std::string nameless_cpio(const char* format) {
  std::string text = test::pack(format, {{"NAME", "x"}});
  const bool newc = format == "newc"s;
  text.replace(newc ? 94 : 59, newc ? 8 : 6, newc ? "00000001" : "000001");
  const std::size_t name = text.find("NAME");
  text.replace(name, newc ? 6 : 5, newc ? 2 : 1, '\0');  // with what pads it
  return text;
}

class locale_for_a_while {
 public:
  explicit locale_for_a_while(const char* name) : known_(std::setlocale(LC_ALL, name) != nullptr) {}
  ~locale_for_a_while() { std::setlocale(LC_ALL, "C"); }
  bool known() const noexcept { return known_; }

 private:
  bool known_;
};

const std::vector<const char*>& locales() {
  static const std::vector<const char*> all = {"C", "C.utf8", "POSIX"};
  return all;
}

}  // namespace

TEST_CASE("names of zip members are the archive's bytes, whatever the locale and the pieces") {
  const std::string umlaut = "d\xc3\xb6/\xc3\xa4.txt";  // UTF-8
  const std::string old = "\x84.txt";                     // the same letter in code page 437
  const std::string japanese = "\xe6\x97\xa5\xe6\x9c\xac.npy";
  const std::string broken = "\xc3(.txt";  // no UTF-8, though it says so
  const std::string long_name = "l" + std::string(3000, '\xe9') + ".bin";
  const std::vector<zip_file> files = {
      {umlaut, "one", 0x800},
      {old, "two"},
      {old, "three", 0, "xx\0\0"s + unicode_path("\xc3\xa4.jpg", crc_of(old))},
      {old, "four", 0, unicode_path("stale.jpg", 1)},  // of another name (APPNOTE 4.6.9): the field does not count
      {japanese, std::string(70000, 'j'), 0x800},
      {broken, "six", 0x800},
      {"back\\slash.txt", "seven"},
      {"cut\0off"s, "eight"},  // as Python's zipfile
      {"ordner\xc3\xa4/", "", 0x800},
      {long_name, "ten", 0, little(1, 2) + little(65000, 2) + std::string(65000, 'x')},
      {"e", "", 0, "", "what is between"},
  };
  const std::vector<std::string> names = {umlaut, old, "\xc3\xa4.jpg", old, japanese, broken, "back\\slash.txt", "cut",
                                          "ordner\xc3\xa4/", long_name, "e"};
  const std::string text = zip_of(files);
  for (const char* locale : locales()) {
    const locale_for_a_while as(locale);
    if (!as.known()) continue;
    for (const test::split& how : test::splits()) {
      const outcome got = read_any(text, how);
      CAPTURE(locale, how.size, got.error);
      REQUIRE(got.error.empty());
      REQUIRE(got.members.size() == names.size());
      for (std::size_t i = 0; i < names.size(); ++i) {
        CHECK((got.members[i].name == names[i]));
        CHECK((got.members[i].body == files[i].body));
        CHECK(got.members[i].type == (i == 8 ? '5' : '0'));
        CHECK(text.compare(got.members[i].header_offset, 4, "PK\3\4") == 0);
      }
    }
  }
}

TEST_CASE("names of tar and cpio members are the archive's bytes, whatever the locale") {
  const std::string name = "\xc3\xa4\xe9.txt";
  std::string pax = test::pax_header(test::pax_record("path", name)) + test::raw_member({}, "x") + test::end_block();
  const std::vector<std::string> archives = {
      test::raw_member({.name = name}, "x") + test::end_block(), pax, test::pack("newc", {{name, "x"}}),
      test::pack("odc", {{name, "x"}}), test::compress("xz", pax)};
  for (const char* locale : locales()) {
    const locale_for_a_while as(locale);
    if (!as.known()) continue;
    for (const std::string& text : archives) {
      const outcome got = read_any(text);
      CAPTURE(locale, got.error);
      REQUIRE(got.members.size() == 1);
      CHECK((got.members[0].name == name));
    }
  }
}

TEST_CASE("zips of Python's zipfile with names beyond ASCII are read") {
  if (!test::have_tool("python3")) MILLRACE_SKIP("no python3");
  const test::temporary_folder folder;
  const std::string path = folder.path() + "/a.zip";
  REQUIRE(test::shell("python3 -c \"import zipfile; z = zipfile.ZipFile('" + path +
                      "', 'w', zipfile.ZIP_DEFLATED); z.writestr('\xc3\xa4.txt', b'a' * 100); z.writestr('b.txt', "
                      "b'b'); z.writestr('\xe6\x96\x87/\xe6\x9c\xac.cls', b'1'); z.close()\""));
  const outcome got = read_any(test::read_file(path));
  REQUIRE(got.members.size() == 3);
  CHECK(got.members[0].name == "\xc3\xa4.txt");
  CHECK(got.members[2].name == "\xe6\x96\x87/\xe6\x9c\xac.cls");
}

TEST_CASE("a member without a name is an error in every format") {
  const std::string pax = test::pax_header(test::pax_record("size", "1"));
  const std::vector<std::pair<std::string, std::uint64_t>> archives = {
      {test::raw_member({}, "x") + test::raw_member({.name = ""}, "x") + test::end_block(), 1024},
      {test::raw_member({.name = "", .type = '\0', .magic = ""}, "x") + test::end_block(), 0},
      {pax + test::raw_member({.name = ""}, "x") + test::end_block(), pax.size()},
      {zip_of({{"a", "x"}, {"", "x"}}), 32},
      {zip_of({{"\0a"s, "x"}}), 0},
      {nameless_cpio("newc"), 0},
      {nameless_cpio("odc"), 0},
      {test::compress("gzip", test::raw_member({.name = ""}, "x") + test::end_block()), 0}};
  for (const auto& [text, at] : archives) {
    const outcome got = read_any(text);
    CAPTURE(got.members.size(), at);
    CHECK(got.error == "a member has no name");
    CHECK(got.error_offset == at);
  }
  // A folder is passed over: nothing is lost.
  CHECK(read_any(test::raw_member({.name = "", .type = '5'}, "") + test::end_block()).error.empty());
}
