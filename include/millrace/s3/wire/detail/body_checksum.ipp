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
#include <millrace/text/entity_tag.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE body_checksum::body_checksum(const body_checksum& other)
    : how_(other.how_),
      declared_(other.declared_),
      parts_(other.parts_),
      part_size_(other.part_size_),
      crc_(other.crc_),
      filled_(other.filled_),
      count_(other.count_),
      misnamed_(other.misnamed_),
      sums_(other.sums_) {
  if (other.other_ != nullptr) other_ = std::make_unique<body_checksum>(*other.other_);
  if (other.hash_ == nullptr) return;
  hash_ = std::unique_ptr<EVP_MD_CTX, openssl_free>(EVP_MD_CTX_new());
  if (hash_ == nullptr || EVP_MD_CTX_copy_ex(hash_.get(), other.hash_.get()) != 1) hashing_failed();
}

MILLRACE_INLINE const body_checksum::algorithm* body_checksum::begin_known() noexcept {
  static const algorithm known[] = {{"x-amz-checksum-crc32c", 4, crc_kind::crc32c, nullptr},
                                    {"x-amz-checksum-crc32", 4, crc_kind::crc32, nullptr},
                                    {"x-amz-checksum-crc64nvme", 8, crc_kind::crc64nvme, nullptr},
                                    {"x-amz-checksum-sha1", 20, crc_kind::none, &EVP_sha1},
                                    {"x-amz-checksum-sha256", 32, crc_kind::none, &EVP_sha256}};
  return known;
}

MILLRACE_INLINE const body_checksum::algorithm* body_checksum::end_known() noexcept { return begin_known() + 5; }

MILLRACE_INLINE std::optional<body_checksum> body_checksum::of(const http::headers& fields) {
  const std::string* said = fields.find("x-amz-checksum-type");
  const std::string type = said == nullptr ? std::string() : text::to_lower(text::trimmed(*said));
  for (const algorithm* known = begin_known(); known != end_known(); ++known) {
    const algorithm& a = *known;
    const std::string* value = fields.find(a.field);
    if (value == nullptr) continue;
    const std::string sum(text::trimmed(*value));
    const std::size_t hyphen = sum.find('-');
    std::uint64_t parts = hyphen == std::string::npos ? 0 : count_of(std::string_view(sum).substr(hyphen + 1));
    if (hyphen != std::string::npos && parts == 0) continue;
    bool unsaid = false;
    if (hyphen == std::string::npos && type != "full_object" && a.crc != crc_kind::crc64nvme) {  // which is of all
      parts = parts_of(fields);
      unsaid = parts != 0;  // "COMPOSITE" without its number is also put on checksums of all bytes (floci)
      if (parts == 0 && type == "composite") continue;
    }
    if (!type.empty() && type != (parts == 0 ? "full_object" : "composite")) continue;
    std::string raw = decode(sum.substr(0, hyphen));
    if (raw.size() != a.size) continue;
    body_checksum found(a, std::move(raw), parts);
    if (unsaid) found.allow(a, 0);
    if (unsaid && a.crc == crc_kind::crc32c) {
      found.allow(crc32(), parts);
      found.allow(crc32(), 0);
    }
    return found;
  }
  return std::nullopt;
}

MILLRACE_INLINE void body_checksum::add(std::string_view data, const running_crc& crc) {
  for (body_checksum* each = this; each != nullptr; each = each->other_.get()) each->add_alone(data, crc);
}

MILLRACE_INLINE void body_checksum::add_alone(std::string_view data, const running_crc& crc) {
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
  const body_checksum* found = nullptr;
  for (body_checksum* other = other_.get(); other != nullptr; other = other->other_.get()) {
    if (other->matches_alone()) found = other;
  }
  if (matches_alone()) return true;
  misnamed_ = found != nullptr && found->how_.field != how_.field;
  return found != nullptr;
}

MILLRACE_INLINE bool body_checksum::matches_alone() {
  if (parts_ == 0) return end_run() == declared_;
  if (filled_ > 0) end_part();
  add_run(sums_, running_crc());
  return end_run() == declared_ && count_ == parts_;
}

MILLRACE_INLINE bool body_checksum::matches_as_crc32(std::string_view data) const {
  if (how_.crc != crc_kind::crc32c || parts_ == 0) return false;
  body_checksum other(crc32(), declared_, parts_);
  other.part_size_ = part_size_;
  other.add(data);
  return other.matches();
}

MILLRACE_INLINE std::uint64_t body_checksum::count_of(std::string_view digits) noexcept {
  std::uint64_t value = 0;
  for (char c : digits) {
    if (c < '0' || c > '9' || digits.size() > 5) return 0;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

MILLRACE_INLINE std::uint64_t body_checksum::parts_of(const http::headers& fields) {
  if (const std::string* count = fields.find("x-amz-mp-parts-count")) return count_of(text::trimmed(*count));
  const std::string* etag = fields.find("etag");
  const std::string plain = etag == nullptr ? std::string() : millrace::detail::plain_etag(*etag);
  if (plain.size() < 36 || plain[33] != '-') return 0;
  for (std::size_t i = 1; i < 33; ++i) {
    if (text::hex_digit(plain[i]) < 0) return 0;
  }
  return count_of(std::string_view(plain).substr(34, plain.size() - 35));
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
