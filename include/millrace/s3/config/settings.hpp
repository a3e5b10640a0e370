// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/environment.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/config/detail/read_small_file.hpp>
#include <millrace/s3/config/profile_file.hpp>

namespace millrace::s3 {

/// What the AWS SDKs are configured by, in one place: the variables and both files, read once.
///
/// A file that is not there counts as empty, and so does one in its default place that may not be read (a container
/// whose HOME is another user's). One that a variable names must be readable, and a file that cannot be parsed is an
/// error that names file and line: configured but broken is not the same as not configured.
class settings {
 public:
  /// `read_file(path)` gives a detail::file_text. `variables` must outlive the settings. Throws configuration_error.
  template <class ReadFile>
  settings(const environment& variables, ReadFile&& read_file)
      : variables_(variables), location_(profile_location::from_environment(variables)) {
    const detail::file_text config = text_of(location_.config_path, "AWS_CONFIG_FILE", read_file);
    const detail::file_text keys = text_of(location_.credentials_path, "AWS_SHARED_CREDENTIALS_FILE", read_file);
    files_ = profile_file::parse(config.text, keys.text, location_.config_path, location_.credentials_path);
    named_ = variables.get("AWS_PROFILE").has_value();
  }
  /// From the files of this machine.
  explicit settings(const environment& variables) : settings(variables, detail::read_small_file) {}

  std::optional<std::string> variable(const char* name) const { return variables_.get(name); }
  const environment& variables() const noexcept { return variables_; }
  const profile_file& files() const noexcept { return files_; }
  const profile_location& location() const noexcept { return location_; }

  /// AWS_PROFILE, or `default`.
  const std::string& profile_name() const noexcept { return location_.profile_name; }
  /// True when AWS_PROFILE names it: then it has to be there.
  bool profile_named() const noexcept { return named_; }
  /// Null when there is no such profile.
  const profile* selected() const noexcept { return files_.find(location_.profile_name); }

  /// A property of the selected profile, of its `s3 =` block, and of its services section (`services = x`, the block
  /// `service` of `[services x]`); blank values count as absent. A services section that is named but missing throws.
  std::optional<std::string_view> property(std::string_view name) const noexcept {
    const profile* p = selected();
    return p == nullptr ? std::nullopt : filled(p->find(name));
  }
  std::optional<std::string_view> property(std::string_view block, std::string_view name) const noexcept {
    const profile* p = selected();
    return p == nullptr ? std::nullopt : filled(p->find(block, name));
  }
  std::optional<std::string_view> service_property(std::string_view service, std::string_view name) const;

  /// Files that could not be read and were passed over, for explanations.
  const std::vector<std::string>& notes() const noexcept { return notes_; }

 private:
  static std::optional<std::string_view> filled(std::optional<std::string_view> value) noexcept {
    if (value && value->find_first_not_of(" \t\n") == std::string_view::npos) return std::nullopt;
    return value;
  }

  template <class ReadFile>
  detail::file_text text_of(const std::string& path, const char* variable, ReadFile& read_file) {
    if (path.empty()) return detail::file_text(ENOENT);
    detail::file_text out = read_file(path);
    if (out.error == 0) return out;
    if (!out.absent()) {
      if (out.error != EACCES || variables_.get(variable)) {
        throw configuration_error("cannot be read: " + out.reason(), where{path, std::nullopt, std::string()});
      }
      notes_.push_back(path + " may not be read");
    }
    return out;
  }

  environment variables_;
  profile_location location_;
  profile_file files_;
  bool named_ = false;
  std::vector<std::string> notes_;
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/impl/settings.ipp>
#endif
