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

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/wire/detail/xml.hpp>
#include <millrace/s3/wire/documents.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/entity_tag.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE void error_document_handler::leaf(std::string_view path, const std::string& text) {
  if (path == "ErrorResponse/RequestId") return assign(out_.request_id, text);
  static constexpr std::string_view outer = "ErrorResponse/";
  if (path.substr(0, outer.size()) == outer) path.remove_prefix(outer.size());
  if (path == "Error/Code") return assign(out_.code, text);
  if (path == "Error/Message") return assign(out_.message, text);
  if (path == "Error/Region") return assign(out_.region, text);
  if (path == "Error/Endpoint") return assign(out_.endpoint, text);
  if (path == "Error/Resource") return assign(out_.resource, text);
  if (path == "Error/RequestId") return assign(out_.request_id, text);
}

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE std::optional<error_document> error_document::parse(std::string_view body) {
  error_document out;
  detail::error_document_handler handler(out);
  detail::xml_limits limits;
  limits.document = std::size_t(1) << 20;
  if (body.size() > limits.document) return std::nullopt;
  detail::xml_reader reader(handler, limits);
  if (!reader.read(detail::xml_legal(body)).empty() || !handler.is_error() || out.code.empty()) return std::nullopt;
  return out;
}

}  // namespace millrace::s3

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// AWS names the document ListBucketResult; those that derive the name from the operation are met, too.
MILLRACE_INLINE bool list_handler::is_listing(std::string_view root) noexcept {
  constexpr std::string_view names[] = {"ListBucketResult",      "ListObjectsV2Result", "ListObjectsV2Output",
                                        "ListObjectsV2Response", "ListObjectsResult",   "ListBucketResponse"};
  for (const std::string_view name : names) {
    if (root == name) return true;
  }
  return false;
}

MILLRACE_INLINE void list_handler::enter(std::string_view path) {
  if (path.find('/') == std::string_view::npos) root_ = path;
  const std::size_t slash = path.find('/');
  if (slash != std::string_view::npos && is_listing(path.substr(0, slash)) && path.substr(slash) == "/Contents") {
    objects_.emplace_back();
  }
  error_.enter(path);
}

MILLRACE_INLINE void list_handler::leaf(std::string_view path, const std::string& text) {
  const std::size_t slash = path.find('/');
  if (slash == std::string_view::npos || !is_listing(path.substr(0, slash))) return error_.leaf(path, text);
  path.remove_prefix(slash + 1);
  // Names and tokens are taken unchanged; other values may have blanks around them.
  if (path == "IsTruncated") {
    truncated_ = text::to_lower(text::trimmed(text));
  } else if (path == "MaxKeys") {
    most_ = text::trimmed(text);
  } else if (path == "NextContinuationToken") {
    token_ = text;
  } else if (path == "EncodingType") {
    encoding_ = text::to_lower(text::trimmed(text));
  } else if (path == "CommonPrefixes/Prefix") {
    prefixes_.push_back(text);
  } else if (path == "Contents/Key") {
    objects_.back().key = text;
  } else if (path == "Contents/Size") {
    objects_.back().size = text::trimmed(text);
  } else if (path == "Contents/ETag") {
    const bool empty = millrace::detail::same_etag(text, "\"\"");
    objects_.back().etag = empty ? std::string() : millrace::detail::quoted_etag(text);
  } else if (path == "Contents/LastModified") {
    objects_.back().last_modified = text::trimmed(text);
  }
}

MILLRACE_INLINE list_page list_handler::page(std::string_view bucket) {
  if (error_.is_error()) throw error(200, document_.code, document_.message, document_.request_id, at(bucket));
  if (!is_listing(root_)) broken(bucket, "the answer is a <" + root_ + "> and not a listing");
  list_page out;
  // xs:boolean has two spellings of each. So does a continuation token.
  if (truncated_.empty() && !token_.empty()) truncated_ = "true";
  // Left out if it is false (gofakes3): fewer names than a page may have are all of them.
  const std::optional<std::uint64_t> most = text::parse_decimal<std::uint64_t>(most_);
  if (truncated_.empty() && most && objects_.size() + prefixes_.size() < *most) truncated_ = "false";
  out.truncated = truncated_ == "true" || truncated_ == "1";
  if (!out.truncated && truncated_ != "false" && truncated_ != "0") {
    broken(bucket, "the listing does not say whether it is complete");
  }
  if (out.truncated && token_.empty()) {
    broken(bucket, "the listing is incomplete but has no continuation token");
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

namespace millrace::inline MILLRACE_ABI::s3 {

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

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE std::string crc32c_value(std::string_view data) {
  const std::uint32_t crc = crc32c(0, data.data(), data.size());
  const unsigned char raw[4] = {static_cast<unsigned char>(crc >> 24), static_cast<unsigned char>(crc >> 16),
                                static_cast<unsigned char>(crc >> 8), static_cast<unsigned char>(crc)};
  unsigned char text[9];
  EVP_EncodeBlock(text, raw, 4);
  return std::string(reinterpret_cast<const char*>(text), 8);
}

MILLRACE_INLINE std::string complete_document(const std::vector<stored_part>& parts) {
  std::string text = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (const stored_part& p : parts) {
    text += "<Part><PartNumber>";
    text += std::to_string(p.number);
    text += "</PartNumber><ETag>";
    for (char c : p.etag) {
      if (c == '"') {
        text += "&quot;";
      } else if (c == '&') {
        text += "&amp;";
      } else if (c == '<') {
        text += "&lt;";
      } else {
        text += c;
      }
    }
    text += "</ETag>";
    if (!p.checksum.empty()) text += "<ChecksumCRC32C>" + p.checksum + "</ChecksumCRC32C>";
    text += "</Part>";
  }
  text += "</CompleteMultipartUpload>";
  return text;
}

MILLRACE_INLINE std::string composite_etag(const std::vector<stored_part>& parts) {
  std::string sums;
  for (const stored_part& p : parts) {
    const std::string quoted = millrace::detail::plain_etag(p.etag);
    if (quoted.size() != 34) return std::string();
    const std::string_view tag = std::string_view(quoted).substr(1, 32);
    for (std::size_t i = 0; i < tag.size(); i += 2) {
      const int high = text::hex_digit(tag[i]);
      const int low = text::hex_digit(tag[i + 1]);
      if (high < 0 || low < 0) return std::string();
      sums += static_cast<char>(high * 16 + low);
    }
  }
  const std::string tag = md5_etag(sums);
  return tag.empty() ? tag : tag.substr(0, tag.size() - 1) + "-" + std::to_string(parts.size()) + "\"";
}

MILLRACE_INLINE std::string md5_etag(std::string_view data) {
  unsigned char md5[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  // Not there in a FIPS configuration of OpenSSL.
  if (EVP_Digest(data.data(), data.size(), md5, &size, EVP_md5(), nullptr) != 1) return std::string();
  std::string out = "\"";
  for (unsigned i = 0; i < size; ++i) {
    out += "0123456789abcdef"[md5[i] >> 4];
    out += "0123456789abcdef"[md5[i] & 15];
  }
  return out + "\"";
}

MILLRACE_INLINE std::string composite_crc32c(const std::vector<stored_part>& parts) {
  std::string sums;
  for (const stored_part& p : parts) {
    unsigned char raw[6];
    if (p.checksum.size() != 8) return std::string();
    if (EVP_DecodeBlock(raw, reinterpret_cast<const unsigned char*>(p.checksum.data()), 8) != 6) return std::string();
    sums.append(reinterpret_cast<const char*>(raw), 4);
  }
  return crc32c_value(sums) + "-" + std::to_string(parts.size());
}

MILLRACE_INLINE std::string element_of(std::string_view body, std::string_view name, where at) {
  if (std::optional<error_document> refused = error_document::parse(body)) {
    throw error(200, refused->code, refused->message, refused->request_id, std::move(at));
  }
  element_handler found(name);
  xml_reader reader(found);
  std::string wrong = reader.read(xml_legal(body));
  if (wrong.empty() && found.value.empty()) wrong = "the answer lacks <" + std::string(name) + ">";
  if (wrong.empty() && found.ambiguous) wrong = "the answer has several <" + std::string(name) + "> that differ";
  if (!wrong.empty()) throw error(200, std::string(), std::move(wrong), std::string(), std::move(at));
  return std::move(found.value);
}

}  // namespace millrace::s3::detail
