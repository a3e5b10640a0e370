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

#include <millrace/base/error.hpp>

namespace millrace::s3_server::detail {

/// A running hash of OpenSSL's by name: "MD5", "SHA1", "SHA256".
class hasher {
 public:
  explicit hasher(const char* algorithm) : context_(EVP_MD_CTX_new()) {
    const EVP_MD* md = EVP_get_digestbyname(algorithm);
    if (context_ == nullptr || md == nullptr || EVP_DigestInit_ex(context_.get(), md, nullptr) != 1) {
      throw configuration_error(std::string("OpenSSL cannot compute ") + algorithm);
    }
  }
  hasher& update(std::string_view data) {
    EVP_DigestUpdate(context_.get(), data.data(), data.size());
    return *this;
  }
  /// The raw digest; the hasher is used up.
  std::string finish() {
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), out, &size);
    return std::string(reinterpret_cast<const char*>(out), size);
  }

 private:
  struct free_context {
    void operator()(EVP_MD_CTX* p) const noexcept { EVP_MD_CTX_free(p); }
  };

  std::unique_ptr<EVP_MD_CTX, free_context> context_;
};

inline std::string digest_of(const char* algorithm, std::string_view data) {
  return hasher(algorithm).update(data).finish();
}

inline std::string hmac_sha256(std::string_view key, std::string_view data) {
  unsigned char out[32];
  unsigned size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(data.data()),
           data.size(), out, &size) == nullptr) {
    throw configuration_error("OpenSSL cannot compute HMAC-SHA256");
  }
  return std::string(reinterpret_cast<const char*>(out), size);
}

/// Lower-case hexadecimal.
inline std::string to_hex(std::string_view data) {
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

/// Base64 with padding (RFC 4648, section 4).
inline std::string to_base64(std::string_view data) {
  std::string out((data.size() + 2) / 3 * 4 + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(data.data()), static_cast<int>(data.size()));
  out.resize(static_cast<std::size_t>(size));
  return out;
}

/// The bytes behind base64 of whole groups; empty when it is none.
inline std::string from_base64(std::string_view text) {
  std::string out(text.size() / 4 * 3 + 1, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  out.resize(size < 0 ? 0 : static_cast<std::size_t>(size) - padding);
  return out;
}

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
inline std::string checksum_of(std::string_view name, std::string_view data) {
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
