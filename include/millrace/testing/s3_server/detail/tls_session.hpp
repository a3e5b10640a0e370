// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/io/stream_socket.hpp>
#include <millrace/testing/s3_server/detail/tls_context.hpp>

namespace millrace::s3_server::detail {

/// The server's side of TLS over a socket, through memory: OpenSSL never sees the descriptor. Socket and context must
/// outlive it.
class tls_session {
 public:
  tls_session(stream_socket& s, tls_context& context);

  /// As socket::read_some(); makes the handshake on the way. A clean end and a bare FIN are both 0.
  MILLRACE_COROUTINE task<std::size_t> read_some(std::span<char> memory);

  /// As socket::write_all().
  MILLRACE_COROUTINE task<void> write_all(std::span<const std::string_view> pieces);

 private:
  MILLRACE_COROUTINE task<void> flush();

  stream_socket& socket_;
  tls_handle<SSL> ssl_;
  BIO* in_ = nullptr;  // both belong to ssl_
  BIO* out_ = nullptr;
  std::vector<char> memory_;
};

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/tls_session.ipp>
#endif
