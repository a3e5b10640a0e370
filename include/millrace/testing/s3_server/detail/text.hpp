// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <time.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server::detail {

inline char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

std::string lower_case(std::string_view text);

std::string upper_case(std::string_view text);

bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept;

/// Without blanks and tabs at both ends.
std::string_view trim(std::string_view text) noexcept;

/// The parts between separators, empty ones too.
std::vector<std::string_view> split(std::string_view text, char separator);

/// A decimal number of digits alone; nothing when it does not fit.
std::optional<std::uint64_t> parse_number(std::string_view text) noexcept;

/// Compares in constant time.
bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept;

// This folder judges the requests of the library's client, so it shares no code with s3/: a mistake in a shared
// function would not be noticed.

inline bool unreserved(char c) noexcept {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

std::string percent_encode(std::string_view text, bool keep_slash);

/// Decodes percent-encoded text; nullopt for a `%` without two hexadecimal digits. `+` is itself.
std::optional<std::string> percent_decode(std::string_view text);

/// Keys in listings with `encoding-type=url`: as S3 sends them, `/` kept and a space as `+`.
std::string listing_encode(std::string_view text);

/// "Fri, 24 May 2013 00:00:00 GMT" (RFC 9110, 5.6.7); no locale takes part.
std::string http_date(std::int64_t unix_seconds);

/// "2013-05-24T00:00:00.000Z", as S3's documents have it.
std::string iso_date(std::int64_t unix_seconds);

/// "20130524T000000Z" as Unix time; nothing for any other text and for days that do not exist.
std::optional<std::int64_t> parse_basic_date(std::string_view text) noexcept;

/// Writes an XML document. Control characters become character references, as S3 writes them, although XML 1.0 forbids
/// most of those: it is why clients ask for `encoding-type=url`.
class xml {
 public:
  xml() : text_("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n") {}

  xml& open(std::string_view name, std::string_view attributes = {});
  xml& close(std::string_view name);
  xml& element(std::string_view name, std::string_view content, std::string_view attributes = {});
  std::string take() { return std::move(text_); }

 private:
  void append(char c);
  std::string text_;
};

/// A running hash of OpenSSL's by name: "MD5", "SHA1", "SHA256".
class hasher {
 public:
  explicit hasher(const char* algorithm);
  hasher& update(std::string_view data) {
    EVP_DigestUpdate(context_.get(), data.data(), data.size());
    return *this;
  }
  /// The raw digest; the hasher is used up.
  std::string finish();

 private:
  struct free_context {
    void operator()(EVP_MD_CTX* p) const noexcept { EVP_MD_CTX_free(p); }
  };

  std::unique_ptr<EVP_MD_CTX, free_context> context_;
};

inline std::string digest_of(const char* algorithm, std::string_view data) {
  return hasher(algorithm).update(data).finish();
}

std::string hmac_sha256(std::string_view key, std::string_view data);

/// Lower-case hexadecimal.
std::string to_hex(std::string_view data);

/// Base64 with padding (RFC 4648, section 4).
std::string to_base64(std::string_view data);

/// Decodes base64 of whole groups; empty if it is not valid.
std::string from_base64(std::string_view text);

/// A reflected cyclic redundancy check, as S3's x-amz-checksum-* fields carry it: big-endian bytes.
template <class Word, Word Polynomial>
class reflected_crc {
 public:
  reflected_crc() {
    for (std::size_t i = 0; i < 256; ++i) {
      Word w = static_cast<Word>(i);
      for (int bit = 0; bit < 8; ++bit) w = (w & 1) != 0 ? static_cast<Word>((w >> 1) ^ Polynomial) : w >> 1;
      table_[i] = w;
    }
  }
  void update(std::string_view data) noexcept {
    for (char c : data) state_ = (state_ >> 8) ^ table_[(state_ ^ static_cast<unsigned char>(c)) & 0xff];
  }
  std::string finish() const {
    const Word value = static_cast<Word>(~state_);
    std::string out;
    for (std::size_t i = sizeof(Word); i-- > 0;) out += static_cast<char>(value >> (8 * i));
    return out;
  }

 private:
  Word table_[256];
  Word state_ = static_cast<Word>(~Word(0));
};
using crc32 = reflected_crc<std::uint32_t, 0xedb88320u>;
using crc32c = reflected_crc<std::uint32_t, 0x82f63b78u>;
using crc64nvme = reflected_crc<std::uint64_t, 0x9a6c9329ac4bc9b5u>;

/// The bytes of S3's checksum `name` ("crc32c", "sha256", ...) of `data`; empty for an unknown name.
std::string checksum_of(std::string_view name, std::string_view data);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/text.ipp>
#endif
