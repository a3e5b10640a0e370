// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>


namespace millrace::s3 {

/// The properties of one section of the AWS configuration files, merged from both files.
///
/// Names are lower case. Values may be secrets: they are overwritten on destruction, and nothing here prints them.
class profile {
 public:
  using table = std::map<std::string, std::string, std::less<>>;

  profile() = default;
  profile(profile&&) noexcept = default;
  profile& operator=(profile&&) noexcept = default;
  profile(const profile&) = delete;
  profile& operator=(const profile&) = delete;
  ~profile() {
    for (auto& [name, value] : properties_) OPENSSL_cleanse(value.data(), value.size());
  }

  /// The value of a property (name in lower case); nothing when absent. A value of several lines has `\n` between
  /// them. Valid as long as the profile.
  std::optional<std::string_view> find(std::string_view name) const noexcept;

  /// A sub-property, `name` below `property` (`s3` and `addressing_style`); the last one wins.
  std::optional<std::string_view> find(std::string_view property, std::string_view name) const noexcept;

  void set(std::string name, std::string value) { properties_[std::move(name)] = std::move(value); }
  bool empty() const noexcept { return properties_.empty(); }
  const table& properties() const noexcept { return properties_; }

 private:
  static std::string_view trimmed(std::string_view text) noexcept;

  table properties_;
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/impl/profile.ipp>
#endif
