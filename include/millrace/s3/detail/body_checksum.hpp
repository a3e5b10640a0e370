// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/crc32.hpp>
#include <millrace/base/crc32c.hpp>
#include <millrace/base/crc64nvme.hpp>
#include <millrace/http/headers.hpp>
#include <millrace/s3/detail/hashing.hpp>

namespace millrace::s3::detail {

/// A checksum that a store declares for a whole object.
template <class = void>
class body_checksum {
 public:
  /// The cheapest of those in the fields of an answer. Nothing when none can be checked: there is none, its algorithm
  /// is not known here, or it is one of an upload in parts, a checksum of the parts' checksums ("...-7").
  static std::optional<body_checksum> of(const http::headers& fields) {
    const std::string* type = fields.find("x-amz-checksum-type");
    if (type != nullptr && *type != "FULL_OBJECT") return std::nullopt;
    static constexpr algorithm known[] = {{"x-amz-checksum-crc32c", 4, &crc32c_of},
                                          {"x-amz-checksum-crc32", 4, &crc32_of},
                                          {"x-amz-checksum-crc64nvme", 8, &crc64nvme_of},
                                          {"x-amz-checksum-sha1", 20, &sha1_of},
                                          {"x-amz-checksum-sha256", 32, &sha256_of}};
    for (const algorithm& a : known) {
      const std::string* value = fields.find(a.field);
      if (value == nullptr) continue;
      std::string raw = decode(*value);
      if (raw.size() == a.size) return body_checksum(a, std::move(raw));
    }
    return std::nullopt;
  }

  bool matches(std::string_view body) const {
    unsigned char sum[32];
    how_.compute(body, sum);
    return std::string_view(reinterpret_cast<const char*>(sum), how_.size) == declared_;
  }
  /// "crc32c", for messages.
  std::string_view name() const noexcept { return std::string_view(how_.field).substr(15); }

 private:
  struct algorithm {
    const char* field;
    std::size_t size;
    void (*compute)(std::string_view, unsigned char*);
  };
  body_checksum(const algorithm& how, std::string declared) : how_(how), declared_(std::move(declared)) {}

  /// Base64 of whole groups; empty for anything else (a composite checksum has a hyphen).
  static std::string decode(const std::string& text) {
    if (text.size() % 4 != 0 || text.empty() || text.size() > 64) return std::string();
    unsigned char out[49];
    const int size =
        EVP_DecodeBlock(out, reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
    if (size < 0) return std::string();
    auto used = static_cast<std::size_t>(size);
    if (text.back() == '=') --used;
    if (text[text.size() - 2] == '=') --used;
    return std::string(reinterpret_cast<const char*>(out), used);
  }
  template <class Word>
  static void big_endian(Word value, unsigned char* out) noexcept {
    for (std::size_t i = 0; i < sizeof(Word); ++i) {
      out[i] = static_cast<unsigned char>(value >> (8 * (sizeof(Word) - 1 - i)));
    }
  }
  static void crc32c_of(std::string_view b, unsigned char* out) { big_endian(crc32c(0, b.data(), b.size()), out); }
  static void crc32_of(std::string_view b, unsigned char* out) { big_endian(crc32(0, b.data(), b.size()), out); }
  static void crc64nvme_of(std::string_view b, unsigned char* out) {
    big_endian(crc64nvme(0, b.data(), b.size()), out);
  }
  static void sha1_of(std::string_view b, unsigned char* out) { digest_with(EVP_sha1(), b, out); }
  static void sha256_of(std::string_view b, unsigned char* out) { digest_with(EVP_sha256(), b, out); }
  static void digest_with(const EVP_MD* algorithm, std::string_view b, unsigned char* out) {
    if (EVP_Digest(b.data(), b.size(), out, nullptr, algorithm, nullptr) != 1) hashing_failed();
  }

  algorithm how_;
  std::string declared_;
};

}  // namespace millrace::s3::detail
