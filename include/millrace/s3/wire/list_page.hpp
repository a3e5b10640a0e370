// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/wire/detail/xml_reader.hpp>
#include <millrace/s3/wire/error_document.hpp>
#include <millrace/s3/wire/listed_object.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/numbers.hpp>
#include <millrace/text/percent.hpp>

namespace millrace::s3 {

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
  template <class = void>
  static list_page parse(std::string_view xml, std::string_view bucket);

  std::vector<listed_object> objects;
  std::vector<std::string> common_prefixes;
  bool truncated = false;               ///< more pages follow
  std::string next_continuation_token;  ///< opaque, never decoded; set when truncated
};

// ---------------------------------------------------------------------------------------------- implementation

namespace detail {

/// Collects a listing as it stands; list_page::parse() makes sense of it afterwards, since EncodingType may follow the
/// keys that it speaks of.
template <class = void>
class list_handler final : public xml_handler {
 public:
  void enter(std::string_view path) override {
    if (path.find('/') == std::string_view::npos) root_ = path;
    if (path == "ListBucketResult/Contents") objects_.emplace_back();
    error_.enter(path);
  }
  void leaf(std::string_view path, const std::string& text) override {
    static constexpr std::string_view outer = "ListBucketResult/";
    if (path.substr(0, outer.size()) != outer) return error_.leaf(path, text);
    path.remove_prefix(outer.size());
    if (path == "IsTruncated") {
      truncated_ = text;
    } else if (path == "NextContinuationToken") {
      token_ = text;
    } else if (path == "EncodingType") {
      encoding_ = text;
    } else if (path == "CommonPrefixes/Prefix") {
      prefixes_.push_back(text);
    } else if (path == "Contents/Key") {
      objects_.back().key = text;
    } else if (path == "Contents/Size") {
      objects_.back().size = text;
    } else if (path == "Contents/ETag") {
      objects_.back().etag = text;
    } else if (path == "Contents/LastModified") {
      objects_.back().last_modified = text;
    }
  }

  list_page page(std::string_view bucket) {
    if (error_.is_error()) throw error(200, document_.code, document_.message, document_.request_id, at(bucket));
    if (root_ != "ListBucketResult") broken(bucket, "the answer is a <" + root_ + "> and not a listing");
    list_page out;
    if (truncated_ != "true" && truncated_ != "false")
      broken(bucket, "the listing does not say whether it is complete");
    out.truncated = truncated_ == "true";
    if (out.truncated && token_.empty()) {
      broken(bucket, "the listing is incomplete but names no token to go on from");
    }
    if (out.truncated) out.next_continuation_token = std::move(token_);
    if (!encoding_.empty() && encoding_ != "url") broken(bucket, "the listing has an unknown encoding type");
    out.objects.reserve(objects_.size());
    for (raw_object& raw : objects_) {
      if (raw.key.empty()) broken(bucket, "the listing has an object without a key");
      std::string key = decoded(bucket, std::move(raw.key));
      const std::optional<std::uint64_t> size = text::parse_decimal<std::uint64_t>(raw.size);
      if (!size) broken(bucket, "the listing has an object without a valid size", key);
      const std::int64_t modified = text::parse_iso8601(raw.last_modified).value_or(0);
      out.objects.emplace_back(std::move(key), *size, std::move(raw.etag), modified);
    }
    out.common_prefixes.reserve(prefixes_.size());
    for (std::string& prefix : prefixes_) out.common_prefixes.push_back(decoded(bucket, std::move(prefix)));
    return out;
  }

  [[noreturn]] static void broken(std::string_view bucket, std::string why, std::string_view key = {}) {
    where w = at(bucket);
    w.key = key;
    throw error(200, std::string(), std::move(why), std::string(), std::move(w));
  }

 private:
  struct raw_object {
    raw_object() = default;
    std::string key, size, etag, last_modified;
  };

  static where at(std::string_view bucket) {
    where w;
    w.object = "s3://";
    w.object += bucket;
    w.object += '/';
    return w;
  }

  /// S3 writes a blank as `+` and a plus sign as `%2B` there (form encoding); others write `%20`, which reads the same.
  std::string decoded(std::string_view bucket, std::string text) const {
    if (encoding_.empty()) return text;
    std::optional<std::string> raw = text::uri_decode(text, text::plus_sign::space);
    if (!raw) broken(bucket, "the listing has a name that is not properly percent-encoded", text);
    return std::move(*raw);
  }

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

template <class T>
list_page list_page::parse(std::string_view xml, std::string_view bucket) {
  detail::list_handler<T> handler;
  detail::xml_reader<T> reader(handler);
  const std::string problem = reader.read(xml);
  if (!problem.empty()) {
    detail::list_handler<T>::broken(bucket, problem + " (byte " + std::to_string(reader.offset()) + " of the answer)");
  }
  return handler.page(bucket);
}

}  // namespace millrace::s3
