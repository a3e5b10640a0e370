// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <millrace/base/units.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/http/exchange.hpp>

namespace millrace::test {

/// "200 body" of a GET. Throws http::error.
inline task<std::string> fetch(std::string url, http::transport_options t = http::transport_options()) {
  auto transport = std::make_shared<const http::transport_options>(std::move(t));
  http::request r(std::move(url));
  http::response a = co_await http::send(std::move(r), std::move(transport), 1 * MiB);
  co_return std::to_string(a.head.status) + " " + a.body;
}

}  // namespace millrace::test
