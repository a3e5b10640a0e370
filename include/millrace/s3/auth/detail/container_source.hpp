// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <millrace/s3/auth/detail/json_credentials.hpp>
#include <millrace/s3/auth/detail/small_request.hpp>
#include <millrace/s3/config/detail/endpoint_url.hpp>
#include <millrace/s3/config/detail/host_name.hpp>
#include <millrace/s3/config/settings.hpp>
#include <millrace/s3/error.hpp>

namespace millrace::s3::detail {

/// Where the agent of this container gives credentials (ECS tasks, EKS Pod Identity and others of that form); nothing
/// when neither variable is set. AWS_CONTAINER_CREDENTIALS_RELATIVE_URI wins over ..._FULL_URI, which must be https or
/// lead to this machine or one of the agents' addresses: its answer is a secret, and a token may go there.
inline std::optional<std::string> container_url(const settings& s) {
  static constexpr const char* relative = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
  static constexpr const char* full = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
  const auto printable = [](const std::string& text, const char* name) {
    for (char c : text) {
      if (c <= ' ' || c >= 0x7f) throw configuration_error(std::string(name) + " has a character that no URI has");
    }
  };
  if (const std::optional<std::string> path = s.variable(relative)) {
    printable(*path, relative);
    if (path->front() != '/') throw configuration_error(std::string(relative) + " does not start with /");
    return "http://169.254.170.2" + *path;
  }
  const std::optional<std::string> url = s.variable(full);
  if (!url) return std::nullopt;
  printable(*url, full);
  const std::size_t scheme = url->find("://");
  if (scheme == std::string::npos) throw configuration_error(std::string(full) + ": URI did not specify a host");
  const std::size_t path = url->find_first_of("/?#", scheme + 3);
  const endpoint_url parts = endpoint_url::parse(std::string_view(*url).substr(0, path));
  const std::string& host = parts.host();
  const bool allowed = parts.scheme() == "https" || host == "localhost" || host == "[::1]" || host == "169.254.170.2" ||
                       host == "169.254.170.23" || host == "[fd00:ec2::23]" ||
                       (is_ipv4(host) && host.substr(0, 4) == "127.");
  if (!allowed) {
    throw configuration_error(std::string(full) + " leads to " + host +
                              ": without https only this machine, 169.254.170.2, 169.254.170.23 and [fd00:ec2::23] "
                              "are asked for credentials");
  }
  return url;
}

/// What the agent wants to see in Authorization; empty when nothing. The file (EKS) wins and is read now: it is
/// replaced from time to time.
template <class World>
std::string container_token(World& world, const settings& s) {
  static constexpr const char* file_name = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
  static constexpr const char* name = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
  std::string token;
  const char* from = name;
  if (const std::optional<std::string> path = s.variable(file_name)) {
    from = file_name;
    const file_text file = world.read_file(*path);
    const where at{*path, std::nullopt, std::string()};
    if (file.error != 0) {
      throw configuration_error(std::string("failed to read what ") + file_name + " names: " + file.reason(), at);
    }
    if (file.text.empty()) throw configuration_error("the authorization token is empty", at);
    token = file.text;
  } else {
    token = s.variable(name).value_or(std::string());
  }
  if (token.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) {
    OPENSSL_cleanse(token.data(), token.size());
    throw configuration_error(std::string("the token of ") + from + " has a line end in it");
  }
  return token;
}

/// Asks the container's agent at `url`.
template <class World>
task<credentials> container_credentials(World& world, const settings& s, std::string url) {
  http::request wanted(url);
  wanted.fields.add("accept", "application/json");
  {
    std::string token = container_token(world, s);
    const wiped_text wiped(token);
    if (!token.empty()) wanted.fields.add("authorization", token);
  }
  const where at{http::displayed(url), std::nullopt, std::string()};
  const auto make = [&] { return wanted; };
  request_limits limits;
  limits.direct = true;
  http::response answer = co_await send_until(world, make, limits, is_overload);
  const wiped_text wiped(answer.body);
  const std::optional<text::json_leaves> body = text::json_leaves::parse(answer.body);
  if (answer.head.status != 200) {
    const auto part = [&](const char* name) {
      return std::string(body ? body->find(name).value_or(std::string_view()) : std::string_view());
    };
    throw error(answer.head.status, part("code"), part("message"), std::string(), at);
  }
  std::optional<credentials> who;
  if (body) who = json_credentials(*body, "Token", at);
  if (!who) throw error(200, std::string(), "the answer has no credentials in it", std::string(), at);
  co_return std::move(*who);
}

}  // namespace millrace::s3::detail
