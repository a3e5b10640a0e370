// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/stream.hpp>

namespace millrace::s3_server::detail {

MILLRACE_COROUTINE_BODY task<std::size_t> stream::read_some(std::span<char> memory) {
  if (tls_ != nullptr) co_return co_await tls_->read_some(memory);
  co_return co_await socket_.read_some(memory);
}

MILLRACE_COROUTINE_BODY task<void> stream::write_all(std::span<const std::string_view> pieces) {
  if (tls_ == nullptr) {
    co_await socket_.write_all(pieces);
  } else {
    co_await tls_->write_all(pieces);
  }
}

}  // namespace millrace::s3_server::detail
