// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/io/stream_socket.hpp>
#include <millrace/testing/s3_server/detail/tls_session.hpp>

namespace millrace::s3_server::detail {

/// A connection, plain or under TLS.
class stream {
 public:
  /// `context` null: plain. It must outlive the stream.
  stream(stream_socket s, tls_context* context) : socket_(std::move(s)) {
    if (context != nullptr) tls_ = std::make_unique<tls_session>(socket_, *context);
  }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  /// 0 at the end.
  MILLRACE_COROUTINE task<std::size_t> read_some(std::span<char> memory);
  MILLRACE_COROUTINE task<void> write_all(std::span<const std::string_view> pieces);
  /// Below TLS.
  stream_socket& raw() noexcept { return socket_; }

 private:
  stream_socket socket_;
  std::unique_ptr<tls_session> tls_;
};

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/stream.ipp>
#endif
