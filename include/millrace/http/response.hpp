// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/http/exchange.hpp>

namespace millrace::http {

/// A whole answer in memory: for listings, errors and credentials, not for data.
class response {
 public:
  response_head head;
  std::string body;
};

/// Reads what is left of `x` into memory. More than `limit` bytes throws http::error (too_large): nothing that a server
/// sends may exhaust memory.
MILLRACE_COROUTINE task<std::string> read_all(exchange& x, std::size_t limit);

/// Sends `r` and reads the whole answer, whatever its status.
MILLRACE_COROUTINE task<response> send(request r, std::shared_ptr<const transport_options> transport,
                                       std::size_t limit);

}  // namespace millrace::http

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/impl/response.ipp>
#endif
