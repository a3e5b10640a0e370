// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <millrace/coro/task.hpp>
#include <millrace/io/stream_socket.hpp>
#include <millrace/testing/s3_server/detail/tls_session.hpp>

namespace millrace::s3_server::detail {

/// A connection, plain or under TLS.
template <class Unused = void>
class basic_stream {
 public:
  /// `context` null: plain. It must outlive the stream.
  basic_stream(stream_socket s, tls_context* context) : socket_(std::move(s)) {
    if (context != nullptr) tls_ = std::make_unique<tls_session>(socket_, *context);
  }
  basic_stream(const basic_stream&) = delete;
  basic_stream& operator=(const basic_stream&) = delete;

  /// 0 at the end.
  task<std::size_t> read_some(std::span<char> memory) {
    if (tls_ != nullptr) co_return co_await tls_->read_some(memory);
    co_return co_await socket_.read_some(memory);
  }
  task<void> write_all(std::span<const std::string_view> pieces) {
    if (tls_ == nullptr) {
      co_await socket_.write_all(pieces);
    } else {
      co_await tls_->write_all(pieces);
    }
  }
  /// Below TLS.
  stream_socket& raw() noexcept { return socket_; }

 private:
  stream_socket socket_;
  std::unique_ptr<tls_session> tls_;
};
using stream = basic_stream<>;

}  // namespace millrace::s3_server::detail
