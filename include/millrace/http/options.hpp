// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <millrace/base/clock.hpp>
#include <millrace/base/units.hpp>
#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI::http {

/// How connections are made, and when they fail. One immutable copy is shared by the exchanges of a client.
class transport_options {
 public:
  transport_options() = default;

  /// Name, TCP and TLS together; 1 ms at least. If a family has several addresses, each gets half of the remaining time
  /// (from libcurl 8.3.0 on, only as long as that is more than 600 ms), the last one all of it.
  duration connect_timeout = std::chrono::seconds(5);
  duration first_byte_timeout = std::chrono::seconds(30);  ///< from the request's last byte to the first of the answer
  /// Without progress while we are reading: fewer than 512 bytes for each second of it.
  duration stall_timeout = std::chrono::seconds(30);
  /// PEM bundle of the certificate authorities, of servers and of proxies; empty: the system's. Verification itself
  /// cannot be turned off.
  std::string ca_file;
  std::string ca_directory;  ///< beside it: authorities in files that are named by hashes (`openssl rehash`)
  std::string ca_source;     ///< the variable or property that set them, for messages
  /// Proxy URL; empty: none. The environment's proxy variables are read by from_environment() functions only.
  std::string proxy;
  /// Hosts that bypass the proxy, as libcurl's CURLOPT_NOPROXY takes them.
  std::string no_proxy;
};

/// Limits of one loop's engine; fixed when the engine is made. See runtime_options::http. Connections are held below
/// the limit on open files (RLIMIT_NOFILE) in any case.
struct engine_options {
  /// Open at once; more exchanges wait inside libcurl. Connections with slow readers do not count (after a second).
  long connections_per_host = 64;
  long connections = 256;  ///< open at once in all, counted in the same way, and kept for reuse
};

}  // namespace millrace::http
