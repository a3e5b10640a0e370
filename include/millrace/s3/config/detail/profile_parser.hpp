// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::s3::detail {

/// A property as it stands in a file: name and value. The name is lower case and empty when it is none that anything
/// reads.
using raw_property = std::pair<std::string, std::string>;

/// A section as it stands in a file: what is between the brackets, trimmed.
struct raw_section {
  explicit raw_section(std::string t) : title(std::move(t)) {}
  std::string title;
  std::vector<raw_property> properties;
};

inline bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

std::string_view trim_blanks(std::string_view text) noexcept;

/// Characters of the names of profiles and properties.
bool is_profile_name(std::string_view text) noexcept;

/// Reads one AWS configuration or credentials file into its sections, in the order and with the repetitions of the
/// file. Errors name the file and the line, never what stands there: it may be a secret.
class profile_parser {
 public:
  explicit profile_parser(std::string_view file) : file_(file) {}

  std::vector<raw_section> parse(std::string_view text);

 private:
  [[noreturn]] void refuse(const char* why) const;

  void title(std::string_view line);

  void property(std::string_view line);

  /// A line with a blank in front continues the value above; below an empty value it is a sub-property.
  void continuation(std::string_view line);

  /// In a value, only a comment sign behind a blank begins a comment.
  static std::string_view without_comment(std::string_view line) noexcept;

  std::string file_;
  std::size_t line_number_ = 0;
  std::vector<raw_section> sections_;
  bool has_sub_properties_ = false;
};

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/detail/impl/profile_parser.ipp>
#endif
