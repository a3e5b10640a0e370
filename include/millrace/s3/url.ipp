// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/url.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE std::optional<arn> arn::parse(std::string_view text) noexcept {
  std::string_view parts[5];
  for (std::string_view& part : parts) {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    part = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  if (parts[0] != "arn" || parts[1].empty() || parts[2].empty() || text.empty()) return std::nullopt;
  return arn{parts[1], parts[2], parts[3], parts[4], text};
}

MILLRACE_INLINE std::optional<std::string_view> arn::resource_part(std::size_t n) const noexcept {
  std::string_view rest = resource;
  while (true) {
    const std::size_t end = rest.find_first_of(":/");
    if (n == 0) return rest.substr(0, end);
    if (end == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(end + 1);
    --n;
  }
}

MILLRACE_INLINE url url::parse(std::string_view text) {
  static constexpr std::string_view scheme = "s3://";
  if (text.size() < scheme.size() || (text[0] != 's' && text[0] != 'S') || text.substr(1, 4) != scheme.substr(1)) {
    throw configuration_error("not an S3 URL: expected s3://bucket/key", named(text));
  }
  std::string_view rest = text.substr(scheme.size());
  const std::size_t slash = rest.find('/', bucket_start(rest));
  const std::string_view bucket = rest.substr(0, slash);
  if (bucket.empty()) throw configuration_error("the S3 URL names no bucket: expected s3://bucket/key", named(text));
  for (char c : bucket) {
    const auto u = static_cast<unsigned char>(c);
    if (u <= 0x20 || u == 0x7f) {
      throw configuration_error("the bucket of the S3 URL contains white space or a control character", named(text));
    }
  }
  const std::string_view key = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  return url(std::string(bucket), std::string(key));
}

MILLRACE_INLINE std::string url::to_string() const {
  std::string text;
  text.reserve(6 + bucket_.size() + key_.size());
  text += "s3://";
  text += bucket_;
  text += '/';
  text += key_;
  return text;
}

MILLRACE_INLINE where url::named(std::string_view text) {
  where at;
  at.object = millrace::detail::shown_url(std::string(text));  // it may be a presigned URL
  return at;
}

MILLRACE_INLINE std::size_t url::bucket_start(std::string_view rest) {
  if (rest.substr(0, 4) != "arn:") return 0;
  static constexpr std::string_view resource = ":accesspoint/";
  const std::size_t at = rest.find(resource);
  return at == std::string_view::npos || rest.find('/') < at ? 0 : at + resource.size();
}

}  // namespace millrace::s3
