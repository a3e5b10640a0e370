// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/config/detail/profile_parser.hpp>
#include <millrace/text/ascii.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE std::string_view trim_blanks(std::string_view text) noexcept {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

MILLRACE_INLINE bool is_profile_name(std::string_view text) noexcept {
  static constexpr std::string_view punctuation = "-/.%@_:+";
  for (char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && punctuation.find(c) == std::string_view::npos) return false;
  }
  return !text.empty();
}

MILLRACE_INLINE std::vector<raw_section> profile_parser::parse(std::string_view text) {
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);  // a byte order mark
  while (!text.empty()) {
    ++line_number_;
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (trim_blanks(line).empty() || line.front() == '#' || line.front() == ';') continue;
    if (is_blank(line.front())) {
      continuation(trim_blanks(line));
    } else if (line.front() == '[') {
      title(line);
    } else {
      property(line);
    }
  }
  return std::move(sections_);
}

MILLRACE_INLINE void profile_parser::refuse(const char* why) const {
  where at;
  at.object = file_;
  throw configuration_error("line " + std::to_string(line_number_) + ": " + why, at);
}

MILLRACE_INLINE void profile_parser::title(std::string_view line) {
  line = trim_blanks(line.substr(0, line.find_first_of("#;")));
  if (line.back() != ']') refuse("Profile definition must end with ']'");
  sections_.emplace_back(std::string(trim_blanks(line.substr(1, line.size() - 2))));
}

MILLRACE_INLINE void profile_parser::property(std::string_view line) {
  if (sections_.empty()) refuse("Expected a profile definition");
  line = without_comment(line);
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) refuse("Expected an '=' sign defining a property");
  const std::string_view name = trim_blanks(line.substr(0, equals));
  if (name.empty()) refuse("Property did not have a name");
  std::string lower;
  if (is_profile_name(name)) {
    for (char c : name) lower += text::to_lower(c);
  }
  const std::string_view value = trim_blanks(line.substr(equals + 1));
  has_sub_properties_ = value.empty();
  sections_.back().properties.emplace_back(std::move(lower), std::string(value));
}

MILLRACE_INLINE void profile_parser::continuation(std::string_view line) {
  if (sections_.empty()) refuse("Expected a profile definition");
  if (sections_.back().properties.empty()) refuse("Expected a property definition, found continuation");
  if (has_sub_properties_) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) refuse("Expected an '=' sign defining a sub-property");
    if (trim_blanks(line.substr(0, equals)).empty()) refuse("Sub-property did not have a name");
  }
  std::string& value = sections_.back().properties.back().second;
  value += '\n';
  value += line;
}

MILLRACE_INLINE std::string_view profile_parser::without_comment(std::string_view line) noexcept {
  for (std::size_t i = 1; i < line.size(); ++i) {
    if ((line[i] == '#' || line[i] == ';') && is_blank(line[i - 1])) return line.substr(0, i);
  }
  return line;
}

}  // namespace millrace::s3::detail
