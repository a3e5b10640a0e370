// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/sync/event.hpp>
#include <millrace/testing/s3_server/detail/connection.hpp>
#include <millrace/testing/s3_server/stream_socket.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server {

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
/// A program of several files that does not link millrace::compiled compiles the server once if every file but one
/// declares
///
///     extern template millrace::task<void> millrace::s3_server::server::serve<>();
///
/// and one defines it, without `extern`.
class server {
 public:
  /// Throws io_error when it cannot listen, configuration_error when the certificate cannot be made.
  explicit server(options o = options());

  /// Accepts and serves connections until stop().
  MILLRACE_COROUTINE task<void> serve();
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

  MILLRACE_COROUTINE task<void> accept_all(executor& ex, connections& connected);
  MILLRACE_COROUTINE task<void> serve_connection(stream_socket peer, std::uint64_t number);

  std::unique_ptr<detail::shared_state> state_;
  stream_socket listener_;
  const std::uint16_t port_;
  event stopping_;
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/server.ipp>
#endif
