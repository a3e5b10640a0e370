// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/text/text.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tests/support/catch.hpp"

namespace text = millrace::text;

TEST_CASE("only ASCII letters have a case", "[text]") {
  CHECK(text::to_lower("Content-TYPE@[`{\xc3\x84 09") == "content-type@[`{\xc3\x84 09");
  CHECK(text::equal_ignoring_case("ETag", "etag"));
  CHECK_FALSE(text::equal_ignoring_case("etag", "etags"));
  CHECK_FALSE(text::equal_ignoring_case("@", "`"));  // 0x40 and 0x60: one bit apart, like letters of two cases
  for (int c = 0; c < 256; ++c) {
    const char byte = static_cast<char>(c);
    const bool digit = c >= 0x30 && c <= 0x39;
    const bool letter = (c >= 0x41 && c <= 0x5a) || (c >= 0x61 && c <= 0x7a);
    CHECK(text::is_digit(byte) == digit);
    CHECK(text::is_letter(byte) == letter);
    CHECK(text::is_alphanumeric(byte) == (digit || letter));
  }
}

TEST_CASE("a decimal number is digits and nothing else", "[text]") {
  CHECK(text::parse_decimal<int>("0") == 0);
  CHECK(text::parse_decimal<int>("007") == 7);
  CHECK(text::parse_decimal<std::uint64_t>("18446744073709551615") == UINT64_MAX);
  for (const std::string_view bad : {"", "-1", "+1", " 1", "1 ", "1a", "0x1", "1.0", "\xd9\xa1"}) {
    INFO(bad);
    CHECK_FALSE(text::parse_decimal<int>(bad).has_value());
    CHECK_FALSE(text::parse_decimal<std::int64_t>(bad).has_value());
    CHECK_FALSE(text::parse_decimal<std::uint32_t>(bad).has_value());
  }
}

TEST_CASE("a number that does not fit is none", "[text]") {
  CHECK(text::parse_decimal<std::uint8_t>("255") == 255);
  CHECK_FALSE(text::parse_decimal<std::uint8_t>("256").has_value());
  CHECK_FALSE(text::parse_decimal<std::uint64_t>("18446744073709551616").has_value());
  CHECK_FALSE(text::parse_decimal<std::int64_t>(std::string(40, '9')).has_value());
  CHECK(text::parse_decimal<std::int64_t>(std::string(40, '0') + "12") == 12);
}

TEST_CASE("a number is held to its bounds, both of which are allowed", "[text]") {
  CHECK(text::parse_decimal<int>("1", 1, 999) == 1);
  CHECK(text::parse_decimal<int>("999", 1, 999) == 999);
  CHECK_FALSE(text::parse_decimal<int>("0", 1, 999).has_value());
  CHECK_FALSE(text::parse_decimal<int>("1000", 1, 999).has_value());
}

TEST_CASE("digits are taken off the front of a text, or nothing is", "[text]") {
  std::string_view rest = "12-99999999999";
  CHECK(text::take_decimal<int>(rest) == 12);
  CHECK(rest == "-99999999999");
  CHECK_FALSE(text::take_decimal<int>(rest).has_value());
  CHECK(rest == "-99999999999");
  rest.remove_prefix(1);
  CHECK_FALSE(text::take_decimal<int>(rest).has_value());  // does not fit
  CHECK(rest == "99999999999");
}

TEST_CASE("hexadecimal is written in lower case and read in either", "[text]") {
  const unsigned char bytes[] = {0x00, 0x09, 0x0a, 0x10, 0xaf, 0xff};
  std::string out = "x";
  text::append_hex(out, bytes);
  CHECK(out == "x00090a10afff");
  for (int value = 0; value < 16; ++value) {
    CHECK(text::hex_digit("0123456789abcdef"[value]) == value);
    CHECK(text::hex_digit("0123456789ABCDEF"[value]) == value);
  }
  for (const char bad : {'g', 'G', '/', ':', '@', '`', '\0', '\xff'}) CHECK(text::hex_digit(bad) == -1);
}

TEST_CASE("UTF-8 is written and read back, for the first and the last character of each length", "[text]") {
  for (const std::uint32_t code :
       {0x0u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xd7ffu, 0xe000u, 0xffffu, 0x10000u, 0x10ffffu}) {
    std::string out;
    text::append_utf8(out, code);
    const text::utf8_character c = text::first_utf8(out + "more");
    CHECK(c.code == code);
    CHECK(c.length == out.size());
    const std::string cut = out.substr(0, out.size() - 1);
    CHECK(text::first_utf8(cut).length == 0);
  }
}

TEST_CASE("a string of JSON has escapes for what JSON cannot have, and says what was not UTF-8", "[text]") {
  std::string out = "x";
  CHECK(text::append_json_string(out, std::string_view("a\"\\\n\0\x1f\x7f\xc3\xa9/", 10)));
  CHECK(out == "x\"a\\\"\\\\\\u000a\\u0000\\u001f\x7f\xc3\xa9/\"");
  out.clear();
  CHECK_FALSE(text::append_json_string(out, "\xc3(\xed\xa0\x80"));
  CHECK(out == "\"\\ufffd(\\ufffd\\ufffd\\ufffd\"");
}

TEST_CASE("what is not UTF-8 by RFC 3629 is no character", "[text]") {
  for (const std::string_view bad : {
           "\x80", "\xbf",                          // a following byte alone
           "\xc0\x80", "\xc1\xbf",                  // two bytes for what needs one
           "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",      // three for two, four for three
           "\xed\xa0\x80", "\xed\xbf\xbf",          // surrogates
           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",  // above U+10FFFF
           "\xc3(", "\xe2\x82(", "\xff",
       }) {
    CHECK(text::first_utf8(bad).length == 0);
  }
}
