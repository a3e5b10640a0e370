// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/testing/s3_server/detail/digest.hpp>

namespace millrace::s3_server::detail {

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
