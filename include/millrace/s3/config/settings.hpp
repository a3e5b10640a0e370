// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/environment.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/config/profile_file.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

/// The configuration of the AWS SDKs: the variables and both files, read once.
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
  /// Read from the files of this machine.
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

  /// Files that could not be read and were skipped, for explanations.
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

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// A copy of the variables that credentials may come from: a refresh hours later must neither depend on a table that
/// has gone nor call getenv(3) beside threads. Overwritten on destruction.
class environment_copy {
 public:
  explicit environment_copy(const environment& from);
  environment_copy(const environment_copy&) = delete;
  environment_copy& operator=(const environment_copy&) = delete;
  ~environment_copy() {
    for (auto& [name, value] : values_) OPENSSL_cleanse(value.data(), value.size());
  }

  /// Good as long as this object; to be read from any thread.
  environment view() const noexcept { return environment(environment::getter::to<&environment_copy::look_up>(*this)); }

 private:
  const char* look_up(const char* name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : found->second.c_str();
  }

  std::map<std::string, std::string, std::less<>> values_;
};

/// One setting, and all sources that could have set it, in their order: the first that does wins. `settings` is
/// s3::settings.
class choice {
 public:
  class place {
   public:
    place(std::string n, bool s) : name(std::move(n)), set(s) {}
    std::string name;
    bool set;
  };

  explicit choice(const settings& s) : settings_(&s) {}

  choice& variable(const char* name) {
    offer(name, settings_->variable(name));
    return *this;
  }
  choice& property(std::string_view name) {
    offer(std::string(name) + in_profile(), owned(settings_->property(name)));
    return *this;
  }
  choice& property(std::string_view block, std::string_view name) {
    offer(std::string(block) + "." + std::string(name) + in_profile(), owned(settings_->property(block, name)));
    return *this;
  }
  choice& service(std::string_view section, std::string_view name);

  const std::optional<std::string>& value() const noexcept { return value_; }
  std::string value_or_empty() const { return value_.value_or(std::string()); }
  /// The source that set it; empty if it was not set.
  const std::string& source() const noexcept { return source_; }
  const std::vector<place>& places() const noexcept { return places_; }

  [[noreturn]] void refuse(const char* expected) const {
    throw configuration_error(source_ + " is \"" + value_or_empty() + "\": expected " + expected);
  }
  bool flag(bool otherwise) const;
  /// True if checksums are used wherever the store supports them (also if nothing is configured), not only if it
  /// demands them. "Data Integrity Protections for Amazon S3" of the AWS SDKs and Tools Reference Guide.
  bool when_supported() const;

 private:
  static std::optional<std::string> owned(std::optional<std::string_view> text) {
    if (!text) return std::nullopt;
    return std::string(*text);
  }
  std::string in_profile() const { return " of profile " + settings_->profile_name(); }
  void offer(std::string name, std::optional<std::string> value);

  const settings* settings_;
  std::optional<std::string> value_;
  std::string source_;
  std::vector<place> places_;
};

inline choice choose_region(const settings& s) {
  return choice(s).variable("AWS_REGION").variable("AWS_DEFAULT_REGION").property("region");
}
bool ignores_endpoints(const settings& s);
/// `service` as in AWS_ENDPOINT_URL_<variable> and in a services section.
choice choose_endpoint(const settings& s, const char* variable, std::string_view service);
choice choose_dual_stack(const settings& s);
inline choice choose_fips(const settings& s) {
  return choice(s).variable("AWS_USE_FIPS_ENDPOINT").property("use_fips_endpoint");
}
inline choice choose_use_arn_region(const settings& s) {
  return choice(s).variable("AWS_S3_USE_ARN_REGION").property("s3_use_arn_region").property("s3", "use_arn_region");
}
choice choose_us_east_1(const settings& s);
inline choice choose_addressing(const settings& s) { return choice(s).property("s3", "addressing_style"); }
inline choice choose_ca_bundle(const settings& s) { return choice(s).variable("AWS_CA_BUNDLE").property("ca_bundle"); }
inline choice choose_attempts(const settings& s) {
  return choice(s).variable("AWS_MAX_ATTEMPTS").property("max_attempts");
}
inline choice choose_retry_mode(const settings& s) {
  return choice(s).variable("AWS_RETRY_MODE").property("retry_mode");
}
inline choice choose_checksum_validation(const settings& s) {
  return choice(s).variable("AWS_RESPONSE_CHECKSUM_VALIDATION").property("response_checksum_validation");
}
inline choice choose_checksum_calculation(const settings& s) {
  return choice(s).variable("AWS_REQUEST_CHECKSUM_CALCULATION").property("request_checksum_calculation");
}

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/settings.ipp>
#endif
