// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/config/profile_file.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE int replace_secret_file(const std::string& path, std::string_view text) {
  std::string fresh = path + ".XXXXXX";
  const int fd = ::mkostemp(fresh.data(), O_CLOEXEC);  // mode 0600
  if (fd < 0) return errno;
  int failed = 0;
  while (!text.empty() && failed == 0) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) failed = errno;
    if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (failed == 0 && ::fsync(fd) != 0) failed = errno;
  if (::close(fd) != 0 && failed == 0) failed = errno;
  if (failed == 0 && ::rename(fresh.c_str(), path.c_str()) != 0) failed = errno;
  if (failed != 0) ::unlink(fresh.c_str());
  return failed;
}

MILLRACE_INLINE int new_file_refused(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/') + 1) + '.';
  return ::access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

MILLRACE_INLINE file_text read_small_file(const std::string& path) {
  static constexpr std::size_t longest = std::size_t(1) << 20;
  class descriptor {
   public:
    explicit descriptor(int fd) noexcept : fd_(fd) {}
    descriptor(const descriptor&) = delete;
    descriptor& operator=(const descriptor&) = delete;
    ~descriptor() {
      if (fd_ >= 0) ::close(fd_);
    }
    int get() const noexcept { return fd_; }

   private:
    int fd_;
  };
  const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return file_text(errno);
  struct stat status;
  if (::fstat(file.get(), &status) != 0) return file_text(errno);
  if (S_ISDIR(status.st_mode)) return file_text(EISDIR);
  if (!S_ISREG(status.st_mode)) return file_text(EINVAL);
  file_text out{std::string()};
  if (status.st_size > static_cast<off_t>(longest)) return file_text(EFBIG);
  out.text.resize(static_cast<std::size_t>(status.st_size) + 1);  // one more: whether it has grown meanwhile
  std::size_t filled = 0;
  for (;;) {
    if (filled == out.text.size()) {
      if (filled > longest) return file_text(EFBIG);
      out.text.resize(2 * filled);  // files of /proc say 0
    }
    const ssize_t n = ::read(file.get(), out.text.data() + filled, out.text.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_text(errno);
    if (n == 0) break;
    filled += static_cast<std::size_t>(n);
  }
  out.text.resize(filled);
  return out;
}

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE std::optional<std::string_view> profile::find(std::string_view name) const noexcept {
  const auto found = properties_.find(name);
  if (found == properties_.end()) return std::nullopt;
  return std::string_view(found->second);
}

MILLRACE_INLINE std::optional<std::string_view> profile::find(std::string_view property,
                                                              std::string_view name) const noexcept {
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

MILLRACE_INLINE std::string_view profile::trimmed(std::string_view text) noexcept {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace millrace::s3

namespace millrace::inline MILLRACE_ABI::s3::detail {

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

MILLRACE_INLINE title_words words_of(std::string_view title) {
  title_words words;
  bool inside = false;  // of a word
  char quote = 0;
  for (std::size_t i = 0; i < title.size(); ++i) {
    char c = title[i];
    if (quote == 0 && is_blank(c)) {
      inside = false;
      continue;
    }
    if (!std::exchange(inside, true)) {
      words.text.emplace_back();
      words.quoted.push_back(0);
    }
    if (c == quote || (quote == 0 && (c == '"' || c == '\''))) {
      quote = quote == 0 ? c : '\0';
      words.quoted.back() = 1;
      continue;
    }
    if (c == '\\' && quote != '\'') {
      if (i + 1 == title.size()) return {};
      const char next = title[i + 1];
      if (quote == 0 || next == '"' || next == '\\') {  // between double quotes these two alone
        c = next;
        ++i;
        words.quoted.back() = 1;
      }
    }
    words.text.back() += c;
  }
  if (quote != 0) return {};
  return words;
}

MILLRACE_INLINE std::optional<std::string> name_after(std::string_view title, std::string_view kind) {
  title_words words = words_of(title);
  if (words.text.size() != 2 || words.text[0] != kind) return std::nullopt;
  std::string& name = words.text[1];
  if (name.empty() || (words.quoted[1] == 0 && !is_profile_name(name))) return std::nullopt;
  return std::move(name);
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
  line = trim_blanks(line.substr(0, comment_in_title(line)));
  if (line.back() != ']') refuse("Profile definition must end with ']'");
  sections_.emplace_back(std::string(trim_blanks(line.substr(1, line.size() - 2))));
}

MILLRACE_INLINE std::size_t profile_parser::comment_in_title(std::string_view line) noexcept {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == 0 && (c == '#' || c == ';')) return i;
    if (c == '\\' && quote != '\'') {
      ++i;
    } else if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    }
  }
  return quote == 0 ? std::string_view::npos : line.find_first_of("#;");  // an apostrophe
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

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE void profile_file::merge(profile& into, detail::raw_section& section) {
  for (detail::raw_property& p : section.properties) {
    if (!p.first.empty()) into.set(p.first, p.second);
  }
}

}  // namespace millrace::s3

namespace millrace::inline MILLRACE_ABI::s3::detail {

MILLRACE_INLINE void wipe(std::vector<raw_section>& sections) noexcept {
  for (raw_section& section : sections) {
    for (raw_property& p : section.properties) OPENSSL_cleanse(p.second.data(), p.second.size());
  }
}

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

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
    if (detail::name_after(section.title, "profile") == "default") prefixed_default = true;
  }
  for (detail::raw_section& section : sections) {
    table* where_to = &profiles_;
    std::optional<std::string> name = detail::name_after(section.title, "profile");
    if (!name && section.title == "default" && !prefixed_default) name = section.title;
    if (!name) {
      where_to = &sso_sessions_;
      name = detail::name_after(section.title, "sso-session");
    }
    if (!name) {
      where_to = &services_;
      name = detail::name_after(section.title, "services");
    }
    if (name) merge((*where_to)[*name], section);
  }
}

MILLRACE_INLINE void profile_file::add_credentials(std::vector<detail::raw_section>& sections) {
  for (detail::raw_section& section : sections) {
    // A title of this file is a name as it stands, with its blanks (`aws configure` writes `[my team]`); in quotes, as
    // in the other file, it is understood too.
    const detail::title_words words = detail::words_of(section.title);
    const std::size_t count = words.text.size();
    if (count == 1 && words.quoted[0] != 0 && !words.text[0].empty()) merge(profiles_[words.text[0]], section);
    bool named = count > 0;
    for (std::size_t i = 0; i < count; ++i) {
      named = named && words.quoted[i] == 0 && detail::is_profile_name(words.text[i]);
    }
    if (!named) continue;
    const bool known = count == 1 || profiles_.find(section.title) != profiles_.end();
    merge((known ? profiles_ : spaced_)[section.title], section);
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
