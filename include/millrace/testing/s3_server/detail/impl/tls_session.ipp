// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/tls_session.hpp>

namespace millrace::s3_server::detail {

MILLRACE_INLINE tls_session::tls_session(stream_socket& s, tls_context& context)
    : socket_(s), ssl_(SSL_new(context.get())), memory_(64 * 1024) {
  in_ = BIO_new(BIO_s_mem());
  out_ = BIO_new(BIO_s_mem());
  if (ssl_ == nullptr || in_ == nullptr || out_ == nullptr) throw std::bad_alloc();
  SSL_set_bio(ssl_.get(), in_, out_);
  SSL_set_accept_state(ssl_.get());
}

MILLRACE_COROUTINE_BODY task<std::size_t> tls_session::read_some(std::span<char> memory) {
  for (;;) {
    ERR_clear_error();
    const int n = SSL_read(ssl_.get(), memory.data(), static_cast<int>(std::min<std::size_t>(memory.size(), 1 << 30)));
    const int why = n > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl_.get(), n);
    co_await flush();
    if (n > 0) co_return static_cast<std::size_t>(n);
    if (why == SSL_ERROR_ZERO_RETURN) co_return 0;
    if (why != SSL_ERROR_WANT_READ) throw io_error(EPROTO, "the TLS session failed");
    const std::size_t got = co_await socket_.read_some(memory_);
    if (got == 0) co_return 0;
    BIO_write(in_, memory_.data(), static_cast<int>(got));
  }
}

MILLRACE_COROUTINE_BODY task<void> tls_session::write_all(std::span<const std::string_view> pieces) {
  constexpr std::size_t batch = 256 * 1024;
  for (std::string_view piece : pieces) {
    while (!piece.empty()) {
      const std::size_t n = std::min(piece.size(), batch);
      ERR_clear_error();
      if (SSL_write(ssl_.get(), piece.data(), static_cast<int>(n)) != static_cast<int>(n)) {
        throw io_error(EPROTO, "the TLS session failed");
      }
      piece.remove_prefix(n);
      co_await flush();
    }
  }
}

MILLRACE_COROUTINE_BODY task<void> tls_session::flush() {
  char* data = nullptr;
  const long size = BIO_get_mem_data(out_, &data);
  if (size <= 0) co_return;
  const std::string_view pending[] = {std::string_view(data, static_cast<std::size_t>(size))};
  co_await socket_.write_all(pending);
  BIO_reset(out_);
}

}  // namespace millrace::s3_server::detail
