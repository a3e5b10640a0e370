// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/tar/format.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <millrace/base/rng.hpp>
#include <millrace/tar/reader.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"

// What every member passes through is read eight or sixteen bytes at a time; here it is read byte by byte, too.

namespace {

using namespace millrace;
namespace parse = tar::detail;

constexpr std::size_t size_at = 124;
constexpr std::size_t checksum_at = 148;

/// A number of a header, by the rules: its value, or what is wrong with it.
std::string number_by_rules(const std::string& field) {
  std::uint64_t value = 0;
  if ((static_cast<unsigned char>(field[0]) & 0x80) != 0) {
    if ((static_cast<unsigned char>(field[0]) & 0x40) != 0) return "is negative";
    value = static_cast<unsigned char>(field[0]) & 0x3f;
    for (std::size_t i = 1; i < field.size(); ++i) {
      if (value > (INT64_MAX >> 8)) return "is beyond 2^63";
      value = value * 256 + static_cast<unsigned char>(field[i]);
    }
    return std::to_string(value);
  }
  std::size_t i = std::min(field.find_first_not_of(' '), field.size());
  if (i < field.size() && field[i] == '\0') {
    const bool empty = field.find_first_not_of(std::string_view(" \0", 2)) == std::string::npos;
    return empty ? "0" : "has something after a NUL and no number before it";
  }
  for (; i < field.size() && field[i] >= '0' && field[i] <= '7'; ++i) {
    value = value * 8 + static_cast<std::uint64_t>(field[i] - '0');
  }
  for (; i < field.size() && field[i] != '\0'; ++i) {
    if (field[i] != ' ') return "is not an octal number";
  }
  return std::to_string(value);
}

std::uint32_t sum_by_rules(const std::string& block) {
  std::uint32_t sum = 0;
  for (char c : block) sum += static_cast<unsigned char>(c);
  return sum;
}

bool checksum_by_rules(const std::string& block) {
  const std::string stored = number_by_rules(block.substr(checksum_at, 8));
  std::int64_t plain = 0;
  std::int64_t as_signed = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const char c = i >= checksum_at && i < checksum_at + 8 ? ' ' : block[i];
    plain += static_cast<unsigned char>(c);
    as_signed += static_cast<signed char>(c);
  }
  return stored == std::to_string(plain) || stored == std::to_string(as_signed);
}

std::string size_of(const std::string& block) {
  const parse::number size = parse::size_field(block.data());
  return size.problem != nullptr ? size.problem : std::to_string(size.value);
}

bool matches(const std::string& block) { return parse::checksum_matches(block.data(), parse::byte_sum(block.data())); }

std::string random_block(rng& random) {
  std::string block(512, '\0');
  for (char& c : block) c = static_cast<char>(random.next());
  return block;
}

/// Characters that fields are made of, mostly.
char field_character(rng& random) {
  static constexpr std::string_view usual("00001234567\0 \0 89x-\x80\xff", 21);
  return usual[static_cast<std::size_t>(random.below(usual.size()))];
}

std::string name_in(const std::string& block, std::string before) {
  parse::assign_name(before, block.data());
  return before;
}

/// The reason why a pax header is refused with the offset of its record, or nothing.
std::string refusal(const std::string& records) {
  parse::pax_records out;
  const parse::pax_problem problem = parse::parse_pax(records, false, out);
  return problem.reason == nullptr ? std::string() : problem.reason + (" @" + std::to_string(problem.at));
}

}  // namespace

TEST_CASE("tar header sums count every byte as it is") {
  for (int value = 0; value < 256; ++value) {
    CHECK(parse::byte_sum(std::string(512, static_cast<char>(value)).data()) == 512u * static_cast<unsigned>(value));
  }
  for (std::size_t at = 0; at < 512; ++at) {
    std::string block(512, '\0');
    block[at] = '\xff';
    CHECK(parse::byte_sum(block.data()) == 255);
  }
  rng random(1);
  for (int i = 0; i < 100; ++i) {
    const std::string block = random_block(random);
    CHECK(parse::byte_sum(block.data()) == sum_by_rules(block));
  }
}

TEST_CASE("tar size fields are read as the rules say, however they are filled") {
  std::string block(512, 'x');
  const auto check = [&](std::string_view field) {
    block.replace(size_at, 12, field);
    const std::string expected = number_by_rules(std::string(field));
    if (size_of(block) != expected) {
      CAPTURE(field, size_of(block), expected);
      FAIL("a size that is not what the rules say");
    }
  };
  for (const std::string& usual :
       {std::string("00000303240\0", 12), std::string("00000303240 "), std::string("00007777777\0", 12),
        std::string("00010000000\0", 12), std::string("77777777777\0", 12), std::string("000000000012"),
        std::string("   303240   "), std::string("303240\0junk!", 12), std::string(12, '\0'), std::string(12, ' '),
        std::string("  \0\0\0  \0\00010", 12)}) {
    check(usual);
    for (std::size_t at = 0; at < usual.size(); ++at) {
      for (int value = 0; value < 256; ++value) {
        std::string field = usual;
        field[at] = static_cast<char>(value);
        check(field);
      }
    }
  }
  rng random(2);
  for (int i = 0; i < 20000; ++i) {
    std::string field(12, '0');
    for (std::size_t at = random.below(2) == 0 ? 4 : 0; at < field.size(); ++at) field[at] = field_character(random);
    check(field);
  }
}

TEST_CASE("tar checksums are compared as the rules say, however they are written") {
  rng random(3);
  int right = 0;
  const auto check = [&](const std::string& block) {
    if (matches(block) != checksum_by_rules(block)) {
      CAPTURE(block.substr(checksum_at, 8), sum_by_rules(block));
      FAIL("a checksum that is not what the rules say");
    }
    right += matches(block) ? 1 : 0;
  };
  for (int round = 0; round < 6; ++round) {
    const std::string random_bytes = random_block(random);
    const std::string usual =
        round < 2 ? test::header_block().text() : test::header_block::sealed(random_bytes, round % 2 == 0);
    check(usual);
    for (std::size_t at = 0; at < 8; ++at) {
      for (int value = 0; value < 256; ++value) {
        std::string block = usual;
        block[checksum_at + at] = static_cast<char>(value);
        check(block);
      }
    }
    // The same number in other shapes, and all that may stand where the usual one ends.
    const std::string digits = usual.substr(checksum_at, 6);
    for (const std::string& field :
         {"  " + digits, digits + "  ", digits + std::string(" \0", 2), digits + std::string("\0\0", 2),
          digits + std::string("\0x", 2), digits + " x", digits + "0 ", "0" + digits + " ", "00" + digits}) {
      std::string block = usual;
      block.replace(checksum_at, 8, field);
      check(block);
    }
    for (int i = 0; i < 2000; ++i) {
      std::string block = usual;
      for (std::size_t at = 0; at < 8; ++at) {
        if (random.below(3) == 0) block[checksum_at + at] = field_character(random);
      }
      check(block);
    }
  }
  CHECK(right > 60);
}

TEST_CASE("tar names end at their first NUL, whatever the name before was") {
  for (std::size_t length = 0; length <= 100; ++length) {
    std::string name(length, 'n');
    for (std::size_t i = 0; i < length; ++i) name[i] = static_cast<char>('a' + i % 26);
    std::string block(512, '\0');
    block.replace(0, length, name);
    for (const std::string& before : {std::string(), std::string(length, 'b'), std::string(length + 1, 'b'),
                                      std::string(length / 2, 'b'), std::string(200, 'b')}) {
      CHECK(name_in(block, before) == name);
    }
    if (length < 99) {
      block.replace(length + 1, 99 - length, 99 - length, '\xff');  // an old writer's buffer
      CHECK(name_in(block, std::string(length, 'b')) == name);
    }
    // Bytes in place of a prefix that are not one: neither POSIX nor GNU.
    block[345] = 'p';
    CHECK(name_in(block, "before") == name);
  }
}

TEST_CASE("tar pax records begin with their length") {
  const std::string zeros(18, '0');
  CHECK(refusal("6 a=b\n").empty());
  CHECK(refusal(zeros + "25 a=b\n").empty());
  const std::string no_length = "a pax record does not begin with its length @0";
  for (const std::string& records :
       {"0" + zeros + "26 a=b\n", std::string("18446744073709551616 a=b\n"), std::string("99999999999999999999 a=b\n"),
        std::string(" a=b\n"), std::string("6"), std::string("6\n"), std::string("-6 a=b\n"), std::string("6x a=b\n"),
        std::string("\0006 a=b\n", 7), std::string(20, '1')}) {
    CAPTURE(records);
    CHECK(refusal(records) == no_length);
  }
  CHECK(refusal("18446744073709551615 a=b\n") == "a pax record is longer than its header @0");
  CHECK(refusal("6 a=b\n7 a=b\n") == "a pax record is longer than its header @6");
}

TEST_CASE("tar pax times are passed over like other records that say nothing") {
  for (const char* key : {"mtime", "atime", "ctime", "xtime", "mtimes", "time"}) {
    CAPTURE(key);
    const std::string length = std::to_string(std::string_view(key).size() + 3);
    CHECK(refusal(test::pax_record(key, "1700000000.123456")).empty());
    CHECK(refusal(test::pax_record(key, "")).empty());
    CHECK(refusal(test::pax_record(key, std::string("\0", 1))).empty());
    CHECK(refusal(length + " " + key + "\n") == "a pax record has no '=' @0");
  }
  CHECK(refusal(test::pax_record("mtime", "1") + test::pax_record(std::string("\0time", 5), "1")) ==
        "a pax key contains a NUL byte @11");
  CHECK(refusal("8 mtime=\n") == "a pax record does not end in a line feed @0");
  parse::pax_records out;
  const std::string both =
      test::pax_record("mtime", "1") + test::pax_record("path", "p") + test::pax_record("size", "7");
  CHECK(parse::parse_pax(both, false, out).reason == nullptr);
  CHECK(out.path == "p");
  CHECK(out.size == std::uint64_t(7));
}
