// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/bucket_requests.hpp>
#include <millrace/testing/s3_server/detail/date.hpp>
#include <millrace/testing/s3_server/detail/object_requests.hpp>
#include <millrace/testing/s3_server/detail/percent.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/testing/s3_server/detail/upload_requests.hpp>
#include <millrace/testing/s3_server/detail/xml.hpp>

namespace millrace::s3_server::detail {

MILLRACE_INLINE reply start_upload(store& s, const request& r, const options& o) {
  upload u(r.bucket, r.key, kept_fields(r));
  const std::string* algorithm = r.field("x-amz-checksum-algorithm");
  if (algorithm != nullptr && o.checksums) {
    static constexpr std::string_view known[] = {"crc32", "crc32c", "crc64nvme", "sha1", "sha256"};
    u.algorithm = lower_case(*algorithm);
    if (std::find(std::begin(known), std::end(known), u.algorithm) == std::end(known)) {
      throw refusal(400, "InvalidRequest", "Checksum algorithm provided is unsupported");
    }
    const std::string* type = r.field("x-amz-checksum-type");
    u.composite = type == nullptr ? u.algorithm != "crc64nvme" : *type == "COMPOSITE";
  }
  const std::string id = s.start_upload(std::move(u));
  xml out;
  out.open("InitiateMultipartUploadResult", s3_namespace)
      .element("Bucket", r.bucket)
      .element("Key", r.key)
      .element("UploadId", id)
      .close("InitiateMultipartUploadResult");
  return reply::document(out.take());
}

MILLRACE_INLINE std::uint64_t part_number(const std::string* text) {
  const auto number = text == nullptr ? std::nullopt : parse_number(*text);
  if (!number || *number < 1 || *number > 10000) {
    throw refusal(400, "InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
        .with("ArgumentName", "partNumber");
  }
  return *number;
}

MILLRACE_INLINE reply put_part(store& s, const request& r, const std::vector<object::field>& checksums) {
  object part(r.body);
  part.checksums = checksums;
  reply answer;
  answer.add("ETag", part.etag);
  for (const auto& [name, value] : checksums) answer.add(name, value);
  s.put_part(*r.parameter_value("uploadId"), r.bucket, r.key, part_number(r.parameter_value("partNumber")),
             std::move(part));
  return answer;
}

MILLRACE_INLINE reply abort_upload(store& s, const request& r) {
  s.abort_upload(*r.parameter_value("uploadId"), r.bucket, r.key);
  reply answer(204);
  answer.without_body = true;
  return answer;
}

MILLRACE_INLINE reply list_parts(store& s, const request& r) {
  const std::string& id = *r.parameter_value("uploadId");
  const upload u = s.find_upload(id, r.bucket, r.key);
  const std::string* marker_text = r.parameter_value("part-number-marker");
  const std::string* limit_text = r.parameter_value("max-parts");
  const std::uint64_t marker = marker_text == nullptr ? 0 : parse_number(*marker_text).value_or(0);
  const std::uint64_t limit = limit_text == nullptr ? 1000 : parse_number(*limit_text).value_or(1000);
  xml parts;
  parts.take();
  std::uint64_t count = 0;
  std::uint64_t last = marker;
  auto it = u.parts.upper_bound(marker);
  for (; it != u.parts.end() && count < limit; ++it, ++count) {
    last = it->first;
    parts.open("Part")
        .element("PartNumber", std::to_string(it->first))
        .element("LastModified", iso_date(it->second->modified))
        .element("ETag", it->second->etag)
        .element("Size", std::to_string(it->second->size))
        .close("Part");
  }
  xml out;
  out.open("ListPartsResult", s3_namespace)
      .element("Bucket", r.bucket)
      .element("Key", r.key)
      .element("UploadId", id)
      .element("PartNumberMarker", std::to_string(marker))
      .element("NextPartNumberMarker", std::to_string(last))
      .element("MaxParts", std::to_string(limit))
      .element("IsTruncated", it == u.parts.end() ? "false" : "true");
  return reply::document(out.take() + parts.take() + "</ListPartsResult>");
}

MILLRACE_INLINE reply list_uploads(store& s, const request& r) {
  const std::string* prefix = r.parameter_value("prefix");
  const std::string* encoding = r.parameter_value("encoding-type");
  xml out;
  out.open("ListMultipartUploadsResult", s3_namespace).element("Bucket", r.bucket).element("IsTruncated", "false");
  if (encoding != nullptr) out.element("EncodingType", "url");
  for (const auto& [key, id] : s.list_uploads(r.bucket, prefix == nullptr ? std::string() : *prefix)) {
    out.open("Upload")
        .element("Key", encoding == nullptr ? key : listing_encode(key))
        .element("UploadId", id)
        .close("Upload");
  }
  out.close("ListMultipartUploadsResult");
  return reply::document(out.take());
}

/// The content of the first element `name` in `text`, which is moved behind it; nothing when there is none. Enough for
/// the one document that this server reads.
MILLRACE_INLINE std::optional<std::string_view> next_element(std::string_view& text, const std::string& name) {
  const std::size_t begin = text.find('<' + name + '>');
  if (begin == std::string_view::npos) return std::nullopt;
  const std::size_t content = begin + name.size() + 2;
  const std::size_t end = text.find("</" + name + '>', content);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view found = text.substr(content, end - content);
  text.remove_prefix(end + name.size() + 3);
  return found;
}

MILLRACE_INLINE upload::part_list parse_parts(std::string_view document, const std::string& algorithm) {
  const auto malformed = [] { return refusal(400, "MalformedXML", "The XML you provided was not well-formed"); };
  if (document.find("<CompleteMultipartUpload") == std::string_view::npos ||
      document.find("</CompleteMultipartUpload>") == std::string_view::npos) {
    throw malformed();
  }
  upload::part_list parts;
  while (std::optional<std::string_view> part = next_element(document, "Part")) {
    std::string_view for_tag = *part;
    std::string_view for_checksum = *part;
    const auto number = next_element(*part, "PartNumber");
    const auto tag = next_element(for_tag, "ETag");
    const auto checksum = next_element(for_checksum, "Checksum" + upper_case(algorithm));
    const auto value = number ? parse_number(*number) : std::nullopt;
    if (!value || !tag) throw malformed();
    std::string text(*tag);
    for (const char* quote : {"&quot;", "&#34;"}) {
      for (std::size_t at; (at = text.find(quote)) != std::string::npos;) {
        text[at] = '"';  // g++ 12 warns of replace()
        text.erase(at + 1, std::string_view(quote).size() - 1);
      }
    }
    upload::claim& c = parts.emplace_back();
    c.number = *value;
    c.etag = std::move(text);
    c.checksum = checksum.value_or(std::string_view());
  }
  return parts;
}

/// Refuses what a schema of PartNumber and ETag alone does not have.
MILLRACE_INLINE void require_plain_parts(std::string_view document) {
  while (std::optional<std::string_view> part = next_element(document, "Part")) {
    for (std::size_t at = 0; (at = part->find('<', at)) != std::string_view::npos; ++at) {
      const std::string_view name = part->substr(at + 1, part->find('>', at) - at - 1);
      if (name != "PartNumber" && name != "/PartNumber" && name != "ETag" && name != "/ETag") {
        throw refusal(400, "MalformedXML", "The XML you provided was not well-formed or did not validate");
      }
    }
  }
}

MILLRACE_INLINE reply complete_upload(store& s, const request& r, const options& o) {
  const std::string& id = *r.parameter_value("uploadId");
  const upload u = s.find_upload(id, r.bucket, r.key);
  if (!o.checksums) require_plain_parts(r.body.view());
  object whole = u.assemble(parse_parts(r.body.view(), u.algorithm), o.min_part_size);
  const std::string etag = s.put_checked(r.bucket, r.key, std::move(whole), only_if_new(r), r.field("if-match"));
  s.abort_upload(id, r.bucket, r.key);
  xml out;
  out.open("CompleteMultipartUploadResult", s3_namespace)
      .element("Location", '/' + r.bucket + '/' + percent_encode(r.key, true))
      .element("Bucket", r.bucket)
      .element("Key", r.key)
      .element("ETag", etag)
      .close("CompleteMultipartUploadResult");
  return reply::document(out.take());
}

}  // namespace millrace::s3_server::detail
