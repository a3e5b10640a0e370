// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace millrace::s3_server {

/// How a server speaks TLS. The certificate is self-signed and made when the server starts; certificate_file() of the
/// server is what a client names as its file of authorities.
class tls_options {
 public:
  /// What happens instead of a handshake.
  enum class handshake : std::uint8_t {
    normal,
    reset,       ///< the connection is reset at the first byte
    close,       ///< it is closed at the first byte
    stall,       ///< nothing is answered
    plain_text,  ///< an HTTP answer comes instead of a ServerHello
  };

  tls_options() = default;

  bool enabled = false;
  std::string certificate_name;  ///< when not empty, the only DNS name of the certificate: a wrong one, for tests
  bool expired = false;          ///< the certificate's time has passed
  handshake greeting = handshake::normal;
  std::string certificate_file;  ///< where the PEM is written; empty: a temporary file, removed at the end
};

}  // namespace millrace::s3_server
