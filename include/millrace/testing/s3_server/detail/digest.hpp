// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace millrace::s3_server::detail {

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

/// The bytes behind base64 of whole groups; empty when it is none.
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

/// The bytes of S3's checksum `name` ("crc32c", "sha256", ...) of `data`; empty for a name that is none.
std::string checksum_of(std::string_view name, std::string_view data);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/digest.ipp>
#endif
