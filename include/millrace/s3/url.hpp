// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/detail/shown_url.hpp>
#include <millrace/base/error.hpp>

namespace millrace::s3 {

/// `s3://bucket/key`: the name of an object, or of all objects with a prefix.
///
/// The key is everything behind the slash that ends the bucket, byte for byte: nothing is decoded, normalised or cut
/// at `?` or `#` (all of them are legal in keys). The bucket may be an access point ARN, also in the form
/// `arn:...:accesspoint/name`, whose slash does not end it.
class url {
 public:
  url() = default;
  url(std::string bucket, std::string key) : bucket_(std::move(bucket)), key_(std::move(key)) {}

  /// Throws configuration_error when `text` is not an S3 URL or names no bucket.
  template <class = void>
  static url parse(std::string_view text) {
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

  const std::string& bucket() const noexcept { return bucket_; }
  /// Raw bytes; empty for the bucket itself.
  const std::string& key() const noexcept { return key_; }

  /// `s3://bucket/key`; parse() gives the same url back.
  std::string to_string() const {
    std::string text;
    text.reserve(6 + bucket_.size() + key_.size());
    text += "s3://";
    text += bucket_;
    text += '/';
    text += key_;
    return text;
  }

  friend bool operator==(const url&, const url&) = default;

 private:
  static where named(std::string_view text) {
    where at;
    at.object = millrace::detail::shown_url(std::string(text));  // it may be a presigned URL
    return at;
  }

  /// Where to look for the slash that ends the bucket: behind `accesspoint/` of an ARN.
  static std::size_t bucket_start(std::string_view rest) {
    if (rest.substr(0, 4) != "arn:") return 0;
    static constexpr std::string_view resource = ":accesspoint/";
    const std::size_t at = rest.find(resource);
    return at == std::string_view::npos || rest.find('/') < at ? 0 : at + resource.size();
  }

  std::string bucket_;
  std::string key_;
};

}  // namespace millrace::s3
