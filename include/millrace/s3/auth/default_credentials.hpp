// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/http/message.hpp>
#include <millrace/http/options.hpp>
#include <millrace/io/process.hpp>
#include <millrace/s3/auth/detail/credential_requests.hpp>
#include <millrace/s3/auth/detail/metadata_sources.hpp>
#include <millrace/s3/auth/detail/profile_sources.hpp>
#include <millrace/s3/auth/refreshing_credentials.hpp>
#include <millrace/s3/config/profile_file.hpp>
#include <millrace/s3/config/settings.hpp>
#include <millrace/s3/sign/credentials.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// The environment of the sources of credentials: the files of this machine, HTTP on the awaiting loop, processes, the
/// clock. Tests replace it with recordings. Thread-safe.
class surroundings {
 public:
  /// `services` is how STS and SSO are reached: proxy and certificate authorities.
  explicit surroundings(http::transport_options services)
      : services_(std::move(services)),
        seed_(static_cast<std::uint64_t>(monotonic_ns()) ^ (static_cast<std::uint64_t>(::getpid()) << 40)) {}

  file_text read_file(const std::string& path) const { return read_small_file(path); }
  /// Returns 0 or an errno.
  int replace_file(const std::string& path, std::string_view text) const { return replace_secret_file(path, text); }
  int new_file_refused(const std::string& path) const { return detail::new_file_refused(path); }

  /// The body of `r`, which may be a secret, has no other owner: it is overwritten when it has been sent.
  MILLRACE_COROUTINE task<http::response> send(http::request r, request_limits limits) const;

  MILLRACE_COROUTINE task<millrace::process_result> run(std::string command, duration longest, std::size_t limit) const;

  /// Unix seconds.
  std::int64_t now() const noexcept { return static_cast<std::int64_t>(std::time(nullptr)); }
  /// Uniform in [0, 1), differently in every process.
  double random() const noexcept { return rng(seed_.fetch_add(1)).uniform(); }

 private:
  /// Like http::send(), but no part of the two bodies, which may be secrets, stays in freed memory.
  MILLRACE_COROUTINE static task<http::response> send_wiped(
      http::request r, std::shared_ptr<const http::transport_options> options, std::size_t limit);

  /// A limit on the whole time, against answers that drip.
  MILLRACE_COROUTINE static task<http::response> send_within(
      http::request r, std::shared_ptr<const http::transport_options> options, request_limits limits);

  const http::transport_options services_;
  mutable std::atomic<std::uint64_t> seed_;
};

/// Credentials and where they come from.
class sourced_credentials {
 public:
  sourced_credentials(credentials value, std::string from) : who(std::move(value)), source(std::move(from)) {}

  credentials who;
  std::string source;
  /// The credentials are the instance's: used after they expire while the metadata service gives no newer ones.
  bool of_instance = false;
  /// The credentials are the environment's: they do not change.
  bool constant = false;
};

/// The order in which the AWS SDKs look for credentials: environment, profile, web identity of the environment,
/// container (and then never the instance), instance metadata. A source that is not configured is skipped, one that is
/// configured and broken is an error. Each resolve() reads the files again.
///
/// `World` reads files, sends requests, runs processes and has the time: surroundings, or a recording in a test.
template <class World>
class default_chain {
 public:

  default_chain(std::shared_ptr<World> world, const environment& variables)
      : world_(std::move(world)), variables_(variables) {}

  World& world() const noexcept { return *world_; }
  std::int64_t now() const noexcept { return world_->now(); }
  double random() const noexcept { return world_->random(); }

  settings read_settings() const {
    return settings(variables_.view(), [this](const std::string& path) { return world_->read_file(path); });
  }

  /// Throws configuration_error that says why each source was skipped if none has any, and the exception of the source
  /// if one is broken. Must outlive the task.
  task<sourced_credentials> resolve() {
    std::string skipped;
    if (std::optional<credentials> who = credentials_from_environment(variables_.view())) {
      sourced_credentials out(std::move(*who), "the environment");
      out.constant = true;
      co_return std::move(out);
    }
    skipped += "environment: AWS_ACCESS_KEY_ID is not set";
    const settings s = read_settings();
    {
      task<std::optional<sourced_credentials>> asking = from_profile(s);
      std::optional<sourced_credentials> found = co_await std::move(asking);
      if (found) co_return std::move(*found);
      skipped += "; profile: " + why_no_profile(s);
    }
    if (const std::optional<std::string> file = s.variable("AWS_WEB_IDENTITY_TOKEN_FILE")) {
      task<credentials> asking = assume_web_identity(*world_, s, web_identity_of(s, *file));
      credentials who = co_await std::move(asking);
      co_return sourced_credentials(std::move(who), "the web identity " + *file);
    }
    skipped += "; web identity: AWS_WEB_IDENTITY_TOKEN_FILE is not set";
    if (const std::optional<std::string> url = container_url(s)) {
      task<credentials> asking = container_credentials(*world_, s, *url);
      credentials who = co_await std::move(asking);
      co_return sourced_credentials(std::move(who), "the container");
    }
    skipped +=
        "; container: neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor AWS_CONTAINER_CREDENTIALS_FULL_URI is set";
    instance_place place(s);
    if (place.disabled) {
      skipped += "; instance metadata: AWS_EC2_METADATA_DISABLED is true";
    } else {
      try {
        task<credentials> asking = instance_credentials(*world_, std::move(place));
        credentials who = co_await std::move(asking);
        sourced_credentials out(std::move(who), "instance metadata");
        out.of_instance = true;
        co_return std::move(out);
      } catch (const no_instance_metadata& e) {
        skipped += "; instance metadata: ";
        skipped += e.what();
      }
    }
    throw configuration_error("no AWS credentials (" + skipped + "); for requests without any, ask for anonymous ones");
  }

  /// The selected profile alone. Nothing when it says nothing of credentials.
  task<std::optional<sourced_credentials>> from_profile(const settings& s) {
    std::optional<profile_chain> chain =
        profile_chain::of(s.files(), s.profile_name(), s.location().config_path);
    if (!chain) {
      if (s.profile_named() && s.selected() == nullptr) {
        throw configuration_error("AWS_PROFILE is \"" + s.profile_name() + "\", but there is no such profile",
                                  where{s.location().config_path, std::nullopt, std::string()});
      }
      co_return std::nullopt;
    }
    task<credentials> asking = base_of(s, *chain);
    credentials who = co_await std::move(asking);
    for (const role_request& role : chain->roles) {
      asking = assume_role(*world_, s, role, who);
      who = co_await std::move(asking);
    }
    sourced_credentials out(std::move(who), chain->description());
    out.of_instance = chain->base == profile_base::instance && chain->roles.empty();
    co_return std::move(out);
  }

  /// The region that the instance is in. Throws configuration_error when there is none.
  task<std::string> region() {
    const settings s = read_settings();
    std::string why = "AWS_EC2_METADATA_DISABLED is true";
    instance_place place(s);
    if (!place.disabled) {
      try {
        task<std::string> asking = instance_region(*world_, std::move(place));
        co_return co_await std::move(asking);
      } catch (const no_instance_metadata& e) {
        why = e.what();
      }
    }
    throw configuration_error("no region: AWS_REGION and AWS_DEFAULT_REGION are not set, profile " + s.profile_name() +
                              " has none, and as to instance metadata: " + why);
  }

  static role_request web_identity_of(const settings& s, const std::string& token_file) {
    role_request role;
    role.token_file = token_file;
    role.arn = s.variable("AWS_ROLE_ARN").value_or(std::string());
    if (role.arn.empty()) {
      throw configuration_error("AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not");
    }
    role.session_name = s.variable("AWS_ROLE_SESSION_NAME").value_or(std::string());
    return role;
  }

  static std::string why_no_profile(const settings& s) {
    std::string why = s.selected() == nullptr ? "there is no profile " + s.profile_name()
                                              : "profile " + s.profile_name() + " says nothing of credentials";
    if (s.location().config_path.empty()) why += " (HOME is not set)";
    for (const std::string& note : s.notes()) why += " (" + note + ")";
    return why;
  }

 private:
  task<credentials> base_of(const settings& s, const profile_chain& chain) {
    task<credentials> asking;
    switch (chain.base) {
      case profile_base::keys:
        co_return chain.keys;
      case profile_base::environment: {
        std::optional<credentials> who = credentials_from_environment(s.variables());
        if (!who) {
          throw configuration_error("profile " + chain.base_profile +
                                    " takes its credentials from the environment, but AWS_ACCESS_KEY_ID is not set");
        }
        co_return std::move(*who);
      }
      case profile_base::instance: {
        instance_place place(s);
        if (place.disabled) {
          throw configuration_error("profile " + chain.base_profile +
                                    " takes its credentials from instance metadata, but AWS_EC2_METADATA_DISABLED is "
                                    "true");
        }
        asking = instance_credentials(*world_, std::move(place));
        break;
      }
      case profile_base::container: {
        const std::optional<std::string> url = container_url(s);
        if (!url) {
          throw configuration_error("profile " + chain.base_profile +
                                    " takes its credentials from the container, but no "
                                    "AWS_CONTAINER_CREDENTIALS_... variable is set");
        }
        asking = container_credentials(*world_, s, *url);
        break;
      }
      case profile_base::web_identity:
        asking = assume_web_identity(*world_, s, chain.web_identity);
        break;
      case profile_base::sso:
        asking = sso_credentials(*world_, s, chain.sso);
        break;
      case profile_base::process:
        asking = process_credentials(chain);
        break;
    }
    co_return co_await std::move(asking);
  }

  /// credential_process: a shell command that writes JSON of version 1 within a minute.
  task<credentials> process_credentials(const profile_chain& chain) {
    const where at{"credential_process of profile " + chain.base_profile, std::nullopt, std::string()};
    auto running = world_->run(chain.command, duration(60'000'000'000), 64 * KiB);
    const auto result = co_await std::move(running);
    if (result.too_long) throw configuration_error("it wrote more than 64 KiB", at);
    if (result.exit_status != 0) {
      throw configuration_error(result.exit_status < 0 ? std::string("it was ended by a signal")
                                                       : "it exited with status " + std::to_string(result.exit_status),
                                at);
    }
    const std::optional<text::json_leaves> body = text::json_leaves::parse(result.output);
    if (!body) throw configuration_error("invalid JSON in what it wrote", at);
    if (body->find_number("Version") != std::int64_t(1)) throw configuration_error("its Version is not 1", at);
    std::optional<credentials> who = json_credentials(*body, "SessionToken", at);
    if (!who) throw configuration_error("AccessKeyId or SecretAccessKey is missing in what it wrote", at);
    co_return std::move(*who);
  }

  const std::shared_ptr<World> world_;
  const environment_copy variables_;
};

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

/// Credentials from the sources that the AWS SDKs use, refreshed before they expire.
///
/// In this order: the environment; the selected profile (static keys, roles over source_profile or credential_source,
/// web identity, credential_process, the cached token of IAM Identity Center); the web identity of the environment (EKS
/// service accounts); the container's agent (ECS, EKS Pod Identity), and then never the instance; instance metadata,
/// version 2 only. A source that is not configured is skipped, one that is configured and broken is an error that says
/// where; if no source has any, the error lists why each was skipped. No message contains a secret.
///
/// The variables are copied now; files are read at every refresh, and no service is called before the first request.
/// `services` is how STS and SSO are reached (proxy, certificate authorities); instance and container are always asked
/// directly. A template so that programs that do not use it do not pay for it.
template <class Surroundings = detail::surroundings>
std::shared_ptr<credentials_provider> default_credentials(const environment& variables = process_environment(),
                                                 http::transport_options services = http::transport_options()) {
  using chain = detail::default_chain<Surroundings>;
  static_cast<void>(credentials_from_environment(variables));  // half a pair is an error now, not at the first request
  auto world = std::make_shared<Surroundings>(std::move(services));
  return std::make_shared<refreshing_credentials<chain>>(std::make_shared<chain>(std::move(world), variables));
}

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/auth/default_credentials.ipp>
#endif
