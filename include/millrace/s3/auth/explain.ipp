// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/base/error.hpp>
#include <millrace/http/authorities.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/proxy.hpp>
#include <millrace/s3/auth/detail/metadata_sources.hpp>
#include <millrace/s3/auth/detail/profile_sources.hpp>
#include <millrace/s3/auth/explain.hpp>
#include <millrace/s3/config/config.hpp>
#include <millrace/s3/config/settings.hpp>
#include <millrace/s3/sign/credentials.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

namespace detail {

/// Writes the text of explain().
class explanation {
 public:
  explanation(const environment& variables, const config_options& given, const settings& s)
      : variables_(variables), given_(given), settings_(s) {}

  std::string text() && {
    for (const std::string& note : settings_.notes()) out_ += "skipped: " + note + "\n";
    try {
      static_cast<void>(config::from_settings(settings_, given_));
    } catch (const millrace::error& e) {
      out_ += std::string("configuration: broken: ") + e.what() + "\n";
    }
    about_credentials();
    const auto ask = [this](const char* name, std::string_view explicit_value, auto choose,
                            const std::string& otherwise) {
      guarded(name, [&] { setting(name, explicit_value, choose(settings_), otherwise); });
    };
    const std::string attempts = given_.max_attempts ? std::to_string(*given_.max_attempts) : std::string();
    ask("region", given_.region, &choose_region, region_otherwise());
    ask(
        "endpoint", given_.endpoint, [](const settings& s) { return choose_endpoint(s, "AWS_ENDPOINT_URL_S3", "s3"); },
        ignored_endpoints() ? "AWS, as configured endpoints are to be ignored" : "AWS");
    ask("retry mode", "", &choose_retry_mode, "standard");
    ask("attempts", attempts, &choose_attempts, "3");
    ask("CA bundle", given_.ca_bundle, &choose_ca_bundle, authorities_otherwise());
    ask("checksums of uploads", "", &choose_checksum_calculation, "when_supported");
    ask("checksums of answers", name_of(given_.validate_checksums), &choose_checksum_validation, "when_supported");
    guarded("proxy", [this] { about_proxy(); });
    return std::move(out_);
  }

 private:
  static const char* name_of(std::optional<bool> checksums) noexcept {
    return !checksums ? "" : *checksums ? "when_supported" : "when_required";
  }

  template <class Write>
  void guarded(const char* name, Write write) {
    const std::size_t before = out_.size();
    try {
      write();
    } catch (const millrace::error& e) {
      out_.resize(before);
      out_ += std::string(name) + ": broken: " + e.what() + "\n";
    }
  }

  std::string region_otherwise() const {
    try {
      const bool custom =
          !given_.endpoint.empty() || choose_endpoint(settings_, "AWS_ENDPOINT_URL_S3", "s3").value().has_value();
      if (custom) return "us-east-1";
      if (instance_place(settings_).disabled) return "none";
    } catch (const configuration_error&) {
      // said elsewhere
    }
    return "asked of the instance's metadata with the first request";
  }
  std::string authorities_otherwise() const {
    const http::authority_choice found = http::authority_choice::from_environment(variables_);
    if (found.empty()) return "the system's";
    return (found.file.empty() ? found.directory : found.file) + " of " + found.source;
  }
  bool ignored_endpoints() const {
    try {
      return ignores_endpoints(settings_);
    } catch (const configuration_error&) {
      return false;
    }
  }

  void line(const std::string& name, const std::string& what) { out_ += "  " + name + ": " + what + "\n"; }

  void setting(const char* name, std::string_view explicit_value, const choice& c, const std::string& otherwise) {
    const bool given = !explicit_value.empty();
    const std::string value = given ? std::string(explicit_value) : c.value().value_or(otherwise);
    const std::string from = given ? "the program" : c.value() ? c.source() : "by default";
    out_ += std::string(name) + ": " + http::displayed(value) + " (" + from + ")\n";
    bool won = given;
    line("the program", given ? "used" : "not given");
    for (const choice::place& p : c.places()) {
      line(p.name, !p.set ? "not set" : won ? "set, but overruled" : "used");
      won = won || p.set;
    }
  }

  // ---- credentials

  /// The next source: `found` says that it has credentials, `what` describes it.
  void source(const char* name, bool found, const std::string& what) {
    if (!found) {
      line(name, what);
    } else if (!std::exchange(decided_, true)) {
      winner_ = std::string(name) + ": " + what;
      line(name, what + ": used");
    } else {
      line(name, what + ": not asked, as those above win");
    }
  }
  template <class Write>
  void source_or_fault(const char* name, Write write) {
    try {
      write();
    } catch (const millrace::error& e) {
      source(name, true, std::string("broken: ") + e.what());
    }
  }

  void about_credentials() {
    const std::string before = std::exchange(out_, std::string());
    if (given_.anonymous) source("the program", true, "anonymous requests");
    source_or_fault("environment", [this] {
      const bool found = credentials_from_environment(variables_).has_value();
      source("environment", found,
             found ? "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID is not set");
    });
    source_or_fault("profile", [this] { about_profile(); });
    source_or_fault("web identity", [this] {
      const std::optional<std::string> token = settings_.variable("AWS_WEB_IDENTITY_TOKEN_FILE");
      if (!token) return source("web identity", false, "AWS_WEB_IDENTITY_TOKEN_FILE is not set");
      const std::optional<std::string> role = settings_.variable("AWS_ROLE_ARN");
      if (!role) throw configuration_error("AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not");
      source("web identity", true, *token + " for role " + *role);
    });
    source_or_fault("container", [this] {
      const std::optional<std::string> url = container_url(settings_);
      source("container", url.has_value(), url ? http::displayed(*url) : "no AWS_CONTAINER_CREDENTIALS_..._URI is set");
    });
    source_or_fault("instance metadata", [this] {
      const instance_place place(settings_);
      source("instance metadata", !place.disabled,
             place.disabled ? "AWS_EC2_METADATA_DISABLED is true" : place.root + " (if there is an answer)");
    });
    out_ = before + "credentials: " + (decided_ ? winner_ : std::string("none")) + "\n" + out_;
  }

  void about_profile() {
    const std::string& name = settings_.profile_name();
    const auto chain = profile_chain::of(settings_.files(), name, settings_.location().config_path);
    if (chain) return source("profile", true, chain->description());
    if (settings_.selected() != nullptr) return source("profile", false, name + " says nothing of credentials");
    if (settings_.profile_named())
      throw configuration_error("AWS_PROFILE is \"" + name + "\", but there is no such profile");
    source("profile", false,
           settings_.location().config_path.empty()
               ? "HOME is not set"
               : "there is no " + name + " in " + settings_.location().config_path + " or " +
                     settings_.location().credentials_path);
  }

  // ---- proxy

  void about_proxy() {
    std::string endpoint(given_.endpoint);
    if (endpoint.empty()) endpoint = choose_endpoint(settings_, "AWS_ENDPOINT_URL_S3", "s3").value_or_empty();
    const char* scheme = text::starts_ignoring_case(endpoint, "http://") ? "http" : "https";
    const http::proxy_choice p = http::proxy_choice::from_environment(variables_, scheme);
    if (p.url.empty()) {
      out_ += "proxy: none (no variable names one for " + std::string(scheme) + ")\n";
      return;
    }
    out_ += "proxy: " + http::displayed_proxy(p.url) + " (" + p.source + ")\n";
    line("past it", (p.no_proxy.empty() ? std::string() : p.no_proxy + " (" + p.no_proxy_source + "), ") +
                        "this machine, the container's agent, instance metadata");
  }

  const environment& variables_;
  const config_options& given_;
  const settings& settings_;
  std::string out_;
  std::string winner_;
  bool decided_ = false;
};

}  // namespace detail

MILLRACE_INLINE std::string explain(const environment& variables, const config_options& given) {
  std::string broken;
  std::optional<settings> s;
  try {
    s.emplace(variables);
  } catch (const millrace::error& e) {
    broken = std::string("configuration files: broken: ") + e.what() + "\n";
    s.emplace(variables, [](const std::string&) { return detail::file_text(ENOENT); });
  }
  return broken + detail::explanation(variables, given, *s).text();
}

}  // namespace millrace::s3
