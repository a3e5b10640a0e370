// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/s3/config/profile_file.hpp>
#include <millrace/s3/sign/credentials.hpp>
#include <millrace/text/numbers.hpp>

namespace millrace::s3::detail {

/// A role to be assumed, as it stands in a profile or in the environment.
class role_request {
 public:
  std::string arn;
  std::string session_name;  ///< empty: one of our own making
  std::string external_id;
  int duration_seconds = 0;  ///< 0: as the service likes
  std::string token_file;    ///< of a web identity
};

/// Where AWS IAM Identity Center (SSO) keeps what a profile asks for.
class sso_request {
 public:
  std::string session;  ///< empty in the old form, without [sso-session]
  std::string start_url;
  std::string region;
  std::string account;
  std::string role;
};

/// What the first credentials of a profile come from.
enum class profile_base { keys, environment, instance, container, web_identity, sso, process };

/// How a profile gives credentials: a base, and roles to be assumed one after the other. Pure: nothing is asked.
///
/// The rules are those of the AWS SDKs: a profile with role_arn takes its base from exactly one of source_profile and
/// credential_source; static keys in a profile that is somebody's source end the chain there; a profile may name itself
/// as source for its own keys; loops are errors.
class profile_chain {
 public:
  /// Nothing when there is no such profile or it says nothing about credentials; configuration_error when it does and
  /// cannot work. `file` is for messages.
  static std::optional<profile_chain> of(const profile_file& files, std::string_view name,
                                         std::string_view file) {
    profile_chain out;
    out.file_ = file;
    out.sessions_ = &files;
    if (!out.follow(files, std::string(name))) return std::nullopt;
    for (std::size_t a = 0, b = out.roles.size(); a + 1 < b; ++a) std::swap(out.roles[a], out.roles[--b]);
    out.sessions_ = nullptr;
    return out;
  }

  profile_base base = profile_base::keys;
  std::string base_profile;  ///< where the base stands
  credentials keys;
  role_request web_identity;
  sso_request sso;
  std::string command;
  std::vector<role_request> roles;  ///< in the order in which they are assumed

  /// `profile training: static keys, then role arn:...`, without secrets.
  std::string description() const {
    std::string text = "profile " + base_profile + ": ";
    switch (base) {
      case profile_base::keys:
        text += "static keys";
        break;
      case profile_base::environment:
        text += "the environment's keys";
        break;
      case profile_base::instance:
        text += "instance metadata";
        break;
      case profile_base::container:
        text += "the container's credentials";
        break;
      case profile_base::web_identity:
        text += "web identity " + web_identity.token_file + " for role " + web_identity.arn;
        break;
      case profile_base::sso:
        text += "SSO " + (sso.session.empty() ? sso.start_url : sso.session);
        break;
      case profile_base::process:
        text += "credential_process";  // its arguments may be secrets
        break;
    }
    for (const role_request& r : roles) text += ", then role " + r.arn;
    return text;
  }

 private:
  profile_chain() = default;

  [[noreturn]] void refuse(const std::string& why) const {
    throw configuration_error(why, where{file_, std::nullopt, std::string()});
  }

  static std::optional<std::string> text(const profile& p, std::string_view name) {
    const std::optional<std::string_view> value = p.find(name);
    if (!value || value->find_first_not_of(" \t\n") == std::string_view::npos) return std::nullopt;
    return std::string(*value);
  }

  bool follow(const profile_file& files, std::string name) {
    std::vector<std::string> visited;
    for (;;) {
      const profile* p = files.find(name);
      if (p == nullptr) {
        if (visited.empty()) return false;
        refuse("could not find source profile " + name + " referenced from " + visited.back());
      }
      bool again = false;
      for (const std::string& v : visited) again = again || v == name;
      if (again) {
        std::string round;
        for (const std::string& v : visited) round += v + " -> ";
        refuse("profile formed an infinite loop: " + round + name);
      }
      visited.push_back(name);
      base_profile = name;
      const bool is_source = visited.size() > 1;
      if (is_source && take_keys(*p, false)) return true;
      const std::optional<std::string> role = text(*p, "role_arn");
      if (!role || text(*p, "web_identity_token_file")) return take_base(*p, is_source);
      const std::optional<std::string> source = text(*p, "source_profile");
      const std::optional<std::string> named = text(*p, "credential_source");
      if (source && named) refuse("profile contained both source_profile and credential_source: " + name);
      if (!source && !named) {
        refuse("profile must contain `source_profile` or `credential_source` beside its role_arn: " + name);
      }
      roles.push_back(role_of(*p, *role));
      if (named) return take_named_source(*named);
      if (*source == name) return take_base(*p, true);
      name = *source;
    }
  }

  role_request role_of(const profile& p, const std::string& arn) const {
    role_request r;
    r.arn = arn;
    r.session_name = text(p, "role_session_name").value_or(std::string());
    r.external_id = text(p, "external_id").value_or(std::string());
    if (text(p, "mfa_serial")) {
      refuse("profile " + base_profile + " needs a code of an MFA device, which nobody can type here");
    }
    if (const std::optional<std::string> seconds = text(p, "duration_seconds")) {
      const std::optional<int> value = text::parse_decimal<int>(*seconds, 900, 43200);
      if (!value) refuse("duration_seconds of profile " + base_profile + " is not a number from 900 to 43200");
      r.duration_seconds = *value;
    }
    return r;
  }

  bool take_named_source(const std::string& source) {
    if (source == "Environment") {
      base = profile_base::environment;
    } else if (source == "Ec2InstanceMetadata") {
      base = profile_base::instance;
    } else if (source == "EcsContainer") {
      base = profile_base::container;
    } else {
      refuse("credential_source of profile " + base_profile + " is \"" + source +
             "\": expected Environment, Ec2InstanceMetadata or EcsContainer");
    }
    return true;
  }

  /// What stands in the profile itself. A source profile must have something.
  bool take_base(const profile& p, bool is_source) {
    if (take_web_identity(p) || take_sso_session(p) || take_old_sso(p)) return true;
    if (take_keys(p, true)) return true;
    if (std::optional<std::string> line = text(p, "credential_process")) {
      base = profile_base::process;
      command = std::move(*line);
      return true;
    }
    if (text(p, "login_session")) {
      refuse("profile " + base_profile + " has a login_session: what `aws login` leaves behind is not read here");
    }
    if (is_source) refuse("profile `" + base_profile + "` did not contain credential information");
    return false;
  }

  /// `strict`: half a pair is an error; without, only a whole pair counts.
  bool take_keys(const profile& p, bool strict) {
    const std::optional<std::string_view> key = p.find("aws_access_key_id");
    const std::optional<std::string_view> secret = p.find("aws_secret_access_key");
    if (!key && !secret) return false;
    if (!key || !secret) {
      if (!strict) return false;
      refuse(std::string("profile missing ") + (key ? "aws_secret_access_key" : "aws_access_key_id") + ": " +
             base_profile);
    }
    base = profile_base::keys;
    try {
      keys = credentials(*key, *secret, p.find("aws_session_token").value_or(std::string_view()));
    } catch (const configuration_error& e) {
      refuse("profile " + base_profile + ": " + e.reason());
    }
    return true;
  }

  bool take_web_identity(const profile& p) {
    const std::optional<std::string> token = text(p, "web_identity_token_file");
    if (!token) return false;
    const std::optional<std::string> role = text(p, "role_arn");
    if (!role) {
      refuse("profile " + base_profile + ": `web_identity_token_file` was specified but `role_arn` was missing");
    }
    base = profile_base::web_identity;
    web_identity = role_of(p, *role);
    web_identity.token_file = *token;
    return true;
  }

  bool take_sso_session(const profile& p) {
    const std::optional<std::string> session = text(p, "sso_session");
    if (!session) return false;
    for (const char* name : {"sso_region", "sso_start_url"}) {
      if (text(p, name)) {
        refuse("profile " + base_profile + ": `" + name +
               "` can only be specified in the [sso-session] config when a session name is given");
      }
    }
    const profile* s = sessions_->find_sso_session(*session);
    if (s == nullptr) {
      refuse("sso-session named `" + *session + "` (referenced by profile `" + base_profile + "`) was not found");
    }
    sso.session = *session;
    return take_sso(p, *s);
  }
  bool take_old_sso(const profile& p) {
    bool any = false;
    for (const char* name : {"sso_start_url", "sso_region", "sso_account_id", "sso_role_name"}) {
      any = any || text(p, name).has_value();
    }
    return any && take_sso(p, p);
  }
  bool take_sso(const profile& p, const profile& where_from) {
    base = profile_base::sso;
    const auto need = [&](const profile& from, const char* name) {
      std::optional<std::string> value = text(from, name);
      if (!value) refuse("SSO of profile " + base_profile + ": `" + name + "` is missing");
      return std::move(*value);
    };
    const bool account = text(p, "sso_account_id").has_value();
    const bool role = text(p, "sso_role_name").has_value();
    if (!account && role) {
      refuse("profile " + base_profile + ": if `sso_role_name` is set, then `sso_account_id` must also be set");
    }
    if (account && !role) {
      refuse("profile " + base_profile + ": if `sso_account_id` is set, then `sso_role_name` must also be set");
    }
    if (!account) {
      refuse("the selected profile will resolve an access token instead of credentials: profile " + base_profile +
             " has no `sso_account_id` and no `sso_role_name`");
    }
    sso.start_url = need(where_from, "sso_start_url");
    sso.region = need(where_from, "sso_region");
    sso.account = need(p, "sso_account_id");
    sso.role = need(p, "sso_role_name");
    return true;
  }

  std::string file_;
  const profile_file* sessions_ = nullptr;  // while it is followed
};

}  // namespace millrace::s3::detail
