// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <millrace/s3/auth/detail/json_credentials.hpp>
#include <millrace/s3/auth/detail/small_request.hpp>
#include <millrace/s3/config/detail/endpoint_url.hpp>
#include <millrace/s3/config/detail/host_name.hpp>
#include <millrace/s3/config/detail/profile_parser.hpp>
#include <millrace/s3/config/detail/service_endpoint.hpp>
#include <millrace/s3/config/settings.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/text/ascii.hpp>
#include <millrace/text/numbers.hpp>
#include <millrace/text/percent.hpp>

namespace millrace::s3::detail {

/// This machine has no instance metadata, or no role there: not a failure but the end of the search.
class no_instance_metadata : public millrace::error {
 public:
  using error::error;
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

/// A session with the metadata service of this instance, version 2 only: every question carries a token that was got
/// first. Short time-outs: outside of EC2, and behind a hop limit of 1, nobody answers.
template <class World>
class instance_session {
 public:
  instance_session(World& world, instance_place place) : world_(world), place_(std::move(place)) {}
  ~instance_session() { OPENSSL_cleanse(token_.data(), token_.size()); }
  instance_session(const instance_session&) = delete;
  instance_session& operator=(const instance_session&) = delete;

  /// The answer's text; `usable` says whether it can be meant: one that cannot is asked for again, like a 5xx. A token
  /// that has run out is replaced once. 404 throws no_instance_metadata with `missing`.
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
      if (answer.head.status == 404) throw no_instance_metadata(missing, at);
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

}  // namespace millrace::s3::detail
