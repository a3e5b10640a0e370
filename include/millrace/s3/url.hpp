// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

/// The parts of `arn:partition:service:region:account:resource`, an Amazon resource name. Views of the parsed text.
struct arn {
  std::string_view partition;
  std::string_view service;
  std::string_view region;   ///< may be empty
  std::string_view account;  ///< may be empty
  std::string_view resource;

  /// Nothing when `text` has not six parts, does not start with `arn`, or lacks partition, service or resource.
  static std::optional<arn> parse(std::string_view text) noexcept;

  /// The n-th component of the resource, between `:` or `/`; nullopt after the last one.
  std::optional<std::string_view> resource_part(std::size_t n) const noexcept;
};

/// `s3://bucket/key`: the name of an object, or of all objects with a prefix.
///
/// The key is everything after the slash that ends the bucket, byte for byte: nothing is decoded, normalised or cut
/// at `?` or `#` (all of them are legal in keys). The bucket may be an access point ARN, also in the form
/// `arn:...:accesspoint/name`, whose slash does not end it.
class url {
 public:
  url() = default;
  url(std::string bucket, std::string key) : bucket_(std::move(bucket)), key_(std::move(key)) {}

  /// Throws configuration_error when `text` is not an S3 URL or names no bucket.
  static url parse(std::string_view text);

  const std::string& bucket() const noexcept { return bucket_; }
  /// Raw bytes; empty for the bucket itself.
  const std::string& key() const noexcept { return key_; }

  /// `s3://bucket/key`; parse() gives the same url back.
  std::string to_string() const;

  friend bool operator==(const url&, const url&) = default;

 private:
  static where named(std::string_view text);

  /// The offset from which to look for the slash that ends the bucket: after `accesspoint/` of an ARN.
  static std::size_t bucket_start(std::string_view rest);

  std::string bucket_;
  std::string key_;
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/url.ipp>
#endif
