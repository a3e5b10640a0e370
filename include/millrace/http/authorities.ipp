// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/http/authorities.hpp>
#include <millrace/http/proxy.hpp>

namespace millrace::inline MILLRACE_ABI::http {

MILLRACE_INLINE std::string expanded_path(const environment& variables, std::string path) {
  if (path != "~" && path.compare(0, 2, "~/") != 0) return path;
  if (const std::optional<std::string> home = variables.get("HOME")) path.replace(0, 1, *home);
  return path;
}

MILLRACE_INLINE authority_choice authority_choice::from_environment(const environment& variables) {
  authority_choice out;
  const auto take = [&](const char* name, std::string& path) {
    std::optional<std::string> value = variables.get(name);
    if (!value) return;
    path = expanded_path(variables, std::move(*value));
    if (out.source.empty()) out.source = name;
  };
  take("CURL_CA_BUNDLE", out.file);
  if (!out.empty()) return out;
  take("SSL_CERT_FILE", out.file);
  take("SSL_CERT_DIR", out.directory);
  if (out.empty()) take("REQUESTS_CA_BUNDLE", out.file);
  return out;
}

MILLRACE_INLINE void authority_choice::apply_to(transport_options& to) const {
  to.ca_file = file;
  to.ca_directory = directory;
  to.ca_source = source;
}

MILLRACE_INLINE transport_options transport_from_environment(const environment& variables, std::string_view scheme) {
  transport_options out;
  authority_choice::from_environment(variables).apply_to(out);
  proxy_choice::from_environment(variables, scheme).apply_to(out);
  return out;
}

}  // namespace millrace::http

namespace millrace::inline MILLRACE_ABI::http::detail {

/// Why a file cannot be read at all; empty if it can.
MILLRACE_INLINE std::string unreadable(const std::string& path, bool directory) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return std::strerror(errno);
  if (S_ISDIR(status.st_mode) != directory) return directory ? "it is no directory" : "it is a directory";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::strerror(errno);
  ::close(fd);
  return std::string();
}

MILLRACE_INLINE const char* missing_system_authorities() noexcept {
  const curl_version_info_data* const built = ::curl_version_info(CURLVERSION_NOW);
  if (built->age < CURLVERSION_SEVENTH || built->cainfo == nullptr) return nullptr;
  return ::access(built->cainfo, F_OK) == 0 ? nullptr : built->cainfo;
}

MILLRACE_INLINE std::string about_authorities(const transport_options& t, std::string_view reason, bool bad_file) {
  // OpenSSL's words; "self-signed" of a certificate or of one in its chain.
  const bool unknown = reason.find("issuer") != std::string_view::npos ||
                       reason.find("self-signed") != std::string_view::npos ||
                       reason.find("self signed") != std::string_view::npos ||
                       reason.find("unable to verify") != std::string_view::npos;
  if (!bad_file && !unknown) return std::string();
  const std::string source = t.ca_source.empty() ? "ca_file of the program" : t.ca_source;
  if (!t.ca_file.empty()) {
    std::string why = unreadable(t.ca_file, false);
    if (why.empty() && bad_file) why = "it holds no certificates in PEM";
    if (!why.empty()) return "; " + source + " names " + t.ca_file + ": " + why;
  }
  if (!t.ca_directory.empty()) {
    const std::string why = unreadable(t.ca_directory, true);
    const std::string by = t.ca_file.empty() ? source : "SSL_CERT_DIR";
    if (!why.empty()) return "; " + by + " names " + t.ca_directory + ": " + why;
  }
  if (!unknown) return std::string();
  std::string trusted = "the system's authorities are trusted";
  if (!t.ca_file.empty() || !t.ca_directory.empty()) {
    const std::string& path = t.ca_file.empty() ? t.ca_directory : t.ca_file;
    trusted = "the authorities of " + source + " (" + path + ") are trusted";
  }
  std::string others = "; AWS_CA_BUNDLE or SSL_CERT_FILE names a PEM file with others";
  if (const char* const missing = t.ca_file.empty() ? missing_system_authorities() : nullptr) {
    others += "; the system has none: " + std::string(missing) + " is not there (Debian: ca-certificates)";
  }
  return "; " + trusted + others;
}

}  // namespace millrace::http::detail
