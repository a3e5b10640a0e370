// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/wire/list_page.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/numbers.hpp>
#include <millrace/text/percent.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE void list_handler::enter(std::string_view path) {
  if (path.find('/') == std::string_view::npos) root_ = path;
  if (path == "ListBucketResult/Contents") objects_.emplace_back();
  error_.enter(path);
}

MILLRACE_INLINE void list_handler::leaf(std::string_view path, const std::string& text) {
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

MILLRACE_INLINE list_page list_handler::page(std::string_view bucket) {
  if (error_.is_error()) throw error(200, document_.code, document_.message, document_.request_id, at(bucket));
  if (root_ != "ListBucketResult") broken(bucket, "the answer is a <" + root_ + "> and not a listing");
  list_page out;
  if (truncated_ != "true" && truncated_ != "false") broken(bucket, "the listing does not say whether it is complete");
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

MILLRACE_INLINE void list_handler::broken(std::string_view bucket, std::string why, std::string_view key) {
  where w = at(bucket);
  w.key = key;
  throw error(200, std::string(), std::move(why), std::string(), std::move(w));
}

MILLRACE_INLINE where list_handler::at(std::string_view bucket) {
  where w;
  w.object = "s3://";
  w.object += bucket;
  w.object += '/';
  return w;
}

MILLRACE_INLINE std::string list_handler::decoded(std::string_view bucket, std::string text) const {
  if (encoding_.empty()) return text;
  std::optional<std::string> raw = text::uri_decode(text, text::plus_sign::space);
  if (!raw) broken(bucket, "the listing has a name that is not properly percent-encoded", text);
  return std::move(*raw);
}

}  // namespace millrace::s3::detail

namespace millrace::s3 {

MILLRACE_INLINE list_page list_page::parse(std::string_view xml, std::string_view bucket) {
  detail::list_handler handler;
  detail::xml_reader reader(handler);
  const std::string problem = reader.read(xml);
  if (!problem.empty()) {
    detail::list_handler::broken(bucket, problem + " (byte " + std::to_string(reader.offset()) + " of the answer)");
  }
  return handler.page(bucket);
}

}  // namespace millrace::s3
