// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/environment.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/config/detail/profile_parser.hpp>
#include <millrace/s3/config/profile.hpp>

namespace millrace::s3 {

/// Where the AWS configuration files are and which profile is meant.
class profile_location {
 public:
  /// AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE, AWS_PROFILE, HOME. Paths may start with `~/`. A path is empty when
  /// there is no way to know it; a file that does not exist counts as an empty one.
  static profile_location from_environment(const environment& variables);

  std::string config_path;
  std::string credentials_path;
  std::string profile_name;
};

/// The AWS configuration file and the shared credentials file, read and merged.
///
/// Pure parsing: the caller reads the files. `[default]` and `[profile x]` come from the configuration file, `[x]` from
/// the credentials file, whose values win. `[profile default]` beats `[default]`; the last of repeated properties wins;
/// sections and properties with names that nothing could ask for are skipped.
class profile_file {
 public:
  using table = std::map<std::string, profile, std::less<>>;

  profile_file() = default;

  /// The texts of both files, empty for a file that does not exist; the names are for messages. Throws
  /// configuration_error that names file and line when one of them is broken, but never repeats what stands there.
  static profile_file parse(std::string_view config, std::string_view credentials,
                            std::string_view config_name = "~/.aws/config",
                            std::string_view credentials_name = "~/.aws/credentials");

  /// Null when there is none of that name; names are case-sensitive. Valid as long as this object.
  const profile* find(std::string_view name) const noexcept { return found(profiles_, name); }
  /// `[sso-session name]`.
  const profile* find_sso_session(std::string_view name) const noexcept { return found(sso_sessions_, name); }
  /// `[services name]`.
  const profile* find_services(std::string_view name) const noexcept { return found(services_, name); }

  const table& profiles() const noexcept { return profiles_; }
  const table& sso_sessions() const noexcept { return sso_sessions_; }

 private:
  static const profile* found(const table& among, std::string_view name) noexcept {
    const auto at = among.find(name);
    return at == among.end() ? nullptr : &at->second;
  }
  static void merge(profile& into, detail::raw_section& section);
  void add_config(std::vector<detail::raw_section>& sections);
  void add_credentials(std::vector<detail::raw_section>& sections);

  table profiles_;
  table sso_sessions_;
  table services_;
};

namespace detail {

/// Overwrites the values of a file that has been merged: they may be secrets.
void wipe(std::vector<raw_section>& sections) noexcept;

}  // namespace detail

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/impl/profile_file.ipp>
#endif
