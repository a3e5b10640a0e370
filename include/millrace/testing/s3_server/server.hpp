// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include <millrace/coro/spawned.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/io/stream_socket.hpp>
#include <millrace/sync/event.hpp>
#include <millrace/testing/s3_server/detail/connection.hpp>

namespace millrace::s3_server {

/// A small S3 server in memory, for tests, examples and benchmarks: lists, reads and writes objects with the checks of
/// the real service, stricter where a client could get away with a mistake, and misbehaves on request.
///
///     s3_server::server s;                       // listens at once, on a free loopback port
///     s.objects().put("corpus", "train/000.tar", tar);
///     spawned<void> running(ex, s.serve());          // on an event loop; s3_server::background has its own thread
///
/// Concurrency: objects(), faults(), log(), stats() and clock() are for any thread at any time; serve() and stop() for
/// the thread of the loop. The server must outlive serve(). Dropping serve() closes every connection at once.
///
/// A template, so that a program of several files compiles the server once: every file but one declares
///
///     extern template class millrace::s3_server::basic_server<>;
///
/// and one defines it, without `extern`.
template <class Unused = void>
class basic_server {
 public:
  /// Throws io_error when it cannot listen, configuration_error when the certificate cannot be made.
  explicit basic_server(options o = options());
  ~basic_server();

  /// Accepts and serves connections until stop().
  task<void> serve();
  /// For good.
  void stop() noexcept { stopping_.set(); }

  std::uint16_t port() const noexcept { return port_; }
  /// "http://127.0.0.1:PORT", or https.
  std::string endpoint() const {
    return (state_->tls == nullptr ? "http://" : "https://") + state_->settings.address + ':' + std::to_string(port_);
  }
  /// Under TLS, the PEM file with the certificate that clients are to trust; empty otherwise.
  std::string certificate_file() const { return state_->tls == nullptr ? std::string() : state_->tls->path(); }

  store& objects() noexcept { return state_->objects; }
  fault_plan& faults() noexcept { return state_->faults; }
  request_log& log() noexcept { return state_->log; }
  const statistics& stats() const noexcept { return state_->counts; }
  server_clock& clock() noexcept { return state_->clock; }

 private:
  using connections = std::list<spawned<void>>;

  task<void> accept_all(executor& ex, connections& connected);
  task<void> serve_connection(stream_socket peer, std::uint64_t number);

  std::unique_ptr<detail::shared_state> state_;
  stream_socket listener_;
  const std::uint16_t port_;
  event stopping_;
};
using server = basic_server<>;

// Outside of the class: g++ compiles what stands in it in every file, whatever is declared `extern`.

template <class Unused>
basic_server<Unused>::basic_server(options o)
    : state_(std::make_unique<detail::shared_state>(std::move(o))),
      listener_(stream_socket::listen(state_->settings.address.c_str(), state_->settings.port)),
      port_(listener_.port()) {}

template <class Unused>
basic_server<Unused>::~basic_server() = default;

template <class Unused>
task<void> basic_server<Unused>::serve() {
  executor& ex = co_await this_executor();
  connections connected;
  const spawned<void> accepting(ex, accept_all(ex, connected));
  co_await stopping_.wait();
}

template <class Unused>
task<void> basic_server<Unused>::accept_all(executor& ex, connections& connected) {
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

template <class Unused>
task<void> basic_server<Unused>::serve_connection(stream_socket peer, std::uint64_t number) {
  detail::connection c(*state_, std::move(peer), number);
  co_await c.run();
}

}  // namespace millrace::s3_server
