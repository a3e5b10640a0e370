// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <millrace/base/environment.hpp>
#include <millrace/http/options.hpp>

namespace millrace::inline MILLRACE_ABI::http {

/// The certificate authorities that the environment sets for all programs, with the name of the variable.
class authority_choice {
 public:
  /// In curl's order: CURL_CA_BUNDLE; else SSL_CERT_FILE and SSL_CERT_DIR, both if both are set; else
  /// REQUESTS_CA_BUNDLE, which botocore knows. `~/` is HOME.
  static authority_choice from_environment(const environment& variables);

  void apply_to(transport_options& to) const;
  bool empty() const noexcept { return file.empty() && directory.empty(); }

  std::string file;       ///< a PEM file; empty: the system's
  std::string directory;  ///< of files that are named by hashes (`openssl rehash`), looked through beside the file
  std::string source;     ///< the variable of the file, or of the directory if there is no file
};

/// `path` with HOME for a `~` at its front.
std::string expanded_path(const environment& variables, std::string path);

/// Connections as the environment says: the proxy for URLs of `scheme` (proxy_choice) and the authorities. For an
/// http_storage; an s3::client has its own from_environment().
transport_options transport_from_environment(const environment& variables = process_environment(),
                                             std::string_view scheme = "https");

namespace detail {

/// The system's file of authorities, as libcurl was built to find it, if it is not there: a bare machine has none
/// (Debian: ca-certificates). Else null.
const char* missing_system_authorities() noexcept;

/// A note about the authorities of `t` for an error message when TLS has failed for `reason`: the variable whose file
/// is unusable, or the one to set. Empty if they have nothing to do with the failure. Reads the files.
std::string about_authorities(const transport_options& t, std::string_view reason, bool bad_file);

}  // namespace detail

}  // namespace millrace::http

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/authorities.ipp>
#endif
