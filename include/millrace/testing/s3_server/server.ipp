// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/testing/s3_server/detail/connection.hpp>
#include <millrace/testing/s3_server/server.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server {

MILLRACE_INLINE server::server(options o)
    : state_(std::make_unique<detail::shared_state>(std::move(o))),
      listener_(stream_socket::listen(state_->settings.address.c_str(), state_->settings.port)),
      port_(listener_.port()) {}

MILLRACE_COROUTINE_BODY task<void> server::serve() {
  executor& ex = co_await this_executor();
  connections connected;
  const spawned<void> accepting(ex, accept_all(ex, connected));
  co_await stopping_.wait();
}

MILLRACE_COROUTINE_BODY task<void> server::accept_all(executor& ex, connections& connected) {
  for (std::uint64_t number = 1;;) {
    bool exhausted = false;
    try {
      stream_socket peer = co_await listener_.accept();
      std::erase_if(connected, [](const spawned<void>& c) { return c.done(); });
      ++state_->counts.connections;
      connected.emplace_back(ex, serve_connection(std::move(peer), number++));
    } catch (const io_error&) {
      exhausted = true;  // of descriptors or memory: others have to end first
    }
    if (exhausted) co_await sleep_for(std::chrono::milliseconds(10));
  }
}

MILLRACE_COROUTINE_BODY task<void> server::serve_connection(stream_socket peer, std::uint64_t number) {
  detail::connection c(*state_, std::move(peer), number);
  co_await c.run();
}

}  // namespace millrace::s3_server
