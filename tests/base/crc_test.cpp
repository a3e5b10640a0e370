// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/crc.hpp>
#include <millrace/base/running_crc.hpp>

#include "tests/support/catch.hpp"

#include <string>
#include <string_view>

#include <millrace/base/rng.hpp>

using millrace::crc32;
using millrace::crc32c;
using millrace::crc64nvme;

namespace {

// The definition: one bit at a time.
template <class Word>
Word bitwise(Word polynomial, std::string_view text) {
  Word r = ~Word(0);
  for (char c : text) {
    r ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) r = (r & 1) != 0 ? (r >> 1) ^ polynomial : r >> 1;
  }
  return ~r;
}

std::string random_text(std::size_t size) {
  millrace::rng random(size);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random.next());
  return text;
}

}  // namespace

TEST_CASE("crc32c gives the values of RFC 3720, B.4") {
  std::string up(32, '\0');
  std::string down(32, '\0');
  for (int i = 0; i < 32; ++i) {
    up[static_cast<std::size_t>(i)] = static_cast<char>(i);
    down[static_cast<std::size_t>(i)] = static_cast<char>(31 - i);
  }
  const std::string zeros(32, '\0');
  const std::string ones(32, '\xff');
  CHECK(crc32c(0, zeros.data(), 32) == 0x8a9136aau);
  CHECK(crc32c(0, ones.data(), 32) == 0x62a8ab43u);
  CHECK(crc32c(0, up.data(), 32) == 0x46dd794eu);
  CHECK(crc32c(0, down.data(), 32) == 0x113fdb5cu);
}

TEST_CASE("the CRCs give their published check values") {
  const std::string_view digits = "123456789";
  CHECK(crc32c(0, digits.data(), digits.size()) == 0xe3069283u);
  CHECK(crc32(0, digits.data(), digits.size()) == 0xcbf43926u);
  CHECK(crc64nvme(0, digits.data(), digits.size()) == 0xae8b14860a799888u);
  CHECK(crc32c(0, nullptr, 0) == 0);
  CHECK(crc32(0, nullptr, 0) == 0);
  CHECK(crc64nvme(0, nullptr, 0) == 0);
}

TEST_CASE("the CRCs are those of the definition at every length and alignment") {
  const std::string text = random_text(210);
  for (std::size_t from = 0; from < 9; ++from) {
    for (std::size_t size = 0; size <= 200; ++size) {
      const std::string_view part = std::string_view(text).substr(from, size);
      const std::uint32_t c = bitwise<std::uint32_t>(0x82f63b78u, part);
      REQUIRE(crc32c(0, part.data(), size) == c);
      REQUIRE((millrace::detail::crc_of<std::uint32_t, 0x82f63b78u>(0, part.data(), size)) == c);
      REQUIRE(crc32(0, part.data(), size) == bitwise<std::uint32_t>(0xedb88320u, part));
      REQUIRE(crc64nvme(0, part.data(), size) == bitwise<std::uint64_t>(0x9a6c9329ac4bc9b5u, part));
    }
  }
}

TEST_CASE("the CRCs go on from piece to piece") {
  const std::string text = random_text(10'000);
  const auto whole_c = crc32c(0, text.data(), text.size());
  const auto whole = crc32(0, text.data(), text.size());
  const auto whole_64 = crc64nvme(0, text.data(), text.size());
  for (std::size_t cut : {std::size_t(0), std::size_t(1), std::size_t(4095), std::size_t(9999), text.size()}) {
    const char* const rest = text.data() + cut;
    CHECK(crc32c(crc32c(0, text.data(), cut), rest, text.size() - cut) == whole_c);
    CHECK(crc32(crc32(0, text.data(), cut), rest, text.size() - cut) == whole);
    CHECK(crc64nvme(crc64nvme(0, text.data(), cut), rest, text.size() - cut) == whole_64);
  }
}

TEST_CASE("the CRCs of long texts are those of the definition, whatever the width of the registers") {
  const std::string text = random_text(3000);
  for (std::size_t size = 900; size <= 2300; size += 7) {
    const std::string_view part = std::string_view(text).substr(size % 70, size);
    REQUIRE(crc32c(0, part.data(), size) == bitwise<std::uint32_t>(0x82f63b78u, part));
    REQUIRE(crc32(0, part.data(), size) == bitwise<std::uint32_t>(0xedb88320u, part));
    REQUIRE(crc64nvme(0, part.data(), size) == bitwise<std::uint64_t>(0x9a6c9329ac4bc9b5u, part));
  }
}

TEST_CASE("the CRC of two texts is that of their CRCs") {
  using millrace::crc_kind;
  using millrace::running_crc;
  const std::string text = random_text(70'000);
  for (crc_kind kind : {crc_kind::crc32, crc_kind::crc32c, crc_kind::crc64nvme}) {
    running_crc whole(kind);
    whole.add(text.data(), text.size());
    for (std::size_t cut : {std::size_t(0), std::size_t(1), std::size_t(65'536), std::size_t(69'999), text.size()}) {
      running_crc first(kind);
      first.add(text.data(), cut);
      running_crc second(kind);
      second.add(text.data() + cut, text.size() - cut);
      first.join(second);
      CHECK(first.value() == whole.value());
      CHECK(first.size() == text.size());
    }
  }
  running_crc none;
  none.add(text.data(), text.size());
  none.join(none);
  CHECK(none.value() == 0);
  CHECK(none.size() == 0);
}
