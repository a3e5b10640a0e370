// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Numbers of headers, written in every way that occurs and in many that do not, as four readers read them: what we read
// as a number that no other tool reads differently. A reader that takes a length for another one than its neighbour
// finds members where that one sees a body.

#include <millrace/tar/format.hpp>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <archive.h>
#include <archive_entry.h>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"
#include "tests/tar/tools.hpp"

namespace {

using namespace millrace;
using namespace std::string_literals;

using reading = std::optional<long long>;  // a length; nothing where the header is refused

reading ours(const std::string& header) {
  if (!tar::detail::checksum_matches(header.data(), tar::detail::byte_sum(header.data()))) return std::nullopt;
  const tar::detail::number size = tar::detail::size_field(header.data());
  if (size.problem != nullptr) return std::nullopt;
  return static_cast<long long>(size.value);
}

reading libarchive(const std::string& header) {
  const std::string text = header + std::string(10240, '\0');
  archive* a = archive_read_new();
  archive_read_support_format_tar(a);
  archive_entry* e = nullptr;
  const bool read = archive_read_open_memory(a, text.data(), text.size()) == ARCHIVE_OK &&
                    archive_read_next_header(a, &e) == ARCHIVE_OK;
  const reading size = read ? reading(archive_entry_size(e)) : std::nullopt;
  archive_read_free(a);
  return size;
}

/// One line for each header: its length, or "-".
std::vector<reading> read_lines(const std::string& path) {
  std::vector<reading> all;
  std::istringstream in(test::read_file(path));
  for (std::string line; std::getline(in, line);) {
    all.push_back(line == "-" ? std::nullopt : reading(std::stoll(line)));
  }
  return all;
}

std::vector<reading> gnu_tar(const std::vector<std::string>& headers, const std::string& folder) {
  for (std::size_t i = 0; i < headers.size(); ++i) {
    test::write_file(folder + "/" + std::to_string(i) + ".tar", headers[i] + std::string(10240, '\0'));
  }
  // Numbers in its own base 64, which no other reader knows, are not counted: it says that they are obsolescent.
  REQUIRE(test::shell("cd '" + folder + "' && export LC_ALL=C && for i in $(seq 0 " +
                      std::to_string(headers.size() - 1) +
                      "); do tar -tvf $i.tar 2>said | awk 'NR == 1 { n = $3 } END { print NR ? n : \"-\" }' > size; "
                      "grep -q obsolescent said && echo - || cat size; done > gnu"));
  return read_lines(folder + "/gnu");
}

std::vector<reading> python(const std::vector<std::string>& headers, const std::string& folder) {
  std::string all;
  for (const std::string& header : headers) all += header;
  test::write_file(folder + "/headers", all);
  test::write_file(folder + "/read.py",
                   "import tarfile\n"
                   "data = open('headers', 'rb').read()\n"
                   "for at in range(0, len(data), 512):\n"
                   "    try:\n"
                   "        size = tarfile.TarInfo.frombuf(data[at:at + 512], 'utf-8', 'surrogateescape').size\n"
                   "        print(size if 0 <= size < 2 ** 63 else '-')\n"  // it knows no limits, and seeks back
                   "    except tarfile.HeaderError:\n"
                   "        print('-')\n");
  REQUIRE(test::shell("cd '" + folder + "' && python3 read.py > python"));
  return read_lines(folder + "/python");
}

/// A number as `text` in a field of `length` bytes, the rest filled up.
std::string field(std::string text, std::size_t length = 12, char fill = ' ') {
  text.resize(length, fill);
  return text;
}

/// The lengths 14 and 0 as writers have written them: read by every one of the four.
std::vector<std::string> common_sizes() {
  return {"00000000016 "s,
          "00000000016\0"s,
          "000000000016"s,
          "         16 "s,
          "         16\0"s,
          "          16"s,
          field("16"),
          field("16", 12, '\0'),
          field("", 12, '\0'),
          field("   ", 12, '\0'),
          "\x80\0\0\0\0\0\0\0\0\0\0\x0e"s,
          field("\x80", 12, '\0')};
}

std::vector<std::string> odd_sizes() {
  std::vector<std::string> all = {field(""),
                                  field("\0"s),
                                  "16\0        "s,
                                  "16 \0garbage!"s,
                                  "16\0garbage!!"s,  // no digits; something after a NUL
                                  "\00000000000016"s,
                                  "\0\0\0\0\0\0\0\0\0\00016"s,
                                  "\0\0\0\0\0\0     16"s,
                                  "  \0\0\0\0\0\0\0\00016"s,
                                  "     \0    16"s,
                                  "16         7"s,  // digits after NULs and blanks
                                  field("18"),
                                  field("8"),
                                  field("16x"),
                                  field("16 17"),
                                  field("garbage"),
                                  field("\xc3\xa9"
                                        "16"),
                                  field("0x10"),
                                  field("-16"),
                                  field("+16"),
                                  field("0o16"),
                                  field("1_6"),
                                  field("\t16"),
                                  field("16\t"),
                                  field("\n16"),
                                  "777777777777"s,
                                  "+AAAAAAAAAAO"s,
                                  "-AAAAAAAAAAO"s,
                                  "AAAAAAAAAAA="s,  // the largest; base 64
                                  "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"s,
                                  "\x80\0\0\0\x80\0\0\0\0\0\0\0"s,  // around 2^63
                                  "\x80\0\0\1\0\0\0\0\0\0\0\0"s,
                                  "\x80\1\0\0\0\0\0\0\0\0\0\0"s,
                                  "\x80\0\0\1\0\0\0\0\0\0\0\x0e"s,
                                  std::string(12, '\xff'),
                                  std::string(11, '\xff') + '\xf2',
                                  field("\xff", 12, '\0'),
                                  field("\xc0", 12, '\0'),
                                  field("\x80"),
                                  field("\x81", 12, '\0'),
                                  "\xa0\0\0\0\0\0\0\0\0\0\0\x0e"s};
  rng random(5);
  const std::string letters = "01678  \0\0\t-+x\x80\xff"s;
  for (int i = 0; i < 400; ++i) {
    std::string any(12, '\0');
    for (char& c : any) c = letters[random.below(letters.size())];
    all.push_back(any);
  }
  return all;
}

std::string with_size(const std::string& size) {
  test::header_block h;
  h.size = size;
  return h.text();
}

/// Headers whose checksum is right and written in all ways.
std::vector<std::string> with_checksums() {
  std::string block = with_size(test::octal_size(14));
  block.replace(148, 8, 8, ' ');
  const std::uint32_t sum = tar::detail::byte_sum(block.data());
  char digits[16];
  std::snprintf(digits, sizeof digits, "%o", sum);
  const std::string octal = digits;
  const std::string zeros(6 - octal.size(), '0');
  const std::string sum_bytes = {static_cast<char>(sum >> 8), static_cast<char>(sum)};
  std::vector<std::string> all;
  for (const std::string& stored : {zeros + octal + "\0 "s,
                                    zeros + octal + " \0"s,
                                    "0" + zeros + octal + '\0',
                                    "0" + zeros + octal + ' ',
                                    "00" + zeros + octal,
                                    std::string(8 - octal.size(), ' ') + octal,
                                    field(octal, 8),
                                    field(octal, 8, '\0'),
                                    field(octal + '\0', 8, 'x'),
                                    field(octal, 8, 'x'),
                                    field(octal + ' ', 8, 'x'),
                                    '\0' + zeros + octal + '\0',
                                    "\0\0"s + zeros + octal,
                                    std::string(8 - octal.size(), '\0') + octal,
                                    "\x80\0\0\0\0\0"s + sum_bytes,
                                    std::string(8, '\0'),
                                    std::string(8, ' '),
                                    field("+" + octal, 8),
                                    field("0o" + octal, 8),
                                    field("\t" + octal, 8),
                                    "\xff\xff\xff\xff\xff\xff"s + sum_bytes}) {
    block.replace(148, 8, stored);
    all.push_back(block);
  }
  return all;
}

/// Fields that no length depends on, with what is no number in them.
std::vector<std::string> with_other_fields() {
  struct place {
    std::size_t at;
    std::size_t length;
  };
  std::vector<std::string> all;
  for (const place p : {place{100, 8}, place{108, 8}, place{116, 8}, place{136, 12}, place{329, 8}, place{337, 8}}) {
    for (const std::string& value : {""s, "\0"s, "garbage"s, "-1"s, "\xff"s, "\x80"s, "0\0x"s, "\0\0007"s}) {
      std::string block = with_size(test::octal_size(14));
      block.replace(p.at, p.length, field(value, p.length, value == "\xff" ? '\xff' : ' '));
      all.push_back(test::header_block::sealed(block));
    }
  }
  return all;
}

std::string shown(const std::string& header) {
  std::string text;
  for (const char c : header.substr(100, 57)) {
    char hex[8];
    std::snprintf(hex, sizeof hex, c >= ' ' && c <= '~' ? "%c" : "\\x%02x", static_cast<unsigned char>(c));
    text += hex;
  }
  return text;
}

/// Checks that tools that read a length read ours. How many of the headers we read.
int compare(const std::vector<std::string>& headers, const std::vector<reading>& theirs) {
  REQUIRE(theirs.size() == headers.size());
  int read = 0;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const reading own = ours(headers[i]);
    if (!own) continue;
    ++read;
    if (!theirs[i] || theirs[i] == own) continue;
    CAPTURE(shown(headers[i]));
    CHECK(*own == *theirs[i]);
  }
  return read;
}

std::vector<std::string> all_headers() {
  std::vector<std::string> all;
  for (const std::string& size : common_sizes()) all.push_back(with_size(size));
  for (const std::string& size : odd_sizes()) all.push_back(with_size(size));
  for (const std::string& header : with_checksums()) all.push_back(header);
  for (const std::string& header : with_other_fields()) all.push_back(header);
  return all;
}

}  // namespace

TEST_CASE("numbers of headers: what writers have written is read by libarchive and by us") {
  for (const std::string& size : common_sizes()) {
    const std::string header = with_size(size);
    CAPTURE(shown(header));
    CHECK(ours(header).has_value());
    CHECK(ours(header) == libarchive(header));
  }
  for (const std::string& header : with_other_fields()) {
    CAPTURE(shown(header));
    CHECK(ours(header) == 14);  // they are not looked at
  }
}

TEST_CASE("numbers of headers: digits after a NUL are refused with the header's offset") {
  test::header_block h;
  h.size = "\0\0\0\0\0\0\0\0\0\00016"s;
  const std::string first = test::raw_member({}, "x");
  const test::outcome got = test::read_tar(first + h.text() + test::padded("fourteen bytes") + test::end_block());
  CHECK(got.members.size() == 1);
  CHECK(got.error == "a header's size field has something after a NUL and no number before it");
  CHECK(got.error_offset == first.size());
}

TEST_CASE("numbers of headers: libarchive reads no length as another than ours") {
  const std::vector<std::string> headers = all_headers();
  std::vector<reading> theirs;
  for (const std::string& header : headers) theirs.push_back(libarchive(header));
  CHECK(compare(headers, theirs) > 90);
}

TEST_CASE("numbers of headers: GNU tar reads no length as another than ours", "[slow]") {
  if (!test::shell("tar --version | grep -q 'GNU tar'")) MILLRACE_SKIP("no GNU tar");
  const std::vector<std::string> headers = all_headers();
  const test::temporary_folder folder;
  CHECK(compare(headers, gnu_tar(headers, folder.path())) > 90);
}

TEST_CASE("numbers of headers: Python reads no length as another than ours") {
  if (!test::have_tool("python3")) MILLRACE_SKIP("no python3");
  const std::vector<std::string> headers = all_headers();
  const test::temporary_folder folder;
  CHECK(compare(headers, python(headers, folder.path())) > 90);
}
