// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

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
template <class T>
task<std::string> read_all(basic_exchange<T>& x, std::size_t limit) {
  std::string text;
  for (;;) {
    const bytes piece = co_await x.read();
    if (piece.empty()) break;
    if (piece.size() > limit - text.size()) {
      throw error(failure::too_large, "the answer is longer than " + std::to_string(limit) + " bytes",
                  where{displayed(x.asked().url), std::nullopt, std::string()});
    }
    text.append(piece.data(), piece.size());
  }
  co_return text;
}

/// Sends `r` and reads the whole answer, whatever its status.
template <class T = void>
task<response> send(request r, std::shared_ptr<const transport_options> transport, std::size_t limit) {
  executor& ex = co_await this_executor();
  basic_exchange<T> x(basic_engine<T>::of(ex), std::move(r), std::move(transport));
  response answer;
  answer.head = co_await x.head();
  answer.body = co_await read_all(x, limit);
  co_return answer;
}

}  // namespace millrace::http
