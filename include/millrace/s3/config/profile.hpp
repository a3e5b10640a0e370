// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/s3/config/detail/name_table.hpp>

namespace millrace::s3 {

/// The properties of one section of the AWS configuration files, merged from both files.
///
/// Names are lower case. Values may be secrets: they are overwritten on destruction, and nothing here prints them.
///
/// A template, as all of this floor that few programs use: it is compiled where it is used.
template <class = void>
class basic_profile {
 public:
  using table = detail::name_table<std::string>;

  basic_profile() = default;
  basic_profile(basic_profile&&) noexcept = default;
  basic_profile& operator=(basic_profile&&) noexcept = default;
  basic_profile(const basic_profile&) = delete;
  basic_profile& operator=(const basic_profile&) = delete;
  ~basic_profile() {
    for (const auto& p : properties_.entries()) OPENSSL_cleanse(p->value.data(), p->value.size());
  }

  /// The value of a property (name in lower case); nothing when absent. A value of several lines has `\n` between
  /// them. Valid as long as the profile.
  std::optional<std::string_view> find(std::string_view name) const noexcept {
    const std::string* const found = properties_.find(name);
    if (found == nullptr) return std::nullopt;
    return std::string_view(*found);
  }

  /// A sub-property, `name` below `property` (`s3` and `addressing_style`); the last one wins.
  std::optional<std::string_view> find(std::string_view property, std::string_view name) const noexcept {
    std::optional<std::string_view> result;
    std::string_view rest = find(property).value_or(std::string_view());
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
      const std::size_t equals = line.find('=');
      if (equals != std::string_view::npos && trimmed(line.substr(0, equals)) == name) {
        result = trimmed(line.substr(equals + 1));
      }
    }
    return result;
  }

  void set(std::string_view name, std::string value) { properties_[name] = std::move(value); }
  bool empty() const noexcept { return properties_.empty(); }
  const table& properties() const noexcept { return properties_; }

 private:
  static std::string_view trimmed(std::string_view text) noexcept {
    const std::size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
  }

  table properties_;
};
using profile = basic_profile<>;

}  // namespace millrace::s3
