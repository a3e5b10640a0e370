// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/wire/detail/body_checksum.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE std::optional<body_checksum> body_checksum::of(const http::headers& fields) {
  static const algorithm known[] = {{"x-amz-checksum-crc32c", 4, crc_kind::crc32c, nullptr},
                                    {"x-amz-checksum-crc32", 4, crc_kind::crc32, nullptr},
                                    {"x-amz-checksum-crc64nvme", 8, crc_kind::crc64nvme, nullptr},
                                    {"x-amz-checksum-sha1", 20, crc_kind::none, &EVP_sha1},
                                    {"x-amz-checksum-sha256", 32, crc_kind::none, &EVP_sha256}};
  const std::string* type = fields.find("x-amz-checksum-type");
  for (const algorithm& a : known) {
    const std::string* value = fields.find(a.field);
    if (value == nullptr) continue;
    const std::size_t hyphen = value->find('-');
    const std::uint64_t parts = hyphen == std::string::npos ? 0 : count_of(value->substr(hyphen + 1));
    if (hyphen != std::string::npos && parts == 0) continue;
    if (type != nullptr && *type != (parts == 0 ? "FULL_OBJECT" : "COMPOSITE")) continue;
    std::string raw = decode(value->substr(0, hyphen));
    if (raw.size() == a.size) return body_checksum(a, std::move(raw), parts);
  }
  return std::nullopt;
}

MILLRACE_INLINE void body_checksum::add(std::string_view data, const running_crc& crc) {
  if (parts_ == 0) return add_run(data, crc);
  while (!data.empty()) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(data.size(), part_size_ - filled_));
    add_run(data.substr(0, n), crc);
    filled_ += n;
    data.remove_prefix(n);
    if (filled_ == part_size_) end_part();
  }
}

MILLRACE_INLINE bool body_checksum::matches() {
  if (parts_ == 0) return end_run() == declared_;
  if (filled_ > 0) end_part();
  add_run(sums_, running_crc());
  return end_run() == declared_ && count_ == parts_;
}

MILLRACE_INLINE std::uint64_t body_checksum::count_of(const std::string& digits) noexcept {
  std::uint64_t value = 0;
  for (char c : digits) {
    if (c < '0' || c > '9' || digits.size() > 5) return 0;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

MILLRACE_INLINE std::string body_checksum::decode(const std::string& text) {
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

MILLRACE_INLINE void body_checksum::begin_run() {
  crc_ = running_crc(how_.crc);
  if (how_.hash == nullptr) return;
  if (hash_ == nullptr) hash_ = std::unique_ptr<EVP_MD_CTX, openssl_free>(EVP_MD_CTX_new());
  if (hash_ == nullptr || EVP_DigestInit_ex(hash_.get(), how_.hash(), nullptr) != 1) hashing_failed();
}

MILLRACE_INLINE void body_checksum::add_run(std::string_view data, const running_crc& crc) {
  if (how_.hash != nullptr) {
    if (EVP_DigestUpdate(hash_.get(), data.data(), data.size()) != 1) hashing_failed();
  } else if (crc.kind() == how_.crc && crc.size() == data.size()) {
    crc_.join(crc);
  } else {
    crc_.add(data.data(), data.size());
  }
}

MILLRACE_INLINE std::string body_checksum::end_run() {
  unsigned char raw[32];
  if (how_.hash != nullptr) {
    if (EVP_DigestFinal_ex(hash_.get(), raw, nullptr) != 1) hashing_failed();
  } else {
    for (std::size_t i = 0; i < how_.size; ++i) {
      raw[i] = static_cast<unsigned char>(crc_.value() >> (8 * (how_.size - 1 - i)));
    }
  }
  begin_run();
  return std::string(reinterpret_cast<const char*>(raw), how_.size);
}

MILLRACE_INLINE void body_checksum::end_part() {
  sums_ += end_run();
  ++count_;
  filled_ = 0;
}

}  // namespace millrace::s3::detail
