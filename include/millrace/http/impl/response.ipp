// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/http/response.hpp>

namespace millrace::http {

MILLRACE_COROUTINE_BODY task<std::string> read_all(exchange& x, std::size_t limit) {
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

MILLRACE_COROUTINE_BODY task<response> send(request r, std::shared_ptr<const transport_options> transport,
                                            std::size_t limit) {
  executor& ex = co_await this_executor();
  exchange x(engine::of(ex), std::move(r), std::move(transport));
  response answer;
  answer.head = co_await x.head();
  answer.body = co_await read_all(x, limit);
  co_return answer;
}

}  // namespace millrace::http
