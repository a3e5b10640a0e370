// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/http/unconditional_hosts.hpp>
#include <millrace/retry/retry.hpp>
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/ops/bucket_session.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/s3/wire/documents.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/entity_tag.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE failed_attempt attempt_that(const error& e) noexcept {
  failed_attempt failed;
  failed.what = classify(e.status(), e.code());
  failed.hint = e.retry_after();
  return failed;
}

MILLRACE_INLINE failed_attempt attempt_that(const http::error& e) noexcept {
  failed_attempt failed;
  failed.what = classify(e.kind());
  return failed;
}

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE where operation::at() const {
  where w;
  w.object = "s3://" + bucket + "/" + key;
  if (range) w.offset = range->first;
  return w;
}

}  // namespace millrace::s3

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE void give_up(const retry_policy& policy, const session& s, const std::exception_ptr& why) {
  if (!policy.out_of_patience()) std::rethrow_exception(why);
  const auto patience = std::chrono::duration_cast<std::chrono::seconds>(s.retries().patience).count();
  try {
    std::rethrow_exception(why);
  } catch (millrace::error& e) {
    e.add_note("the store has asked for fewer requests for " + std::to_string(patience) + " s");
    throw;
  }
}

/// The prefix whose requests S3 counts together: "s3://bucket/train/".
MILLRACE_INLINE std::string counted_prefix(const operation& op) {
  const std::string& key = op.key.empty() ? op.prefix : op.key;
  std::string name = "s3://" + op.bucket + "/";
  if (const std::size_t slash = key.find('/'); slash != std::string::npos) name.append(key, 0, slash + 1);
  return name;
}

MILLRACE_INLINE bool reads(const operation& op) noexcept { return op.method == "GET" || op.method == "HEAD"; }

MILLRACE_INLINE std::shared_ptr<millrace::detail::request_gate> gate_of(executor& ex, const session& s,
                                                                        const operation& op) {
  const std::string name = s.base().endpoint_url + (reads(op) ? " reads " : " writes ") + counted_prefix(op);
  return millrace::detail::request_gates::of(ex).gate(name);
}

/// Slows the requests of this prefix down, and says so once.
MILLRACE_INLINE void note_refusal(executor& ex, const session& s, const operation& op,
                                  millrace::detail::request_gate& gate,
                                  const millrace::detail::request_gate::turn& turn, const error& why) {
  gate.refused(turn, ex.now(), s.jitter());
  if (s.retries().patience.count() <= 0) return;
  const std::string line =
      "millrace: the store asks for fewer requests to " + counted_prefix(op) + " (" + std::to_string(why.status()) +
      (why.code().empty() ? "" : " " + why.code()) + "): they are fewer and longer for a while, and each waits up to " +
      std::to_string(std::chrono::duration_cast<std::chrono::seconds>(s.retries().patience).count()) + " s";
  if (millrace::detail::first_time(line)) millrace::detail::log_line(ex, line);
}

/// The payload line of the signature: the hash of the body, unless TLS carries it and a checksum of its own, which the
/// store compares, is among the signed fields. An upload takes 0.8 CPU seconds a GB that way, 1.2 with the hash; AWS's
/// SDKs leave it out, too.
MILLRACE_INLINE std::string payload_line(signer& sign, const operation& op, std::string_view scheme) {
  if (op.body.empty()) return std::string(empty_payload_sha256);
  if (scheme == "https" && op.fields.find("x-amz-checksum-crc32c") != nullptr) return std::string(unsigned_payload);
  return sign.payload_sha256(op.body.view());
}

/// True for the endpoint of a program on this machine.
MILLRACE_INLINE bool is_on_this_machine(std::string_view host) noexcept {
  host = host.substr(0, host.front() == '[' ? host.find(']') + 1 : host.find(':'));
  return host == "localhost" || host == "[::1]" || (is_ipv4(host) && host.substr(0, 4) == "127.");
}

/// The fields of a customer-provided key, for all requests about the content of an object.
MILLRACE_INLINE void add_encryption_key(http::headers& fields, const session& s, const operation& op,
                                        const endpoint& to) {
  const customer_key& key = s.base().encryption_key;
  if (!key || op.key.empty() || op.method == "DELETE") return;
  if (is_directory_bucket(op.bucket)) {
    throw configuration_error("directory buckets take no customer-provided keys (SSE-C)", op.at());
  }
  if (to.scheme() != "https" && !is_on_this_machine(to.host())) {
    throw configuration_error("a customer-provided key (SSE-C) is sent over TLS only, and the endpoint http://" +
                                  to.host() + " has none",
                              op.at());
  }
  fields.add("x-amz-server-side-encryption-customer-algorithm", "AES256");
  fields.add("x-amz-server-side-encryption-customer-key", std::string(key.base64()));
  fields.add("x-amz-server-side-encryption-customer-key-MD5", std::string(key.md5()));
}

MILLRACE_INLINE http::request signed_request(executor& ex, const session& s, const operation& op,
                                             const credentials& who) {
  const endpoint to(s.for_bucket(op.bucket), op.bucket);
  const std::string path = to.path(op.key);
  std::string url(to.scheme());
  url += "://";
  url += to.host();
  url += path;
  if (!op.query.empty()) {
    url += '?';
    url += op.query;
  }
  http::request r(op.method, std::move(url));
  r.object = op.at().object;
  r.range = op.range;
  r.body = op.body;
  r.new_connection = op.new_connection;
  r.elsewhere = op.elsewhere;
  r.fields = op.fields;
  if (op.range) r.fields.add("range", op.range->header_value());
  const bool directory = is_directory_bucket(op.bucket);  // there the requester never pays
  if (s.base().requester_pays && !directory) r.fields.add("x-amz-request-payer", "requester");
  add_encryption_key(r.fields, s, op, to);

  signer& sign = loop_signer::of(ex);
  std::vector<header_field> fields;
  fields.reserve(r.fields.size());
  for (const auto& [name, value] : r.fields) fields.push_back(header_field{name, value});
  const std::string payload = payload_line(sign, op, to.scheme());
  signing_request q;
  q.method = op.method;
  q.host = to.host();
  q.path = path;
  q.query = op.query;
  q.headers = fields;
  q.region = to.region();
  q.service = to.service();
  q.bucket_session = directory && op.query != "session";
  q.payload = payload;
  http::headers added;  // the views in `fields` are of r.fields
  for (const header_field& f : sign.sign(q, who, s.now())) added.add(std::string(f.name), std::string(f.value));
  for (const auto& [name, value] : added) r.fields.add(name, value);
  r.fields.add("host", to.host());
  return r;
}

/// True if the server's Date is so far from ours that this is why it refuses signatures: S3 allows 15 minutes.
MILLRACE_INLINE bool clock_differs(const session& s, const http::response_head& head) {
  const std::string* date = head.fields.find("date");
  if (date == nullptr) return false;
  const std::optional<std::int64_t> theirs = text::parse_http_date(*date, s.now());
  return theirs && (*theirs - s.now() > 4 * 60 || s.now() - *theirs > 4 * 60);
}

/// True if a field of S3's is in it, x-amz-request-id say, or moto's x-amzn-requestid; other servers on the way have
/// none (a firewall of AWS's sends x-amzn-waf-action).
MILLRACE_INLINE bool is_from_s3(const http::response_head& head) noexcept {
  for (const auto& [name, value] : head.fields) {
    if (text::starts_ignoring_case(name, "x-amz-")) return true;
  }
  return head.fields.find("x-amzn-requestid") != nullptr;
}

/// True if a success is an answer to `op`, as far as its head tells. A document or the ETag of a stored object is
/// judged by its reader; an object, or the head of one, may be of any bytes, so its head has to be a store's.
MILLRACE_INLINE bool is_answer(const operation& op, const http::response_head& head) noexcept {
  if (head.status == 204) return op.method == "DELETE";
  if (head.status != 200 && head.status != 206) return false;
  const bool of_object = op.method == "HEAD" || (op.method == "GET" && !op.key.empty());
  return !of_object || head.fields.find("etag") != nullptr || is_from_s3(head);
}

/// The code that S3 would have sent with a body.
MILLRACE_INLINE const char* code_of_head(int status, bool of_bucket) noexcept {
  switch (status) {
    case 403:
      return "AccessDenied";
    case 404:
      return of_bucket ? "NoSuchBucket" : "NoSuchKey";
    case 412:
      return "PreconditionFailed";
    case 416:
      return "InvalidRange";
    case 503:
      return "SlowDown";
    default:
      return "";
  }
}

/// The message for an answer without an error document of S3: a HEAD's, a proxy's page.
MILLRACE_INLINE std::string words_without_document(const http::exchange& x, int status, std::string_view body) {
  const http::request& asked = x.asked();
  const std::string words = http::first_words(body, asked);
  const std::string proxy = x.proxy();
  const std::string through = proxy.empty() ? "" : ", through the proxy " + proxy;
  std::string not_s3 = "the answer is not S3's (" + http::displayed_server(asked.url) + through + ")";
  if (status / 100 == 2) {
    return not_s3 + ": status " + std::to_string(status) + ", no field of S3's" + (words.empty() ? "" : ": ") + words;
  }
  if (!words.empty()) return not_s3 + ": " + words;
  if (!proxy.empty()) return not_s3;
  switch (status) {
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 407:
      return "Proxy Authentication Required";
    case 412:
      return "Precondition Failed";
    case 416:
      return "Range Not Satisfiable";
    default:
      return "the store refused the request";
  }
}

MILLRACE_COROUTINE_BODY task<error> refusal(const session& s, const operation& op, http::exchange& x,
                                            const http::response_head& head) {
  std::string text;
  try {
    while (text.size() <= 64 * KiB) {
      const bytes piece = co_await x.read();
      if (piece.empty()) break;
      text += piece.view();
    }
  } catch (const http::error&) {  // the part received is enough
  }
  error_document document = error_document::parse(text).value_or(error_document());
  if (op.method == "HEAD" && is_from_s3(head)) document.code = code_of_head(head.status, op.key.empty());
  if (document.code.empty()) document.message = words_without_document(x, head.status, text);
  if (op.method == "HEAD" && document.message.empty()) document.message = "the answer to a HEAD has no text";
  if (document.request_id.empty()) {
    if (const std::string* id = head.fields.find("x-amz-request-id")) document.request_id = *id;
  }
  if (const std::string* region = head.fields.find("x-amz-bucket-region")) document.region = *region;
  if (!document.region.empty() && is_host_labels(document.region) &&
      (classify(head.status, document.code) == retry_class::region || head.status == 400)) {
    const bool learnt = s.learn_region(op.bucket, document.region);
    if (learnt && document.code.empty()) document.code = "AuthorizationHeaderMalformed";  // as for a GET
  }
  if (head.status == 403 && op.method == "HEAD" && clock_differs(s, head)) document.code = "RequestTimeTooSkewed";
  if (classify(head.status, document.code) == retry_class::skew) {
    if (const std::string* date = head.fields.find("date")) {
      if (const std::optional<std::int64_t> now = text::parse_http_date(*date, s.now())) s.learn_time(*now);
    }
  }
  co_return error(head.status, document.code, document.message, document.request_id, op.at(),
                  retry_hint(head.fields, s.now()));
}

MILLRACE_INLINE bool add_condition(executor& ex, const session& s, operation& op, std::string_view etag) {
  std::string condition = millrace::detail::if_match_value(etag);
  if (condition.empty()) return false;
  const http::unconditional_hosts& known = http::unconditional_hosts::of(ex);
  if (!known.empty() && known.has(endpoint(s.for_bucket(op.bucket), op.bucket).host())) return false;
  op.fields.add("if-match", std::move(condition));
  return true;
}

MILLRACE_INLINE void forgo_conditions(executor& ex, const session& s, const std::string& bucket) {
  http::unconditional_hosts::of(ex).add(ex, endpoint(s.for_bucket(bucket), bucket).host());
}

MILLRACE_COROUTINE_BODY task<void> learn_own_region(const session& s) {
  task<std::string> asking = s.provider().region();
  if (asking) s.learn_own_region(co_await std::move(asking));
}

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_COROUTINE_BODY task<http::exchange> send(const session& s, const operation& op, http::body_options body,
                                                  millrace::detail::request_gate::turn* when) {
  executor& ex = co_await this_executor();
  const std::shared_ptr<millrace::detail::request_gate> gate = detail::gate_of(ex, s, op);
  const millrace::detail::request_gate::turn turn = co_await gate->enter();
  if (when != nullptr) *when = turn;
  credentials_provider& provider = detail::credentials_for(s, op);
  const credentials who = co_await provider.get();
  if (s.lacks_region(op.bucket)) co_await detail::learn_own_region(s);
  http::request r = detail::signed_request(ex, s, op, who);
  http::exchange x(http::engine::of(ex), std::move(r), s.transport(), std::move(body));
  const http::response_head& head = co_await x.head();
  if (!detail::is_answer(op, head)) {
    error refused = co_await detail::refusal(s, op, x, head);
    const retry_class what = classify(refused.status(), refused.code());
    if (head.status == 503 && what == retry_class::transient) x.blame("status 503");
    if (what == retry_class::throttling) detail::note_refusal(ex, s, op, *gate, turn, refused);
    if (what == retry_class::expired) provider.refused(who);
    // The answer to a HEAD cannot say that the token has expired; that to a GET would.
    const bool unsaid = op.method == "HEAD" && refused.status() == 400 && refused.code().empty();
    if (unsaid && !who.session_token().empty() && provider.refused(who)) {
      throw error(400, "ExpiredToken", "the store refused the request without saying why", refused.request_id(),
                  op.at());
    }
    throw refused;
  }
  gate->succeeded(ex.now());
  if (op.range && head.status != 206 && head.length != std::uint64_t(0)) {  // an empty object has no range
    if (head.fields.find("etag") == nullptr) {  // S3 may have failed after it began to answer
      const error refused = co_await detail::refusal(s, op, x, head);
      if (!refused.code().empty()) throw refused;
    }
    throw http::error(http::failure::protocol, "the store ignored the range of the request", op.at(), head.status);
  }
  co_return std::move(x);
}

}  // namespace millrace::s3
