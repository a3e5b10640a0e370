// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/ops/detail/upload_requests.hpp>
#include <millrace/s3/ops/get_object.hpp>
#include <millrace/s3/ops/with_retries.hpp>
#include <millrace/text/percent.hpp>

namespace millrace::s3::detail {

/// One attempt at storing a body: its ETag, and its checksum where the store has understood it, which the answer tells.
/// Without an ETag in the answer nothing was stored: it is a proxy's page, say.
MILLRACE_COROUTINE task<stored_part> store_once(const session& s, const operation& op) {
  http::body_options small;
  http::exchange x = co_await send(s, op, std::move(small));
  const http::response_head& head = co_await x.head();
  std::string etag = head.etag();
  const std::string* sent = op.fields.find("x-amz-checksum-crc32c");
  const std::string* kept = head.fields.find("x-amz-checksum-crc32c");
  const bool differs = sent != nullptr && kept != nullptr && *sent != *kept;
  co_await http::read_all(x, 64 * KiB);
  if (etag.empty() || differs) {
    throw error(200, std::string(), differs ? "the store has another checksum" : "the answer has no ETag",
                std::string(), op.at());
  }
  std::string understood = sent != nullptr && kept != nullptr ? *sent : std::string();
  co_return stored_part(0, std::move(etag), std::move(understood));
}

/// One attempt at a request that is answered with a document: the text of its element `path`.
MILLRACE_COROUTINE task<std::string> ask_once(const session& s, const operation& op, std::string_view path) {
  http::body_options small;
  http::exchange x = co_await send(s, op, std::move(small));
  const std::string body = co_await http::read_all(x, 256 * KiB);
  co_return element_of(body, path, op.at());
}

MILLRACE_COROUTINE_BODY task<void> discard_once(const session& s, const operation& op) {
  http::body_options small;
  http::exchange x = co_await send(s, op, std::move(small));
  co_await http::read_all(x, 64 * KiB);
}

MILLRACE_COROUTINE_BODY task<std::string> store_whole(std::shared_ptr<const session> s, std::string bucket,
                                                      std::string key, bytes body, const put_plan& plan) {
  operation op("PUT", std::move(bucket), std::move(key));
  op.body = std::move(body);
  add_fields(op, plan.fields);
  if (plan.checksums) add_checksum(op, crc32c_value(op.body.view()));
  if (plan.only_new) op.fields.add("if-none-match", "*");
  auto attempt = [&] { return store_once(*s, op); };
  stored_part stored = co_await with_retries<stored_part>(*s, attempt);
  co_return std::move(stored.etag);
}

MILLRACE_COROUTINE_BODY task<stored_part> store_part(std::shared_ptr<const session> s, std::string bucket,
                                                     std::string key, std::string id, object_chunk chunk,
                                                     bool checksums) {
  if (chunk.number > max_parts) {
    where at;
    at.object = "s3://" + bucket + "/" + key;
    at.offset = chunk.offset;
    throw configuration_error("the stream does not fit into 10000 parts: make them larger, or tell its size", at);
  }
  operation op("PUT", std::move(bucket), std::move(key));
  text::append_query_parameter(op.query, "partNumber", std::to_string(chunk.number));
  text::append_query_parameter(op.query, "uploadId", id);
  op.body = std::move(chunk.data);
  if (checksums) add_checksum(op, crc32c_value(op.body.view()));
  auto attempt = [&] { return store_once(*s, op); };
  stored_part stored = co_await with_retries<stored_part>(*s, attempt);
  stored.number = chunk.number;
  co_return stored;
}

MILLRACE_COROUTINE_BODY task<std::string> create_upload(std::shared_ptr<const session> s, std::string bucket,
                                                        std::string key, const put_plan& plan) {
  operation op("POST", std::move(bucket), std::move(key));
  op.query = "uploads";
  add_fields(op, plan.fields);
  if (plan.checksums) op.fields.add("x-amz-checksum-algorithm", "CRC32C");
  auto attempt = [&] { return ask_once(*s, op, "InitiateMultipartUploadResult/UploadId"); };
  std::string id = co_await with_retries<std::string>(*s, attempt);
  co_return id;
}

MILLRACE_COROUTINE_BODY task<std::string> complete_upload(std::shared_ptr<const session> s, std::string bucket,
                                                          std::string key, std::string id,
                                                          std::vector<stored_part> parts, bool only_new) {
  operation op("POST", std::move(bucket), std::move(key));
  text::append_query_parameter(op.query, "uploadId", id);
  op.body = bytes::copy(complete_document(parts));
  op.fields.add("content-type", "application/xml");
  if (only_new) op.fields.add("if-none-match", "*");
  auto attempt = [&] { return ask_once(*s, op, "CompleteMultipartUploadResult/ETag"); };
  std::optional<error> refused;
  try {
    std::string etag = co_await with_retries<std::string>(*s, attempt);
    if (etag.front() != '"') etag = '"' + etag + '"';  // as Ceph writes it
    co_return etag;
  } catch (const error& e) {
    if (e.code() != "NoSuchUpload") throw;
    refused = e;
  }
  // An earlier attempt may have got through and its answer lost (libcurl repeats some by itself). Then the object is
  // there, made of our parts.
  const std::string expected = composite_etag(parts);
  std::optional<object_info> there;
  try {
    there = co_await head_object(s, op.bucket, op.key);
  } catch (const error&) {
  }
  if (!there || expected.empty() || there->etag != expected) throw *refused;
  co_return expected;
}

MILLRACE_COROUTINE_BODY task<void> abort_upload(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                                std::string id) {
  operation op("DELETE", std::move(bucket), std::move(key));
  text::append_query_parameter(op.query, "uploadId", id);
  auto attempt = [&] { return discard_once(*s, op); };
  try {
    co_await with_retries<void>(*s, attempt);
  } catch (const error& e) {
    if (e.code() != "NoSuchUpload") throw;
  }
}

}  // namespace millrace::s3::detail
