// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <millrace/coro/block_on.hpp>
#include <millrace/loop/detail/start_thread.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/origin/server.hpp>

namespace millrace::origin_server {

/// A server on a thread and a loop of its own: running from the constructor to the destructor.
///
///     origin_server::background origin;
///     origin.put("corpus", "train/000.tar", tar);
///     auto s3 = ... origin.endpoint() ...
///
/// Every function is for any thread. The destructor closes all connections and joins the thread.
class background {
 public:
  explicit background(options o = options(), const loop_options& l = {})
      : loop_(make_event_loop(l)), server_(std::move(o)), stop_(server_) {
    thread_ = millrace::detail::start_thread("millrace-origin", [this] { block_on(*loop_, server_.serve()); });
  }
  background(const background&) = delete;
  background& operator=(const background&) = delete;
  ~background() {
    loop_->post_remote(stop_);
    thread_.join();
  }

  std::string endpoint() const { return server_.endpoint(); }
  std::uint16_t port() const noexcept { return server_.port(); }
  std::string certificate_file() const { return server_.certificate_file(); }

  /// Stores an object; see store::put().
  template <class Content>
  std::string put(const std::string& bucket, const std::string& key, Content&& content) {
    return server_.objects().put(bucket, key, std::forward<Content>(content));
  }
  store& objects() noexcept { return server_.objects(); }
  fault_plan& faults() noexcept { return server_.faults(); }
  request_log& log() noexcept { return server_.log(); }
  const statistics& stats() const noexcept { return server_.stats(); }
  server_clock& clock() noexcept { return server_.clock(); }

 private:
  class stop_message final : public remote_node {
   public:
    explicit stop_message(server& s) noexcept : server_(s) {}
    ~stop_message() override = default;

   protected:
    void run() noexcept override { server_.stop(); }

   private:
    server& server_;
  };

  std::unique_ptr<event_loop> loop_;  // outlives the sockets that wait on it
  server server_;
  stop_message stop_;
  std::thread thread_;
};

}  // namespace millrace::origin_server
