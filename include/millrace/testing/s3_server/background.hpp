// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/io/loop_thread.hpp>
#include <millrace/testing/s3_server/server.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server {

/// A server on a thread and a loop of its own: running from the constructor to the destructor.
///
///     s3_server::background server;
///     server.put("corpus", "train/000.tar", tar);
///     connect_to(server.endpoint());                 // "http://127.0.0.1:PORT"; keys: see options
///
/// Every function is for any thread. The destructor closes all connections and joins the thread.
class background {
 public:
  MILLRACE_COROUTINE explicit background(options o = options(), const loop_options& l = {})
      : server_(std::make_unique<server>(std::move(o))), serving_(server_->serve()), thread_(l) {
    thread_.loop().post_remote(start_message_);
  }
  background(const background&) = delete;
  background& operator=(const background&) = delete;
  ~background() { thread_.loop().post_remote(stop_message_); }

  std::string endpoint() const { return server_->endpoint(); }
  std::uint16_t port() const noexcept { return server_->port(); }
  std::string certificate_file() const { return server_->certificate_file(); }

  /// Stores an object and makes its bucket; see store::put(). Returns the ETag.
  template <class Content>
  std::string put(const std::string& bucket, const std::string& key, Content&& content) {
    return server_->objects().put(bucket, key, std::forward<Content>(content));
  }
  store& objects() noexcept { return server_->objects(); }
  fault_plan& faults() noexcept { return server_->faults(); }
  request_log& log() noexcept { return server_->log(); }
  const statistics& stats() const noexcept { return server_->stats(); }
  server_clock& clock() noexcept { return server_->clock(); }

 private:
  // On the thread of the loop.
  void start() noexcept { running_ = spawned<void>(thread_.loop(), std::move(serving_)); }
  void stop() noexcept {
    running_ = spawned<void>();
    server_.reset();  // here: a socket, which may still be watched, ends before its loop and on its thread
  }

  std::unique_ptr<server> server_;
  task<void> serving_;  // until it is started
  spawned<void> running_;
  millrace::detail::message<background, &background::start> start_message_{*this};
  millrace::detail::message<background, &background::stop> stop_message_{*this};
  loop_thread thread_;  // last: it takes the messages, and ends first
};

}  // namespace millrace::s3_server
