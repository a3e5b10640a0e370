// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/where.hpp>
#include <millrace/s3/wire/detail/xml_reader.hpp>
#include <millrace/s3/wire/error_document.hpp>

namespace millrace::s3 {

/// An object as a listing shows it.
struct listed_object {
  listed_object() = default;
  listed_object(std::string object_key, std::uint64_t bytes, std::string entity_tag, std::int64_t modified)
      : key(std::move(object_key)), size(bytes), etag(std::move(entity_tag)), last_modified(modified) {}

  std::string key;                 ///< raw bytes
  std::uint64_t size = 0;          ///< bytes
  std::string etag;                ///< with its quotes, as If-Match wants it; may be empty
  std::int64_t last_modified = 0;  ///< unix seconds; 0 when the store does not say
};

/// One answer to ListObjectsV2.
class list_page {
 public:
  list_page() = default;

  /// Reads the XML answer of a listing of `bucket` (its name, for messages). Names are decoded when the answer says
  /// that they are encoded, so keys may hold any byte.
  ///
  /// Throws s3::error with S3's own code when the answer is an error document behind a status of 200, and with an
  /// empty code when it is not a whole listing: cut short, another document, an object without a key, a size that is
  /// no number, "truncated" without a token to go on from. A page is never shorter than the store said.
  static list_page parse(std::string_view xml, std::string_view bucket);

  std::vector<listed_object> objects;
  std::vector<std::string> common_prefixes;
  bool truncated = false;               ///< more pages follow
  std::string next_continuation_token;  ///< opaque, never decoded; set when truncated
};

namespace detail {

/// Collects a listing as it stands; list_page::parse() makes sense of it afterwards, since EncodingType may follow the
/// keys that it speaks of.
class list_handler final : public xml_handler {
 public:
  MILLRACE_INLINE void enter(std::string_view path) override;
  MILLRACE_INLINE void leaf(std::string_view path, const std::string& text) override;

  list_page page(std::string_view bucket);

  [[noreturn]] static void broken(std::string_view bucket, std::string why, std::string_view key = {});

 private:
  struct raw_object {
    raw_object() = default;
    std::string key, size, etag, last_modified;
  };

  static where at(std::string_view bucket);

  /// S3 writes a blank as `+` and a plus sign as `%2B` there (form encoding); others write `%20`, which reads the same.
  std::string decoded(std::string_view bucket, std::string text) const;

  std::string root_;
  std::string truncated_;
  std::string token_;
  std::string encoding_;
  std::vector<raw_object> objects_;
  std::vector<std::string> prefixes_;
  error_document document_;
  error_document_handler error_{document_};
};

}  // namespace detail

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/wire/impl/list_page.ipp>
#endif
