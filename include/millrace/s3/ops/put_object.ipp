// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/ops/get_object.hpp>
#include <millrace/s3/ops/put_object.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/text/entity_tag.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE put_plan::put_plan(const config& c, const put_options& o)
    : part(o.part),
      size(o.size),
      only_new(o.only_new),
      if_match(std::string_view(o.if_match)),
      checksums(o.checksums.value_or(c.send_checksums)) {
  if (part == 0 || part > 5 * GiB) throw configuration_error("put: a part has 1 byte to 5 GiB");
  if (c.endpoint_url.empty() && part < 5 * MiB) throw configuration_error("put: AWS wants parts of 5 MiB or more");
  if (size && *size / max_parts >= part) {
    const std::uint64_t needed = *size / max_parts + 1;
    if (needed > 5 * GiB) throw configuration_error("put: no object may be that large");
    part = static_cast<std::size_t>((needed + MiB - 1) / MiB * MiB);
  }
  limit = std::max<std::size_t>(1, std::min(o.parts, o.window / part));
  check_text(if_match, "an ETag");
  if (!o.content_type.empty()) {
    check_text(o.content_type, "the content type");
    fields.add("content-type", std::string(o.content_type));
  }
  for (const header_field& m : o.metadata) {
    check_name(m.name);
    check_text(m.value, "the metadata");
    fields.add("x-amz-meta-" + std::string(m.name), std::string(m.value));
  }
}

MILLRACE_INLINE void put_plan::check_text(std::string_view text, const char* what) {
  for (char c : text) {
    if (c < 0x20 || c > 0x7e) {
      throw configuration_error(std::string("put: ") + what + " may hold printable ASCII only");
    }
  }
}

MILLRACE_INLINE void put_plan::check_name(std::string_view name) {
  bool good = !name.empty();
  for (char c : name) {
    const bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    good = good && (letter || c == '-' || c == '_' || c == '.');
  }
  if (!good) throw configuration_error("put: the name of metadata is made of letters, digits, '-', '_' and '.'");
}

MILLRACE_INLINE void part_buffer::take(bytes& piece) {
  const std::size_t n = std::min(piece.size(), part_ - filled_);
  if (whole_.empty() && filled_ == 0 && n == part_) {
    whole_ = piece.slice(0, n);  // a part in one piece is not copied
  } else {
    reserve(filled_ + n);
    std::memcpy(memory_.data() + filled_, piece.data(), n);
  }
  filled_ += n;
  piece = piece.slice(n, piece.size() - n);
}

MILLRACE_INLINE bytes part_buffer::release() {
  bytes out = whole_.empty() ? memory_.share(0, filled_) : std::move(whole_);
  whole_ = bytes();
  memory_ = writable_bytes();
  filled_ = 0;
  return out;
}

MILLRACE_INLINE void part_buffer::reserve(std::size_t size) {
  if (memory_.capacity() >= size) return;
  const std::size_t small = std::min(part_, 256 * KiB);
  writable_bytes larger = size <= small ? writable_bytes::allocate(small) : slabs_.acquire();
  if (filled_ > 0) std::memcpy(larger.data(), memory_.data(), filled_);
  memory_ = std::move(larger);
}

/// Throws the error of S3's that `body`, of an answer that began as a success, may be.
MILLRACE_INLINE void throw_if_refused(std::string_view body, const operation& op) {
  const std::optional<error_document> refused = error_document::parse(body);
  if (refused) throw error(200, refused->code, refused->message, refused->request_id, op.at());
}

/// One attempt at storing a body: its ETag, and its checksum if the answer shows that the store has checked it.
/// Without an ETag in the answer nothing was stored: it is a proxy's page, say. With one, an answer that breaks off
/// before any byte of a document is a success: a store that has failed sends a document.
MILLRACE_COROUTINE task<stored_part> store_once(const session& s, const operation& op) {
  http::body_options small;
  http::exchange x = co_await send(s, op, std::move(small));
  const http::response_head& head = co_await x.head();
  std::string etag = head.etag();
  const std::string* sent = op.fields.find("x-amz-checksum-crc32c");
  const std::string* kept = head.fields.find("x-amz-checksum-crc32c");
  const bool differs = sent != nullptr && kept != nullptr && *sent != *kept;
  std::string body;
  try {
    body = co_await http::read_all(x, 64 * KiB);
  } catch (const http::error&) {
    if (etag.empty() || x.received() != 0) throw;
  }
  throw_if_refused(body, op);
  if (etag.empty() || differs) {
    throw error(200, std::string(), differs ? "the store has another checksum" : "the answer has no ETag",
                std::string(), op.at());
  }
  std::string understood = sent != nullptr && kept != nullptr ? *sent : std::string();
  co_return stored_part(0, std::move(etag), std::move(understood));
}

/// One attempt at a request that is answered with a document: the text of its element `name`.
MILLRACE_COROUTINE task<std::string> ask_once(const session& s, const operation& op, std::string_view name) {
  http::body_options small;
  http::exchange x = co_await send(s, op, std::move(small));
  const std::string body = co_await http::read_all(x, 256 * KiB);
  co_return element_of(body, name, op.at());
}

MILLRACE_COROUTINE_BODY task<void> discard_once(const session& s, const operation& op) {
  http::body_options small;
  http::exchange x = co_await send(s, op, std::move(small));
  const std::string body = co_await http::read_all(x, 64 * KiB);
  throw_if_refused(body, op);
}

/// `one`, an attempt at storing something; `*doubt` becomes true if it fails and the store may have carried it out.
template <class T>
task<T> noting_doubt(task<T> one, bool* doubt) {
  try {
    T result = co_await std::move(one);
    co_return std::move(result);
  } catch (const error& e) {
    *doubt = *doubt || e.status() / 100 == 2 || e.status() / 100 == 5;
    throw;
  } catch (const http::error& e) {
    const bool unsent = e.kind() == http::failure::resolve || e.kind() == http::failure::connect ||
                        e.kind() == http::failure::tls;
    *doubt = *doubt || !unsent;
    throw;
  }
}

MILLRACE_COROUTINE task<http::response_head> fields_once(const session& s, const operation& op) {
  http::body_options none;
  http::exchange x = co_await send(s, op, std::move(none));
  http::response_head head = co_await x.head();
  co_return std::move(head);
}

/// Rethrows `refused`, the answer to a later attempt, unless the object is there with the ETag `etag` or the checksum
/// `sum` (each may be empty: not known): then an earlier attempt, whose answer was lost, has stored it. Gives its ETag.
MILLRACE_COROUTINE task<std::string> require_stored(const session& s, std::string bucket, std::string key,
                                                    error refused, std::string etag, std::string sum) {
  operation op("HEAD", std::move(bucket), std::move(key));
  op.fields.add("x-amz-checksum-mode", "ENABLED");
  auto attempt = [&] { return fields_once(s, op); };
  http::response_head there;
  try {
    there = co_await with_retries<http::response_head>(s, op, attempt);
  } catch (const millrace::error& e) {
    refused.add_note("an earlier attempt may have stored it, which HEAD does not tell: " + e.reason());
  }
  const std::string* const kept = there.fields.find("x-amz-checksum-crc32c");
  const bool same = (!sum.empty() && kept != nullptr && *kept == sum) ||
                    (!etag.empty() && millrace::detail::same_etag(there.etag(), etag));
  if (!same) throw refused;
  co_return there.etag().empty() ? etag : there.etag();
}

MILLRACE_COROUTINE_BODY task<std::string> store_whole(std::shared_ptr<const session> s, std::string bucket,
                                                      std::string key, bytes body, const put_plan& plan) {
  operation op("PUT", std::move(bucket), std::move(key));
  op.body = std::move(body);
  add_fields(op, plan.fields);
  if (plan.checksums) add_checksum(op, crc32c_value(op.body.view()));
  add_condition(op, plan);
  bool doubt = false;
  auto attempt = [&] { return noting_doubt(store_once(*s, op), &doubt); };
  std::optional<error> refused;
  try {
    stored_part stored = co_await with_retries<stored_part>(*s, op, attempt);
    co_return std::move(stored.etag);
  } catch (const error& e) {
    if (!plan.conditional() || !doubt || e.status() != 412) throw;
    refused = e;
  }
  std::string etag = co_await require_stored(*s, op.bucket, op.key, std::move(*refused), md5_etag(op.body.view()),
                                             crc32c_value(op.body.view()));
  co_return etag;
}

MILLRACE_COROUTINE_BODY task<stored_part> store_part(std::shared_ptr<const session> s, std::string bucket,
                                                     std::string key, std::string id, object_chunk chunk,
                                                     bool checksums) {
  if (chunk.number > max_parts) {
    where at;
    at.object = "s3://" + bucket + "/" + key;
    at.offset = chunk.offset;
    throw configuration_error("the stream does not fit into 10000 parts: make them larger, or give its .size", at);
  }
  operation op("PUT", std::move(bucket), std::move(key));
  text::append_query_parameter(op.query, "partNumber", std::to_string(chunk.number));
  text::append_query_parameter(op.query, "uploadId", id);
  op.body = std::move(chunk.data);
  if (checksums) add_checksum(op, crc32c_value(op.body.view()));
  auto attempt = [&] { return store_once(*s, op); };
  stored_part stored = co_await with_retries<stored_part>(*s, op, attempt);
  stored.number = chunk.number;
  co_return stored;
}

MILLRACE_COROUTINE_BODY task<std::string> create_upload(std::shared_ptr<const session> s, std::string bucket,
                                                        std::string key, const put_plan& plan) {
  operation op("POST", std::move(bucket), std::move(key));
  op.query = "uploads";
  add_fields(op, plan.fields);
  if (plan.checksums) op.fields.add("x-amz-checksum-algorithm", "CRC32C");
  auto attempt = [&] { return ask_once(*s, op, "UploadId"); };
  std::string id = co_await with_retries<std::string>(*s, op, attempt);
  co_return id;
}

MILLRACE_COROUTINE_BODY task<std::string> complete_upload(std::shared_ptr<const session> s, std::string bucket,
                                                          std::string key, std::string id,
                                                          std::vector<stored_part> parts, const put_plan& plan) {
  operation op("POST", std::move(bucket), std::move(key));
  text::append_query_parameter(op.query, "uploadId", id);
  op.body = bytes::copy(complete_document(parts));
  op.fields.add("content-type", "application/xml");
  add_condition(op, plan);
  bool doubt = false;
  auto attempt = [&] { return noting_doubt(ask_once(*s, op, "ETag"), &doubt); };
  std::optional<error> refused;
  try {
    std::string etag = co_await with_retries<std::string>(*s, op, attempt);
    co_return millrace::detail::quoted_etag(etag);  // Ceph writes none
  } catch (const error& e) {
    const bool gone = e.code() == "NoSuchUpload";  // libcurl may have repeated the request by itself
    const bool there = plan.conditional() && doubt && e.status() == 412;
    if (!gone && !there) throw;
    refused = e;
  }
  std::string etag = co_await require_stored(*s, op.bucket, op.key, std::move(*refused), composite_etag(parts),
                                             composite_crc32c(parts));
  co_return etag;
}

MILLRACE_COROUTINE_BODY task<void> carry_out(std::shared_ptr<const session> s, operation op, const char* forgiven) {
  auto attempt = [&] { return discard_once(*s, op); };
  try {
    co_await with_retries<void>(*s, op, attempt);
  } catch (const error& e) {
    if (e.code() != forgiven) throw;
  }
}

MILLRACE_COROUTINE_BODY task<void> abort_upload(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                                std::string id) {
  operation op("DELETE", std::move(bucket), std::move(key));
  text::append_query_parameter(op.query, "uploadId", id);
  return carry_out(std::move(s), std::move(op), "NoSuchUpload");
}

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_COROUTINE_BODY task<std::string> put_object(std::shared_ptr<const session> s, std::string bucket,
                                                     std::string key, bytes body, detail::put_plan plan) {
  std::string etag = co_await detail::store_whole(s, std::move(bucket), std::move(key), std::move(body), plan);
  co_return etag;
}

MILLRACE_COROUTINE_BODY task<void> create_bucket(std::shared_ptr<const session> s, std::string bucket) {
  if (detail::is_directory_bucket(bucket)) {
    throw configuration_error("a directory bucket is created by the tools of AWS, which know its zone: aws s3api "
                              "create-bucket",
                              where{"s3://" + bucket + "/", std::nullopt, std::string()});
  }
  return detail::carry_out(std::move(s), operation("PUT", std::move(bucket), std::string()), "BucketAlreadyOwnedByYou");
}

MILLRACE_COROUTINE_BODY task<void> remove_bucket(std::shared_ptr<const session> s, std::string bucket) {
  return detail::carry_out(std::move(s), operation("DELETE", std::move(bucket), std::string()), "NoSuchBucket");
}

MILLRACE_COROUTINE_BODY task<void> remove_object(std::shared_ptr<const session> s, std::string bucket,
                                                 std::string key) {
  // S3 answers 204; some stores say that it was not there.
  return detail::carry_out(std::move(s), operation("DELETE", std::move(bucket), std::move(key)), "NoSuchKey");
}

}  // namespace millrace::s3
