// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <cerrno>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/environment.hpp>
#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// The result of reading a file: its text, or the errno value. Overwritten on destruction: it may be a token.
class file_text {
 public:
  explicit file_text(int errno_value) : error(errno_value) {}
  explicit file_text(std::string contents) : text(std::move(contents)) {}
  file_text(file_text&&) noexcept = default;
  file_text& operator=(file_text&&) = delete;
  ~file_text() { OPENSSL_cleanse(text.data(), text.size()); }

  /// A file that does not exist, or may not be read.
  bool absent() const noexcept { return error == ENOENT || error == ENOTDIR; }
  std::string reason() const { return std::generic_category().message(error); }

  int error = 0;
  std::string text;
};

/// Reads a configuration or token file, at most 1 MiB (EFBIG beyond), at once: such files are small and local, and a
/// refresh reads one every hour or so. Only regular files: a pipe would block (EINVAL).
file_text read_small_file(const std::string& path);
/// Writes a file of mode 0600 in the place of `path`: readers see the old one or the new one. Returns 0 or an errno.
int replace_secret_file(const std::string& path, std::string_view text);
/// Returns 0, or the errno with which the folder of `path` refuses a new file.
int new_file_refused(const std::string& path);

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

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

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// A property in a file: name and value. The name is lower case, and empty if nothing reads a property of that name.
using raw_property = std::pair<std::string, std::string>;

/// A section of a file: the text between the brackets, trimmed.
struct raw_section {
  explicit raw_section(std::string t) : title(std::move(t)) {}
  std::string title;
  std::vector<raw_property> properties;
};

inline bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

std::string_view trim_blanks(std::string_view text) noexcept;

/// Characters of the names of profiles and properties.
bool is_profile_name(std::string_view text) noexcept;

/// The words of a title as a shell reads them, without their quotes and backslashes.
struct title_words {
  std::vector<std::string> text;
  std::vector<std::size_t> quoted;  ///< of each: 1 if by quotes or a backslash, all of it or a part; or 0
};

/// The words of a title, as botocore splits them (Python's shlex): blanks belong to a word between quotes, `profile "my
/// team"`. None if a quote is left open.
title_words words_of(std::string_view title);

/// The name after the word `kind`: `foo` of `profile foo`, `my team` of `profile "my team"`. nullopt for another kind,
/// and for an invalid name.
std::optional<std::string> name_after(std::string_view title, std::string_view kind);

/// Reads one AWS configuration or credentials file into its sections, in the order and with the repetitions of the
/// file. Errors name the file and the line, never its text: it may be a secret.
class profile_parser {
 public:
  explicit profile_parser(std::string_view file) : file_(file) {}

  std::vector<raw_section> parse(std::string_view text);

 private:
  [[noreturn]] void refuse(const char* why) const;

  void title(std::string_view line);

  /// The offset of the comment after a title: between quotes there is none.
  static std::size_t comment_in_title(std::string_view line) noexcept;

  void property(std::string_view line);

  /// A line with a blank in front continues the value above; below an empty value it is a sub-property.
  void continuation(std::string_view line);

  /// In a value, only a comment sign after a blank begins a comment.
  static std::string_view without_comment(std::string_view line) noexcept;

  std::string file_;
  std::size_t line_number_ = 0;
  std::vector<raw_section> sections_;
  bool has_sub_properties_ = false;
};

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

/// The paths of the AWS configuration files, and the name of the profile.
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
/// the credentials file, whose values win. Names with blanks are quoted in the first, `[profile "my team"]`, and stand
/// as they are in the second, `[my team]`, as botocore and `aws configure` have it. `[profile default]` beats
/// `[default]`; the last of repeated properties wins; sections and properties with names that nothing could ask for are
/// skipped.
class profile_file {
 public:
  using table = std::map<std::string, profile, std::less<>>;

  profile_file() = default;

  /// The texts of both files, empty for a file that does not exist; the names are for messages. Throws
  /// configuration_error that names file and line when one of them is broken, but never repeats its text.
  static profile_file parse(std::string_view config, std::string_view credentials,
                            std::string_view config_name = "~/.aws/config",
                            std::string_view credentials_name = "~/.aws/credentials");

  /// Null when there is none of that name; names are case-sensitive. Valid as long as this object.
  const profile* find(std::string_view name) const noexcept {
    const profile* named = found(profiles_, name);
    return named != nullptr ? named : found(spaced_, name);
  }
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
  table spaced_;  // of the credentials file alone, with blanks in their names
  table sso_sessions_;
  table services_;
};

namespace detail {

/// Overwrites the values of a file that has been merged: they may be secrets.
void wipe(std::vector<raw_section>& sections) noexcept;

}  // namespace detail

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/profile_file.ipp>
#endif
