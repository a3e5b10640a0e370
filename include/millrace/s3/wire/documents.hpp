// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/wire/detail/xml.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

/// The `<Error>` document in the body of a refused request (S3's form, and `<ErrorResponse>` of STS).
class error_document {
 public:
  error_document() = default;

  /// Nothing when `body` is not an intact error document with a code: empty (HEAD), a proxy's HTML page, cut short.
  /// Never throws for the sake of the body. Texts are cut to 1 KiB.
  static std::optional<error_document> parse(std::string_view body);

  std::string code;
  std::string message;
  std::string region;    ///< the bucket's region, with AuthorizationHeaderMalformed
  std::string endpoint;  ///< the host to use, with PermanentRedirect and TemporaryRedirect
  std::string resource;  ///< the object of the request, as the server saw it
  std::string request_id;
};

namespace detail {

/// Collects an error document; the elements it does not know (some repeat the request's signature) are dropped.
class error_document_handler final : public xml_handler {
 public:
  explicit error_document_handler(error_document& out) : out_(out) {}

  bool is_error() const noexcept { return is_error_; }

  void enter(std::string_view path) override {
    if (path == "Error" || path == "ErrorResponse/Error") is_error_ = true;
  }
  MILLRACE_INLINE void leaf(std::string_view path, const std::string& text) override;

 private:
  static void assign(std::string& to, const std::string& text) { to = text::trimmed(text).substr(0, 1024); }

  error_document& out_;
  bool is_error_ = false;
};

}  // namespace detail

/// An object as a listing shows it.
struct listed_object {
  listed_object() = default;
  listed_object(std::string object_key, std::uint64_t bytes, std::string entity_tag, std::int64_t modified)
      : key(std::move(object_key)), size(bytes), etag(std::move(entity_tag)), last_modified(modified) {}

  std::string key;                 ///< raw bytes
  std::uint64_t size = 0;          ///< bytes
  std::string etag;                ///< with its quotes, also if the store leaves them out; may be empty
  std::int64_t last_modified = 0;  ///< unix seconds; 0 when the store does not say
};

/// One answer to ListObjectsV2.
class list_page {
 public:
  list_page() = default;

  /// Reads the XML answer of a listing of `bucket` (its name, for messages). Names are decoded when the answer says
  /// that they are encoded, so keys may hold any byte.
  ///
  /// Throws s3::error with S3's own code if the answer is an error document with a status of 200, and with an
  /// empty code when it is not a whole listing: cut short, another document, an object without a key, a size that is
  /// no number, "truncated" without a continuation token. A page is never shorter than the store said.
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

  static bool is_listing(std::string_view root) noexcept;
  static where at(std::string_view bucket);

  /// S3 writes a blank as `+` and a plus sign as `%2B` there (form encoding); others write `%20`, which reads the same.
  std::string decoded(std::string_view bucket, std::string text) const;

  std::string root_;
  std::string truncated_;
  std::string most_;  // names of a page
  std::string token_;
  std::string encoding_;
  std::vector<raw_object> objects_;
  std::vector<std::string> prefixes_;
  error_document document_;
  error_document_handler error_{document_};
};

}  // namespace detail

}  // namespace millrace::s3

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// A part that the store has.
class stored_part {
 public:
  stored_part(std::uint64_t part_number, std::string tag, std::string sum)
      : number(part_number), etag(std::move(tag)), checksum(std::move(sum)) {}

  std::uint64_t number;
  std::string etag;      ///< quotes included
  std::string checksum;  ///< CRC-32C as S3 writes it; empty when the store has none
};

/// The value of x-amz-checksum-crc32c: base64 of the big-endian CRC.
std::string crc32c_value(std::string_view data);

/// The body of CompleteMultipartUpload.
std::string complete_document(const std::vector<stored_part>& parts);

/// The ETag that an object made of these parts has at stores whose ETags are MD5 sums: the MD5 of the parts' MD5s, and
/// their number. Empty if the parts' ETags are something else.
std::string composite_etag(const std::vector<stored_part>& parts);

/// Keeps the text of the elements of one name, whatever they stand in: S3's CompleteMultipartUploadResult is called
/// CompleteMultipartUploadResponse by some stores.
class element_handler final : public xml_handler {
 public:
  explicit element_handler(std::string_view name) noexcept : name_(name) {}
  void leaf(std::string_view path, const std::string& text) override {
    if (path.substr(path.rfind('/') + 1) != name_) return;
    const std::string_view found = text::trimmed(text);
    ambiguous = ambiguous || (!value.empty() && value != found);
    value = found;
  }
  std::string value;
  bool ambiguous = false;  ///< there are several, and they differ

 private:
  std::string_view name_;
};

/// The CRC-32C that S3 keeps of an object made of these parts: that of the parts' sums, and their number. Empty if a
/// part has none.
std::string composite_crc32c(const std::vector<stored_part>& parts);

/// The ETag of an object stored in one request, at stores whose ETags are MD5 sums. Empty if OpenSSL has no MD5.
std::string md5_etag(std::string_view data);

/// The text of the element `name` in an answer that began as a success. S3 sends the status before it knows how the
/// request ends: an error document in its place, a document that lacks the element, or none at all is an s3::error with
/// the status 200.
std::string element_of(std::string_view body, std::string_view name, where at);

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/wire/documents.ipp>
#endif
