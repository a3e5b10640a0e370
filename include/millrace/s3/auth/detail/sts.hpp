// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/memory/writable_bytes.hpp>
#include <millrace/s3/auth/detail/profile_chain.hpp>
#include <millrace/s3/auth/detail/small_request.hpp>
#include <millrace/s3/config/detail/choices.hpp>
#include <millrace/s3/config/detail/service_endpoint.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/sign/credentials.hpp>
#include <millrace/s3/sign/signer.hpp>
#include <millrace/s3/wire/detail/xml_reader.hpp>
#include <millrace/s3/wire/error_document.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/percent.hpp>

namespace millrace::s3::detail {

/// Collects the credentials of an answer of STS.
class sts_answer final : public xml_handler {
 public:
  sts_answer() = default;
  sts_answer(const sts_answer&) = delete;
  sts_answer& operator=(const sts_answer&) = delete;
  ~sts_answer() {
    for (std::string* s : {&secret, &token}) OPENSSL_cleanse(s->data(), s->size());
  }
  void leaf(std::string_view path, const std::string& text) override {
    const std::size_t at = path.find("Result/Credentials/");
    if (at == std::string_view::npos) return;
    path.remove_prefix(at + 19);
    if (path == "AccessKeyId") key = text;
    if (path == "SecretAccessKey") secret = text;
    if (path == "SessionToken") token = text;
    if (path == "Expiration") expiration = text;
  }

  std::string key;
  std::string secret;
  std::string token;
  std::string expiration;
};

inline credentials credentials_of_sts(std::string_view body, const std::string& url) {
  const where at{url, std::nullopt, std::string()};
  sts_answer answer;
  xml_limits limits;
  limits.document = 64 * KiB;
  xml_reader reader(answer, limits);
  const std::string wrong = reader.read(body);
  if (!wrong.empty()) throw error(200, std::string(), wrong, std::string(), at);
  const std::optional<std::int64_t> end = text::parse_iso8601(answer.expiration);
  if (answer.key.empty() || answer.secret.empty() || answer.token.empty() || !end) {
    throw error(200, std::string(), "the answer of STS lacks a part of the credentials", std::string(), at);
  }
  return credentials(answer.key, answer.secret, answer.token, end);
}

inline error refusal_of_sts(const http::response& answer, const std::string& url) {
  error_document document = error_document::parse(answer.body).value_or(error_document());
  // Some refusals repeat what was signed, with the session token in it.
  document.message.resize(std::min(document.message.size(), document.message.find("\n")));
  document.message.resize(std::min(document.message.size(), document.message.find("The Canonical String")));
  if (document.code.empty() && document.message.empty()) document.message = "STS refused the request";
  return error(answer.head.status, document.code, document.message, document.request_id,
               where{url, std::nullopt, std::string()});
}

/// The form that STS is sent; in the order of its documentation.
inline std::string sts_form(std::string_view action, const role_request& role, std::int64_t now) {
  std::string form;
  text::append_query_parameter(form, "Action", action);
  text::append_query_parameter(form, "Version", "2011-06-15");
  text::append_query_parameter(form, "RoleArn", role.arn);
  text::append_query_parameter(form, "RoleSessionName",
                         role.session_name.empty() ? "millrace-" + std::to_string(now) : role.session_name);
  if (role.duration_seconds != 0)
    text::append_query_parameter(form, "DurationSeconds", std::to_string(role.duration_seconds));
  if (!role.external_id.empty()) text::append_query_parameter(form, "ExternalId", role.external_id);
  return form;
}

inline http::request sts_request(const service_endpoint& to, std::string_view form) {
  http::request r("POST", to.url("/"));
  r.fields.add("content-type", "application/x-www-form-urlencoded");
  writable_bytes body = writable_bytes::allocate(form.size());
  std::memcpy(body.data(), form.data(), form.size());
  r.body = body.share(0, form.size());
  return r;
}

/// The region whose STS is asked. Without any, the one that is always there.
inline std::string sts_region(const settings& s) {
  std::string region = choose_region(s).value_or_empty();
  return region.empty() ? "us-east-1" : region;
}

/// AssumeRole, signed with `base`. Throws s3::error when STS refuses, http::error when the way fails.
template <class World>
task<credentials> assume_role(World& world, const settings& s, role_request role, credentials base) {
  const std::string region = sts_region(s);
  const service_endpoint to(s, "sts", "AWS_ENDPOINT_URL_STS", "sts", region);
  const std::string url = to.url("/");
  signing_options style;
  style.encode_path = true;
  style.normalize_path = true;
  style.send_content_sha256 = false;
  signer sign(style);
  const std::string path = to.prefix + "/";
  std::int64_t skew = 0;
  const auto make = [&] {
    const std::int64_t now = world.now() + skew;
    const std::string form = sts_form("AssumeRole", role, now);
    http::request r = sts_request(to, form);
    const std::string hash = sign.payload_sha256(form);
    const header_field type{"content-type", "application/x-www-form-urlencoded"};
    signing_request q;
    q.method = "POST";
    q.host = to.authority;
    q.path = path;
    q.headers = {&type, 1};
    q.region = region;
    q.service = "sts";
    q.payload = hash;
    for (const header_field& f : sign.sign(q, base, now)) r.fields.add(std::string(f.name), std::string(f.value));
    return r;
  };
  // A refusal by a clock that is far from ours may be because of that: signed again with theirs, once.
  const auto again = [&](const http::response& answer) {
    if (is_overload(answer)) return true;
    const std::string* date = answer.head.fields.find("date");
    if (answer.head.status < 400 || date == nullptr || skew != 0) return false;
    const std::optional<std::int64_t> theirs = text::parse_http_date(*date, world.now());
    const std::int64_t off = theirs ? *theirs - world.now() : 0;
    if (off > -240 && off < 240) return false;
    skew = off;
    return true;
  };
  const request_limits limits;
  http::response answer = co_await send_until(world, make, limits, again);
  const wiped_text wiped(answer.body);
  if (answer.head.status != 200) throw refusal_of_sts(answer, url);
  co_return credentials_of_sts(answer.body, url);
}

/// AssumeRoleWithWebIdentity: unsigned; the token file is read now, since whoever keeps it replaces it. STS is asked
/// again while it cannot reach the identity provider, and while it does not know a token that is new.
template <class World>
task<credentials> assume_web_identity(World& world, const settings& s, role_request role) {
  const where at{role.token_file, std::nullopt, std::string()};
  const service_endpoint to(s, "sts", "AWS_ENDPOINT_URL_STS", "sts", sts_region(s));
  const std::string url = to.url("/");
  std::string form = sts_form("AssumeRoleWithWebIdentity", role, world.now());
  {
    const file_text token = world.read_file(role.token_file);
    if (token.error != 0) throw configuration_error("failed to read the web identity token: " + token.reason(), at);
    std::string_view text = token.text;
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
    if (text.empty()) throw configuration_error("the web identity token is empty", at);
    form.reserve(form.size() + 3 * text.size() + 32);
    text::append_query_parameter(form, "WebIdentityToken", text);
  }
  const wiped_text wiped_form(form);
  const auto make = [&] { return sts_request(to, form); };
  const auto again = [](const http::response& answer) {
    if (is_overload(answer)) return true;
    if (answer.head.status < 400) return false;
    const std::optional<error_document> document = error_document::parse(answer.body);
    return document && (document->code == "IDPCommunicationError" || document->code == "InvalidIdentityToken");
  };
  const request_limits limits;
  http::response answer = co_await send_until(world, make, limits, again);
  const wiped_text wiped(answer.body);
  if (answer.head.status != 200) throw refusal_of_sts(answer, url);
  co_return credentials_of_sts(answer.body, url);
}

}  // namespace millrace::s3::detail
