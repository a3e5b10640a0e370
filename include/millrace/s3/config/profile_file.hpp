// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/environment.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/config/detail/name_table.hpp>
#include <millrace/s3/config/detail/profile_parser.hpp>
#include <millrace/s3/config/profile.hpp>

namespace millrace::s3 {

/// Where the AWS configuration files are and which profile is meant.
class profile_location {
 public:
  /// AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE, AWS_PROFILE, HOME. Paths may start with `~/`. A path is empty when
  /// there is no way to know it; a file that does not exist counts as an empty one.
  template <class = void>
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
template <class T = void>
class basic_profile_file {
 public:
  using table = detail::name_table<basic_profile<T>>;

  basic_profile_file() = default;

  /// The texts of both files, empty for a file that does not exist; the names are for messages. Throws
  /// configuration_error that names file and line when one of them is broken, but never repeats what stands there.
  static basic_profile_file parse(std::string_view config, std::string_view credentials,
                                  std::string_view config_name = "~/.aws/config",
                                  std::string_view credentials_name = "~/.aws/credentials");

  /// Null when there is none of that name; names are case-sensitive. Valid as long as this object.
  const basic_profile<T>* find(std::string_view name) const noexcept { return profiles_.find(name); }
  /// `[sso-session name]`.
  const basic_profile<T>* find_sso_session(std::string_view name) const noexcept { return sso_sessions_.find(name); }
  /// `[services name]`.
  const basic_profile<T>* find_services(std::string_view name) const noexcept { return services_.find(name); }

  const table& profiles() const noexcept { return profiles_; }
  const table& sso_sessions() const noexcept { return sso_sessions_; }

 private:
  static void merge(basic_profile<T>& into, detail::raw_section& section) {
    for (detail::raw_property& p : section.properties) {
      if (!p.first.empty()) into.set(p.first, p.second);
    }
  }
  void add_config(std::vector<detail::raw_section>& sections);
  void add_credentials(std::vector<detail::raw_section>& sections);

  table profiles_;
  table sso_sessions_;
  table services_;
};
using profile_file = basic_profile_file<>;

// ---------------------------------------------------------------------------------------------- implementation

namespace detail {

/// The name behind a word and a blank: `foo` of `profile foo`. Nothing when the title does not start with the word.
template <class = void>
std::optional<std::string_view> name_behind(std::string_view title, std::string_view word) noexcept {
  if (title.substr(0, word.size()) != word || title.size() <= word.size() || !is_blank(title[word.size()])) {
    return std::nullopt;
  }
  return trim_blanks(title.substr(word.size()));
}

/// Overwrites the values of a file that has been merged: they may be secrets.
template <class = void>
void wipe(std::vector<raw_section>& sections) noexcept {
  for (raw_section& section : sections) {
    for (raw_property& p : section.properties) OPENSSL_cleanse(p.second.data(), p.second.size());
  }
}

}  // namespace detail

template <class T>
basic_profile_file<T> basic_profile_file<T>::parse(std::string_view config, std::string_view credentials,
                                                   std::string_view config_name, std::string_view credentials_name) {
  basic_profile_file out;
  std::vector<detail::raw_section> sections = detail::profile_parser<T>(config_name).parse(config);
  out.add_config(sections);
  detail::wipe(sections);
  sections = detail::profile_parser<T>(credentials_name).parse(credentials);
  out.add_credentials(sections);
  detail::wipe(sections);
  return out;
}

template <class T>
void basic_profile_file<T>::add_config(std::vector<detail::raw_section>& sections) {
  bool prefixed_default = false;
  for (const detail::raw_section& section : sections) {
    if (detail::name_behind(section.title, "profile") == std::string_view("default")) prefixed_default = true;
  }
  for (detail::raw_section& section : sections) {
    table* where_to = &profiles_;
    std::optional<std::string_view> name = detail::name_behind(section.title, "profile");
    if (!name && section.title == "default" && !prefixed_default) name = section.title;
    if (!name) {
      where_to = &sso_sessions_;
      name = detail::name_behind(section.title, "sso-session");
    }
    if (!name) {
      where_to = &services_;
      name = detail::name_behind(section.title, "services");
    }
    if (name && detail::is_profile_name(*name)) merge((*where_to)[*name], section);
  }
}

template <class T>
void basic_profile_file<T>::add_credentials(std::vector<detail::raw_section>& sections) {
  for (detail::raw_section& section : sections) {
    if (detail::is_profile_name(section.title)) merge(profiles_[section.title], section);
  }
}

template <class>
profile_location profile_location::from_environment(const environment& variables) {
  const std::string home = variables.get("HOME").value_or(std::string());
  const auto path = [&](const char* variable, const char* name) {
    std::string given = variables.get(variable).value_or(std::string());
    if (given.empty()) return home.empty() ? std::string() : home + name;
    if (given.substr(0, 2) == "~/" && !home.empty()) given.replace(0, 1, home);
    return given;
  };
  profile_location out;
  out.config_path = path("AWS_CONFIG_FILE", "/.aws/config");
  out.credentials_path = path("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials");
  out.profile_name = variables.get("AWS_PROFILE").value_or(std::string("default"));
  return out;
}

}  // namespace millrace::s3
