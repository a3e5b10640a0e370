// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/config/profile_file.hpp>

namespace millrace::s3 {

MILLRACE_INLINE void profile_file::merge(profile& into, detail::raw_section& section) {
  for (detail::raw_property& p : section.properties) {
    if (!p.first.empty()) into.set(p.first, p.second);
  }
}

}  // namespace millrace::s3

namespace millrace::s3::detail {

/// The name behind a word and a blank: `foo` of `profile foo`. Nothing when the title does not start with the word.
MILLRACE_INLINE std::optional<std::string_view> name_behind(std::string_view title, std::string_view word) noexcept {
  if (title.substr(0, word.size()) != word || title.size() <= word.size() || !is_blank(title[word.size()])) {
    return std::nullopt;
  }
  return trim_blanks(title.substr(word.size()));
}

MILLRACE_INLINE void wipe(std::vector<raw_section>& sections) noexcept {
  for (raw_section& section : sections) {
    for (raw_property& p : section.properties) OPENSSL_cleanse(p.second.data(), p.second.size());
  }
}

}  // namespace millrace::s3::detail

namespace millrace::s3 {

MILLRACE_INLINE profile_file profile_file::parse(std::string_view config, std::string_view credentials,
                                                 std::string_view config_name, std::string_view credentials_name) {
  profile_file out;
  std::vector<detail::raw_section> sections = detail::profile_parser(config_name).parse(config);
  out.add_config(sections);
  detail::wipe(sections);
  sections = detail::profile_parser(credentials_name).parse(credentials);
  out.add_credentials(sections);
  detail::wipe(sections);
  return out;
}

MILLRACE_INLINE void profile_file::add_config(std::vector<detail::raw_section>& sections) {
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
    if (name && detail::is_profile_name(*name)) merge((*where_to)[std::string(*name)], section);
  }
}

MILLRACE_INLINE void profile_file::add_credentials(std::vector<detail::raw_section>& sections) {
  for (detail::raw_section& section : sections) {
    if (detail::is_profile_name(section.title)) merge(profiles_[section.title], section);
  }
}

MILLRACE_INLINE profile_location profile_location::from_environment(const environment& variables) {
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
