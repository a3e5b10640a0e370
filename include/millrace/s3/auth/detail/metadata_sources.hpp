// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <millrace/coro/detail/log.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/s3/auth/detail/credential_requests.hpp>
#include <millrace/s3/config/endpoint.hpp>
#include <millrace/s3/config/profile_file.hpp>
#include <millrace/s3/config/settings.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// The URL of this container's credentials agent (ECS tasks, EKS Pod Identity and similar); nullopt if neither variable
/// is set. AWS_CONTAINER_CREDENTIALS_RELATIVE_URI wins over ..._FULL_URI, which must be https or lead to this machine
/// or one of the agents' addresses: its answer is a secret, and a token may go there.
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

/// The Authorization that the agent expects; empty if none. The file (EKS) wins and is read now: it is replaced from
/// time to time.
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

/// This machine has no instance metadata, or no role there: the end of the search rather than a failure.
class no_instance_metadata : public millrace::error {
 public:
  using error::error;
};

/// The service answers, and does not have the item.
class no_such_metadata : public no_instance_metadata {
 public:
  using no_instance_metadata::no_instance_metadata;
};

/// How the instance metadata service is reached.
class instance_place {
 public:
  explicit instance_place(const settings& s) {
    disabled = text::equal_ignoring_case(s.variable("AWS_EC2_METADATA_DISABLED").value_or(std::string()), "true");
    const auto find = [&s](const char* variable, const char* property) {
      std::optional<std::string> value = s.variable(variable);
      if (!value) {
        if (const std::optional<std::string_view> text = s.property(property)) value = std::string(*text);
      }
      return value;
    };
    const auto mode = find("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "ec2_metadata_service_endpoint_mode");
    std::string url = "http://169.254.169.254";
    if (mode) {
      const bool six = text::equal_ignoring_case(*mode, "IPv6");
      if (!six && !text::equal_ignoring_case(*mode, "IPv4")) {
        throw configuration_error("`" + *mode +
                                  "` is not a valid endpoint mode of the instance metadata: IPv4 or IPv6");
      }
      if (six) url = "http://[fd00:ec2::254]";
    }
    if (const auto given = find("AWS_EC2_METADATA_SERVICE_ENDPOINT", "ec2_metadata_service_endpoint")) url = *given;
    const endpoint_url parts = endpoint_url::parse(url);
    root = std::string(parts.scheme()) + "://" + parts.host() + parts.port() + parts.prefix();

    limits.direct = true;
    limits.connect = duration(1'000'000'000);
    limits.total = duration(2'000'000'000);
    if (const auto text = find("AWS_METADATA_SERVICE_TIMEOUT", "metadata_service_timeout")) {
      limits.connect = number(*text, "AWS_METADATA_SERVICE_TIMEOUT") * duration(1'000'000'000);
      limits.total = 2 * limits.connect;
    }
    if (const auto text = find("AWS_METADATA_SERVICE_NUM_ATTEMPTS", "metadata_service_num_attempts")) {
      limits.attempts = number(*text, "AWS_METADATA_SERVICE_NUM_ATTEMPTS");
    }
  }

  bool disabled = false;
  std::string root;  ///< scheme://host:port
  request_limits limits;

 private:
  static int number(const std::string& text, const char* name) {
    const std::optional<int> value = text::parse_decimal<int>(text, 1, 100);
    if (!value) throw configuration_error(std::string(name) + " is not a number from 1 to 100");
    return *value;
  }
};

/// A session with the metadata service of this instance, version 2 only: every request carries a token that is
/// requested first. Short time-outs: outside of EC2, and beyond a hop limit of 1, there is no answer.
template <class World>
class instance_session {
 public:
  instance_session(World& world, instance_place place) : world_(world), place_(std::move(place)) {}
  ~instance_session() { OPENSSL_cleanse(token_.data(), token_.size()); }
  instance_session(const instance_session&) = delete;
  instance_session& operator=(const instance_session&) = delete;

  /// The answer's text; `usable` says whether it is valid: if not, the request is repeated, as for a 5xx. A token that
  /// has expired is replaced once. 404 throws no_such_metadata with `missing`.
  template <class Usable>
  task<std::string> get(std::string path, const char* missing, Usable usable) {
    const std::string url = place_.root + path;
    for (bool renewed = false;; renewed = true) {
      if (token_.empty()) {
        task<void> fetching = fetch_token();
        co_await std::move(fetching);
      }
      const auto make = [&] {
        http::request r(url);
        r.fields.add("x-aws-ec2-metadata-token", token_);
        return r;
      };
      const auto again = [&](const http::response& answer) {
        return is_overload(answer) || (answer.head.status == 200 && !usable(answer.body));
      };
      http::response answer = co_await send_until(world_, make, place_.limits, again);
      const wiped_text wiped(answer.body);
      if (answer.head.status == 401 && !renewed) {
        token_.clear();
        continue;
      }
      const where at{url, std::nullopt, std::string()};
      if (answer.head.status == 404) throw no_such_metadata(missing, at);
      if (answer.head.status != 200) {
        throw error(answer.head.status, std::string(), "the instance metadata service refused the request",
                    std::string(), at);
      }
      if (!usable(answer.body)) {
        throw error(200, std::string(), "the instance metadata service gave an answer that cannot be read",
                    std::string(), at);
      }
      co_return std::string(answer.body);
    }
  }

 private:
  task<void> fetch_token() {
    const std::string url = place_.root + "/latest/api/token";
    const where at{url, std::nullopt, std::string()};
    const auto make = [&] {
      http::request r("PUT", url);
      r.fields.add("x-aws-ec2-metadata-token-ttl-seconds", "21600");
      return r;
    };
    http::response answer;
    try {
      answer = co_await send_until(world_, make, place_.limits, is_overload);
    } catch (const http::error& e) {
      throw no_instance_metadata("no instance metadata: " + e.reason(), at);
    }
    const wiped_text wiped(answer.body);
    switch (answer.head.status) {
      case 200:
        break;
      case 403:
        throw no_instance_metadata("request forbidden: IMDS is disabled", at);
      case 404:
      case 405:
        throw no_instance_metadata("no instance metadata of version 2 (version 1 is not asked)", at);
      default:
        throw error(answer.head.status, std::string(), "the instance metadata service gave no token", std::string(),
                    at);
    }
    for (char c : answer.body) {
      if (c <= ' ' || c >= 0x7f) throw error(200, std::string(), "this is no token of IMDS", std::string(), at);
    }
    if (answer.body.empty()) throw error(200, std::string(), "the token of IMDS is empty", std::string(), at);
    token_ = answer.body;
  }

  World& world_;
  const instance_place place_;
  std::string token_;
};

inline std::string_view first_line(std::string_view text) noexcept {
  return trim_blanks(text.substr(0, text.find_first_of("\r\n")));
}

/// The credentials of the role of this instance.
template <class World>
task<credentials> instance_credentials(World& world, instance_place place) {
  static constexpr const char* folder = "/latest/meta-data/iam/security-credentials/";
  const std::string root = place.root;
  instance_session<World> session(world, std::move(place));
  const auto is_name = [](std::string_view text) { return !first_line(text).empty(); };
  task<std::string> asking = session.get(folder, "no role is attached to this instance", is_name);
  const std::string names = co_await std::move(asking);
  const std::string path = folder + text::encode_path(first_line(names));
  const where at{root + path, std::nullopt, std::string()};
  const auto is_answer = [&](std::string_view text) {
    const std::optional<text::json_leaves> body = text::json_leaves::parse(text);
    return body && (body->find("Code").value_or("Success") != "Success" || body->find("AccessKeyId"));
  };
  asking = session.get(path, "the role of this instance has no credentials", is_answer);
  std::string text = co_await std::move(asking);
  const wiped_text wiped(text);
  const std::optional<text::json_leaves> body = text::json_leaves::parse(text);
  const std::string code(body->find("Code").value_or("Success"));
  if (code != "Success") {
    const std::string why(body->find("Message").value_or("the role of this instance cannot be used"));
    throw error(200, code, why, std::string(), at);
  }
  std::optional<credentials> who = json_credentials(*body, "Token", at);
  if (!who) throw error(200, std::string(), "the answer lacks a part of the credentials", std::string(), at);
  co_return std::move(*who);
}

/// The region of this instance.
template <class World>
task<std::string> instance_region(World& world, instance_place place) {
  instance_session<World> session(world, std::move(place));
  const auto is_region = [](std::string_view text) { return is_host_label(first_line(text)); };
  task<std::string> asking =
      session.get("/latest/meta-data/placement/region", "this instance does not know its region", is_region);
  const std::string text = co_await std::move(asking);
  co_return std::string(first_line(text));
}

/// See spot_notice().
template <class World>
task<std::string> watch_for_spot_notice(World& world, instance_place place, duration every) {
  static constexpr const char* path = "/latest/meta-data/spot/instance-action";
  if (place.disabled) throw configuration_error("no spot notices: AWS_EC2_METADATA_DISABLED is true");
  executor& ex = co_await this_executor();
  instance_session<World> session(world, std::move(place));
  const auto is_notice = [](std::string_view text) {
    const std::optional<text::json_leaves> body = text::json_leaves::parse(text);
    return body && body->find("action");
  };
  for (bool said = false;;) {
    std::string why;  // there is no answer
    try {
      task<std::string> asking = session.get(path, "no notice", is_notice);
      const std::string notice = co_await std::move(asking);
      const std::optional<text::json_leaves> body = text::json_leaves::parse(notice);
      co_return "spot notice: " + std::string(*body->find("action")) + " at " +
          std::string(body->find("time").value_or("a time that is not given"));
    } catch (const no_such_metadata&) {
      said = false;
    } catch (const millrace::error& e) {
      why = e.what();
    }
    if (!why.empty() && !std::exchange(said, true)) {
      millrace::detail::log_line(ex, "millrace: spot notices cannot be seen now: " + why);
    }
    co_await sleep_for(every);
  }
}

}  // namespace millrace::s3::detail
