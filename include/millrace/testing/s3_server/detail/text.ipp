// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server::detail {

MILLRACE_INLINE std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = lower(c);
  return out;
}

MILLRACE_INLINE std::string upper_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return out;
}

MILLRACE_INLINE bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

MILLRACE_INLINE std::string_view trim(std::string_view text) noexcept {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

MILLRACE_INLINE std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

MILLRACE_INLINE std::optional<std::uint64_t> parse_number(std::string_view text) noexcept {
  if (text.empty()) return std::nullopt;
  std::uint64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (value > (UINT64_MAX - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

MILLRACE_INLINE bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  unsigned different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    different |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  }
  return different == 0;
}

MILLRACE_INLINE std::string percent_encode(std::string_view text, bool keep_slash) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string out;
  for (char c : text) {
    if (unreserved(c) || (keep_slash && c == '/')) {
      out += c;
    } else {
      const auto u = static_cast<unsigned char>(c);
      out += '%';
      out += digits[u >> 4];
      out += digits[u & 15];
    }
  }
  return out;
}

MILLRACE_INLINE std::optional<std::string> percent_decode(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = digit(text[i + 1]);
    const int low = digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

MILLRACE_INLINE std::string listing_encode(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == ' ') {
      out += '+';
    } else {
      out += percent_encode(std::string_view(&c, 1), true);
    }
  }
  return out;
}

MILLRACE_INLINE tm utc(std::int64_t unix_seconds) noexcept {
  const time_t t = static_cast<time_t>(unix_seconds);
  tm out{};
  ::gmtime_r(&t, &out);
  return out;
}

MILLRACE_INLINE std::string http_date(std::int64_t unix_seconds) {
  static const char* const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static const char* const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const tm t = utc(unix_seconds);
  char text[64];
  std::snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[t.tm_wday], t.tm_mday, months[t.tm_mon],
                t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
  return text;
}

MILLRACE_INLINE std::string iso_date(std::int64_t unix_seconds) {
  const tm t = utc(unix_seconds);
  char text[80];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.000Z", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday,
                t.tm_hour, t.tm_min, t.tm_sec);
  return text;
}

MILLRACE_INLINE std::optional<std::int64_t> parse_basic_date(std::string_view text) noexcept {
  if (text.size() != 16 || text[8] != 'T' || text[15] != 'Z') return std::nullopt;
  int numbers[6];
  static constexpr int begins[] = {0, 4, 6, 9, 11, 13};
  static constexpr int lengths[] = {4, 2, 2, 2, 2, 2};
  for (int i = 0; i < 6; ++i) {
    numbers[i] = 0;
    for (int j = 0; j < lengths[i]; ++j) {
      const char c = text[static_cast<std::size_t>(begins[i] + j)];
      if (c < '0' || c > '9') return std::nullopt;
      numbers[i] = numbers[i] * 10 + (c - '0');
    }
  }
  tm t{};
  t.tm_year = numbers[0] - 1900;
  t.tm_mon = numbers[1] - 1;
  t.tm_mday = numbers[2];
  t.tm_hour = numbers[3];
  t.tm_min = numbers[4];
  t.tm_sec = numbers[5];
  const std::int64_t seconds = ::timegm(&t);
  const tm back = utc(seconds);
  if (back.tm_mon != numbers[1] - 1 || back.tm_mday != numbers[2] || back.tm_hour != numbers[3] ||
      back.tm_min != numbers[4] || back.tm_sec != numbers[5]) {
    return std::nullopt;
  }
  return seconds;
}

MILLRACE_INLINE xml& xml::open(std::string_view name, std::string_view attributes) {
  text_ += '<';
  text_ += name;
  if (!attributes.empty()) text_ += ' ';
  text_ += attributes;
  text_ += '>';
  return *this;
}

MILLRACE_INLINE xml& xml::close(std::string_view name) {
  text_ += "</";
  text_ += name;
  text_ += '>';
  return *this;
}

MILLRACE_INLINE xml& xml::element(std::string_view name, std::string_view content, std::string_view attributes) {
  open(name, attributes);
  for (char c : content) append(c);
  return close(name);
}

MILLRACE_INLINE void xml::append(char c) {
  switch (c) {
    case '&':
      text_ += "&amp;";
      return;
    case '<':
      text_ += "&lt;";
      return;
    case '>':
      text_ += "&gt;";
      return;
    case '"':
      text_ += "&quot;";
      return;
    default:
      break;
  }
  if (static_cast<unsigned char>(c) >= 0x20) {
    text_ += c;
    return;
  }
  char reference[8];
  std::snprintf(reference, sizeof reference, "&#x%x;", static_cast<unsigned>(static_cast<unsigned char>(c)));
  text_ += reference;
}

MILLRACE_INLINE hasher::hasher(const char* algorithm) : context_(EVP_MD_CTX_new()) {
  const EVP_MD* md = EVP_get_digestbyname(algorithm);
  if (context_ == nullptr || md == nullptr || EVP_DigestInit_ex(context_.get(), md, nullptr) != 1) {
    throw configuration_error(std::string("OpenSSL cannot compute ") + algorithm);
  }
}

MILLRACE_INLINE std::string hasher::finish() {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(context_.get(), out, &size);
  return std::string(reinterpret_cast<const char*>(out), size);
}

MILLRACE_INLINE std::string hmac_sha256(std::string_view key, std::string_view data) {
  unsigned char out[32];
  unsigned size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(data.data()),
           data.size(), out, &size) == nullptr) {
    throw configuration_error("OpenSSL cannot compute HMAC-SHA256");
  }
  return std::string(reinterpret_cast<const char*>(out), size);
}

MILLRACE_INLINE std::string to_hex(std::string_view data) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * data.size());
  for (char c : data) {
    const auto u = static_cast<unsigned char>(c);
    out += digits[u >> 4];
    out += digits[u & 15];
  }
  return out;
}

MILLRACE_INLINE std::string to_base64(std::string_view data) {
  std::string out((data.size() + 2) / 3 * 4 + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(data.data()), static_cast<int>(data.size()));
  out.resize(static_cast<std::size_t>(size));
  return out;
}

MILLRACE_INLINE std::string from_base64(std::string_view text) {
  std::string out(text.size() / 4 * 3 + 1, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  out.resize(size < 0 ? 0 : static_cast<std::size_t>(size) - padding);
  return out;
}

MILLRACE_INLINE std::string checksum_of(std::string_view name, std::string_view data) {
  const auto run = [&](auto crc) {
    crc.update(data);
    return crc.finish();
  };
  if (name == "crc32") return run(crc32());
  if (name == "crc32c") return run(crc32c());
  if (name == "crc64nvme") return run(crc64nvme());
  if (name == "sha1") return digest_of("SHA1", data);
  if (name == "sha256") return digest_of("SHA256", data);
  return std::string();
}

}  // namespace millrace::s3_server::detail
