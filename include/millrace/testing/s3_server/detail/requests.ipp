// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/body_check.hpp>
#include <millrace/testing/s3_server/detail/requests.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/testing/s3_server/message.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server::detail {

MILLRACE_INLINE std::optional<selection> parse_range(const std::string* field, std::uint64_t size) {
  constexpr std::string_view unit = "bytes=";
  if (field == nullptr || field->compare(0, unit.size(), unit) != 0) return std::nullopt;
  const std::string_view text = std::string_view(*field).substr(unit.size());
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = parse_number(text.substr(0, dash));
  const auto last = parse_number(text.substr(dash + 1));
  const refusal behind_end = refusal(416, "InvalidRange", "The requested range is not satisfiable")
                                 .with("RangeRequested", *field)
                                 .with("ActualObjectSize", std::to_string(size))
                                 .header("Content-Range", "bytes */" + std::to_string(size));
  if (dash == 0) {
    if (!last) return std::nullopt;
    if (*last == 0 || size == 0) throw behind_end;
    const std::uint64_t length = *last < size ? *last : size;
    return selection(size - length, length);
  }
  if (!first || (!last && dash + 1 != text.size()) || (last && *last < *first)) return std::nullopt;
  if (*first >= size) throw behind_end;
  const std::uint64_t end = last && *last < size - 1 ? *last + 1 : size;
  return selection(*first, end - *first);
}

/// True when a list of ETags ("*" for any) names `etag`; quotes may be left out, as S3 allows.
MILLRACE_INLINE bool names_etag(std::string_view list, std::string_view etag) {
  for (std::string_view part : split(list, ',')) {
    part = trim(part);
    if (part == "*" || part == etag || part == etag.substr(1, etag.size() - 2)) return true;
  }
  return false;
}

MILLRACE_INLINE bool not_modified(const request& r, const object& o) {
  const std::string* match = r.field("if-match");
  if (match != nullptr && !names_etag(*match, o.etag)) {
    throw refusal(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
        .with("Condition", "If-Match");
  }
  const std::string* none_match = r.field("if-none-match");
  return none_match != nullptr && names_etag(*none_match, o.etag);
}

MILLRACE_INLINE reply get_object(store& s, const request& r) {
  const std::shared_ptr<const object> o = s.get(r.bucket, r.key);
  reply answer;
  answer.add("ETag", o->etag).add("Last-Modified", http_date(o->modified)).add("Accept-Ranges", "bytes");
  if (not_modified(r, *o)) {
    answer.status = 304;
    answer.without_body = true;
    return answer;
  }
  const std::optional<selection> part = parse_range(r.field("range"), o->size);
  for (const auto& [name, value] : o->fields) answer.add(name, value);
  if (answer.find("content-type") == nullptr) answer.add("content-type", "binary/octet-stream");
  const std::string* mode = r.field("x-amz-checksum-mode");
  if (mode != nullptr && equal_ignoring_case(*mode, "ENABLED") && !part) {
    for (const auto& [name, value] : o->checksums) answer.add(name, value);
    if (!o->checksums.empty() && answer.find("x-amz-checksum-type") == nullptr) {
      answer.add("x-amz-checksum-type", "FULL_OBJECT");
    }
  }
  if (!part) {
    answer.set_body(o->content);
    return answer;
  }
  answer.status = 206;
  answer.add("Content-Range", "bytes " + std::to_string(part->first) + '-' +
                                  std::to_string(part->first + part->length - 1) + '/' + std::to_string(o->size));
  answer.set_body(o->range(part->first, part->length));
  return answer;
}

MILLRACE_INLINE reply head_part(store& s, const request& r) {
  const std::shared_ptr<const object> o = s.get(r.bucket, r.key);
  reply answer(206);
  answer.add("ETag", o->etag).add("Last-Modified", http_date(o->modified)).add("Accept-Ranges", "bytes");
  if (not_modified(r, *o)) throw refusal(304, "NotModified", "Not Modified");
  const std::vector<std::uint64_t> parts = o->parts.empty() ? std::vector<std::uint64_t>{o->size} : o->parts;
  const auto number = parse_number(*r.parameter_value("partNumber"));
  if (!number || *number < 1 || *number > parts.size()) {
    throw refusal(416, "InvalidPartNumber", "The requested partnumber is not satisfiable");
  }
  std::uint64_t first = 0;
  for (std::uint64_t i = 1; i < *number; ++i) first += parts[i - 1];
  const std::uint64_t length = parts[*number - 1];
  if (!o->parts.empty()) answer.add("x-amz-mp-parts-count", std::to_string(parts.size()));
  answer.add("Content-Range", "bytes " + std::to_string(first) + '-' + std::to_string(first + length - 1) + '/' +
                                  std::to_string(o->size));
  answer.set_body(o->range(first, length));
  return answer;
}

MILLRACE_INLINE std::vector<object::field> kept_fields(const request& r) {
  std::vector<object::field> kept;
  for (const auto& [name, value] : r.fields) {
    if (name == "content-type" || name == "cache-control" || name == "content-disposition" ||
        name.compare(0, 11, "x-amz-meta-") == 0) {
      kept.emplace_back(name, value);
    }
  }
  return kept;
}

MILLRACE_INLINE bool only_if_new(const request& r) {
  const std::string* none_match = r.field("if-none-match");
  if (none_match != nullptr && *none_match != "*") {
    throw refusal(501, "NotImplemented", "If-None-Match of a write supports \"*\" only");
  }
  return none_match != nullptr;
}

MILLRACE_INLINE reply put_object(store& s, const request& r, std::vector<object::field> checksums) {
  object o(r.body);
  o.fields = kept_fields(r);
  o.checksums = checksums;
  reply answer;
  answer.add("ETag", s.put_checked(r.bucket, r.key, std::move(o), only_if_new(r), r.field("if-match")));
  for (auto& [name, value] : checksums) answer.add(name, value);
  return answer;
}

MILLRACE_INLINE reply delete_object(store& s, const request& r) {
  if (!s.has_bucket(r.bucket)) throw refusal(404, "NoSuchBucket", "The specified bucket does not exist");
  s.erase(r.bucket, r.key);
  reply answer(204);
  answer.without_body = true;
  return answer;
}

MILLRACE_INLINE list_position read_token(const std::string& token) {
  std::string escaped;
  for (std::size_t i = 1; i < token.size(); i += 2) escaped += '%' + token.substr(i, 2);
  const std::optional<std::string> text = percent_decode(escaped);
  if (token.size() < 3 || (token[0] != 'k' && token[0] != 'p') || !text) {
    throw refusal(400, "InvalidArgument", "The continuation token provided is incorrect");
  }
  return list_position(*text, token[0] == 'p');
}

MILLRACE_INLINE reply list_objects(store& s, const request& r, const options& o) {
  const auto parameter = [&](const char* name) {
    const std::string* value = r.parameter_value(name);
    return value == nullptr ? std::string() : *value;
  };
  const bool encoded = r.has("encoding-type");
  if (encoded && parameter("encoding-type") != "url") {
    throw refusal(400, "InvalidArgument", "Invalid Encoding Method specified in Request");
  }
  const auto shown = [&](const std::string& text) { return encoded ? listing_encode(text) : text; };
  std::size_t max_keys = 1000;
  if (r.has("max-keys")) {
    const auto number = parse_number(parameter("max-keys"));
    if (!number || *number > 0x7fffffff) {
      throw refusal(400, "InvalidArgument", "Provided max-keys not an integer or within integer range");
    }
    max_keys = std::min<std::size_t>(*number, 1000);
  }
  const std::string token = parameter("continuation-token");
  if (r.has("continuation-token") && token.empty()) {
    throw refusal(400, "InvalidArgument", "The continuation token provided is incorrect");
  }
  const list_position from = token.empty() ? list_position(parameter("start-after"), false) : read_token(token);
  const std::string delimiter = parameter("delimiter");
  const list_page page = s.list(r.bucket, parameter("prefix"), delimiter, from, std::min(max_keys, o.list_page));

  xml out;
  out.open("ListBucketResult", s3_namespace).element("Name", r.bucket).element("Prefix", shown(parameter("prefix")));
  if (!delimiter.empty()) out.element("Delimiter", shown(delimiter));
  if (r.has("start-after")) out.element("StartAfter", shown(parameter("start-after")));
  if (!token.empty()) out.element("ContinuationToken", token);
  if (page.truncated) out.element("NextContinuationToken", write_token(page.next));
  out.element("KeyCount", std::to_string(page.count())).element("MaxKeys", std::to_string(max_keys));
  if (encoded) out.element("EncodingType", "url");
  out.element("IsTruncated", page.truncated ? "true" : "false");
  for (const auto& [key, entry] : page.objects) {
    out.open("Contents")
        .element("Key", shown(key))
        .element("LastModified", iso_date(entry->modified))
        .element("ETag", entry->etag)
        .element("Size", std::to_string(entry->size))
        .element("StorageClass", "STANDARD")
        .close("Contents");
  }
  for (const std::string& prefix : page.prefixes) {
    out.open("CommonPrefixes").element("Prefix", shown(prefix)).close("CommonPrefixes");
  }
  out.close("ListBucketResult");
  return reply::document(out.take());
}

MILLRACE_INLINE reply create_bucket(store& s, const request& r) {
  if (r.bucket.size() < 3 || r.bucket.size() > 63) {
    throw refusal(400, "InvalidBucketName", "The specified bucket is not valid.").with("BucketName", r.bucket);
  }
  if (!s.create_bucket(r.bucket)) {
    throw refusal(409, "BucketAlreadyOwnedByYou",
                  "Your previous request to create the named bucket succeeded and you "
                  "already own it.")
        .with("BucketName", r.bucket);
  }
  reply answer;
  answer.add("Location", '/' + r.bucket);
  return answer;
}

MILLRACE_INLINE reply delete_bucket(store& s, const request& r) {
  s.delete_bucket(r.bucket);
  reply answer(204);
  answer.without_body = true;
  return answer;
}

MILLRACE_INLINE reply head_bucket(store& s, const request& r, const options& o) {
  if (!s.has_bucket(r.bucket)) throw refusal(404, "NoSuchBucket", "The specified bucket does not exist");
  reply answer;
  answer.add("x-amz-bucket-region", o.region);
  return answer;
}

MILLRACE_INLINE reply bucket_location(store& s, const request& r, const options& o) {
  if (!s.has_bucket(r.bucket)) throw refusal(404, "NoSuchBucket", "The specified bucket does not exist");
  xml out;
  // The oldest region has no name there.
  out.element("LocationConstraint", o.region == "us-east-1" ? "" : o.region, s3_namespace);
  return reply::document(out.take());
}

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

/// The content of the first element `name` in `text`, which is advanced past it; nullopt if there is none. Sufficient
/// for the one document that this server reads.
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

/// Refuses members that a schema of PartNumber and ETag alone does not have.
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

MILLRACE_INLINE bool is_ipv4(std::string_view host) {
  const auto parts = split(host, '.');
  if (parts.size() != 4) return false;
  for (std::string_view part : parts) {
    const auto number = parse_number(part);
    if (!number || *number > 255) return false;
  }
  return true;
}

MILLRACE_INLINE void route(request& r, const options& o) {
  const std::string* field = r.field("host");
  const std::string host = lower_case(field == nullptr ? "127.0.0.1" : field->substr(0, field->rfind(':')));
  std::string_view path = r.raw_path().substr(1);
  bool in_path = is_ipv4(host);
  bool in_host = false;
  for (const std::string& name : o.host_names) {
    if (host == name) in_path = true;
    if (!in_path && host.size() > name.size() + 1 && host.ends_with("." + name)) {
      in_host = true;
      r.bucket = host.substr(0, host.size() - name.size() - 1);
    }
  }
  if (!in_path && !in_host) {
    throw refusal(400, "InvalidRequest", "The Host header names none of this server's hosts").with("Host", host);
  }
  if (in_path) {
    const std::size_t slash = path.find('/');
    r.bucket = percent_decode(path.substr(0, slash)).value_or("");
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  }
  r.key = percent_decode(path).value_or("");
}

MILLRACE_INLINE caller service::admit(request& r) const {
  route(r, options_);
  caller who = signatures_.verify(r, clock_.now());
  const bool reads = r.method == "GET" || r.method == "HEAD";
  const bool allowed =
      options_.anonymous == anonymous_access::write || (options_.anonymous == anonymous_access::read && reads);
  if (who.anonymous && !allowed) throw refusal(403, "AccessDenied", "Access Denied");
  return who;
}

MILLRACE_INLINE reply service::answer(request& r, const caller& who) {
  std::vector<object::field> checksums = check_body(r, who.payload);
  if (!options_.checksums) checksums.clear();
  if (r.bucket.empty()) throw refusal(501, "NotImplemented", "Buckets are not listed by this server");
  for (const char* name : {"versionId", "acl", "tagging", "versions", "attributes", "torrent"}) {
    if (r.has(name) && !r.has("uploadId")) throw not_implemented(std::string("?") + name);
  }
  return r.key.empty() ? answer_bucket(r) : answer_object(r, std::move(checksums));
}

MILLRACE_INLINE reply service::answer(const request& r, const refusal& why, const std::string& request_id) const {
  reply a(why.status);
  for (const auto& [name, value] : why.fields) a.add(name, value);
  a.set_document(why.document(std::string(r.raw_path()), request_id));
  return a;
}

MILLRACE_INLINE reply service::answer_bucket(const request& r) {
  if (r.method == "HEAD") return head_bucket(store_, r, options_);
  if (r.method == "PUT" && r.query.empty()) return create_bucket(store_, r);
  if (r.method == "DELETE" && r.query.empty()) return delete_bucket(store_, r);
  if (r.method != "GET") throw not_implemented(r.method + " of a bucket");
  if (r.has("location")) return bucket_location(store_, r, options_);
  if (r.has("uploads")) return list_uploads(store_, r);
  const std::string* type = r.parameter_value("list-type");
  if (type == nullptr || *type != "2") throw not_implemented("listings other than ListObjectsV2");
  return list_objects(store_, r, options_);
}

MILLRACE_INLINE reply service::answer_object(const request& r, std::vector<object::field> checksums) {
  const bool part_of_upload = r.has("uploadId");
  if (r.method == "GET" && part_of_upload) return list_parts(store_, r);
  if (r.method == "HEAD" && r.has("partNumber")) return head_part(store_, r);
  if (r.has("partNumber") && !part_of_upload) throw not_implemented("?partNumber");
  if (r.method == "GET" || r.method == "HEAD") return get_object(store_, r);
  if (r.field("x-amz-copy-source") != nullptr) throw not_implemented("x-amz-copy-source");
  if (r.method == "PUT" && part_of_upload) return put_part(store_, r, checksums);
  if (r.method == "PUT") return put_object(store_, r, std::move(checksums));
  if (r.method == "DELETE" && part_of_upload) return abort_upload(store_, r);
  if (r.method == "DELETE") return delete_object(store_, r);
  if (r.method == "POST" && r.has("uploads")) return start_upload(store_, r, options_);
  if (r.method == "POST" && part_of_upload) return complete_upload(store_, r, options_);
  throw refusal(405, "MethodNotAllowed", "The specified method is not allowed against this resource.");
}

}  // namespace millrace::s3_server::detail
