// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/s3/auth/detail/sts.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/json_leaves.hpp>
#include <millrace/text/percent.hpp>

namespace millrace::s3::detail {

inline std::string sha1_hex(std::string_view text) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), hash, &size, EVP_sha1(), nullptr) != 1) {
    throw configuration_error("OpenSSL cannot compute SHA-1, which names the files of SSO tokens");
  }
  static constexpr char hex[] = "0123456789abcdef";
  std::string out;
  for (unsigned i = 0; i < size; ++i) {
    out += hex[hash[i] >> 4];
    out += hex[hash[i] & 15];
  }
  return out;
}

/// The credentials of a role of IAM Identity Center, by the token that `aws sso login` has left in
/// ~/.aws/sso/cache. Nobody is asked to log in: without a good token this throws and says what to run.
template <class World>
task<credentials> sso_credentials(World& world, const settings& s, sso_request what) {
  const std::string remedy =
      ": run `aws sso login" + (s.profile_name() == "default" ? std::string() : " --profile " + s.profile_name()) + "`";
  const std::optional<std::string> home = s.variable("HOME");
  if (!home) throw configuration_error("SSO needs HOME to find the token" + remedy);
  const std::string path =
      *home + "/.aws/sso/cache/" + sha1_hex(what.session.empty() ? what.start_url : what.session) + ".json";
  const where at{path, std::nullopt, std::string()};
  const service_endpoint to(s, "portal.sso", "AWS_ENDPOINT_URL_SSO", "sso", what.region);
  std::string query;
  text::append_query_parameter(query, "account_id", what.account);
  text::append_query_parameter(query, "role_name", what.role);
  http::request wanted(to.url("/federation/credentials?" + query));
  {
    const file_text file = world.read_file(path);
    if (file.error != 0) throw configuration_error("failed to read the SSO token: " + file.reason() + remedy, at);
    const std::optional<text::json_leaves> token = text::json_leaves::parse(file.text);
    const std::optional<std::string_view> text = token ? token->find("accessToken") : std::nullopt;
    const std::optional<std::int64_t> end =
        token ? text::parse_iso8601(token->find("expiresAt").value_or(std::string_view())) : std::nullopt;
    if (!text || text->empty() || !end) throw configuration_error("this is no SSO token" + remedy, at);
    if (*end <= world.now()) throw configuration_error("the SSO token has expired" + remedy, at);
    wanted.fields.add("x-amz-sso_bearer_token", std::string(*text));
  }
  const auto make = [&] { return wanted; };
  const request_limits limits;
  http::response answer = co_await send_until(world, make, limits, is_overload);
  const wiped_text wiped(answer.body);
  const where portal{http::displayed(wanted.url), std::nullopt, std::string()};
  if (answer.head.status == 401) throw configuration_error("the SSO token is not accepted" + remedy, portal);
  if (answer.head.status != 200) {
    const std::optional<text::json_leaves> body = text::json_leaves::parse(answer.body);
    const std::string why(body ? body->find("message").value_or(std::string_view()) : std::string_view());
    throw error(answer.head.status, std::string(), why.empty() ? "SSO gave no credentials" : why, std::string(),
                portal);
  }
  const std::optional<text::json_leaves> body = text::json_leaves::parse(answer.body);
  const auto part = [&](const char* name) {
    return body ? body->find(std::string("roleCredentials/") + name).value_or(std::string_view()) : std::string_view();
  };
  const std::optional<std::int64_t> end = body ? body->find_number("roleCredentials/expiration") : std::nullopt;
  if (part("accessKeyId").empty() || part("secretAccessKey").empty() || part("sessionToken").empty() || !end) {
    throw error(200, std::string(), "the answer of SSO lacks a part of the credentials", std::string(), portal);
  }
  co_return credentials(part("accessKeyId"), part("secretAccessKey"), part("sessionToken"), *end / 1000);
}

}  // namespace millrace::s3::detail
