// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/http/body_options.hpp>
#include <millrace/http/detail/head_parser.hpp>
#include <millrace/http/detail/header_lines.hpp>
#include <millrace/http/engine.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/request.hpp>
#include <millrace/http/response_head.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::http::detail {

/// One exchange inside libcurl: the easy handle, the callbacks, the received head and the body that waits to be read.
/// Lives on the heap, owned by an `exchange`; destroying it at any moment takes the transfer out of libcurl.
class transfer final : public engine::client, private timer_node {
 public:
  /// How often a transfer in libcurl's queue looks whether it may leave it (engine::make_room_for).
  static constexpr duration queue_look = std::chrono::seconds(1);
  /// Pieces of a body from this size on are read when they are whole: what came first is in no cache by then.
  static constexpr std::size_t past_caches = 1024 * 1024;

  transfer(engine& e, request&& r, std::shared_ptr<const transport_options> transport, body_options&& body);
  MILLRACE_INLINE ~transfer() override;

  bool head_ready() const noexcept { return parser_.complete() || ended_; }
  bool head_complete() const noexcept { return parser_.complete(); }
  bool body_ready() const noexcept { return !chunks_.empty() || ended_; }
  response_head& head() noexcept { return parser_.head(); }
  const request& asked() const noexcept { return request_; }
  /// The one coroutine that waits, for the head or for a piece of the body; null: nobody.
  void set_waiter(ready_node* node, bool for_head, stage_record* stage = nullptr) noexcept;
  std::uint64_t received() const noexcept { return received_; }

  void rethrow_if_failed() const {
    if (error_) std::rethrow_exception(error_);
  }

  /// The next piece of the body; empty at its verified end. Call when body_ready().
  bytes take_body();

  // ---- engine::client

  MILLRACE_INLINE void transfer_ended(CURLcode result) noexcept override;
  void next_turn() noexcept override {
    if (!ended_ && paused_) unpause();
  }

 private:
  void configure();

  // ---- libcurl's callbacks: they keep books and post; an exception must not pass through C

  /// It has left libcurl's queue: its host is looked up, or it has a socket.
  static int on_look_up(void*, void*, void* self) noexcept {
    static_cast<transfer*>(self)->queued_ = false;
    return 0;
  }
  static int on_connecting(void* self, curl_socket_t, curlsocktype) noexcept {
    static_cast<transfer*>(self)->queued_ = false;
    return CURL_SOCKOPT_OK;
  }
  /// There is a connection, and the request goes out: what it waited before does not count.
  static int on_sending(void* self, char*, char*, int, int) noexcept {
    static_cast<transfer*>(self)->touch();
    return CURL_PREREQFUNC_OK;
  }

  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self) noexcept;

  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self) noexcept;

  void store(const char* data, std::size_t n);
  void begin_piece();
  /// What was being filled stays where it is, for take_body(): nothing here allocates.
  void end() noexcept;
  bytes take_last();
  void leave_partial() noexcept;
  void push_filled() { chunks_.push_back(take_last()); }
  std::size_t ahead() const noexcept;

  /// Whether the connection stands still because the reader is behind.
  void stand_still(bool now) noexcept {
    if (std::exchange(stands_still_, now) != now) engine_.standing_still(now);
  }
  void unpause() noexcept;

  // ---- time-outs: one timer that looks back at the last progress instead of being moved by every packet

  void touch() noexcept { progress_ = engine_.loop().now(); }
  static time_point later(time_point from, duration d) noexcept {
    return d > time_point::max() - from ? time_point::max() : from + d;
  }
  time_point after(duration d) const noexcept { return later(progress_, d); }
  void watch(time_point due) { engine_.loop().add_timer(*this, due); }
  MILLRACE_INLINE void fire() noexcept override;

  where at() const { return where{displayed(request_.url), std::nullopt, std::string()}; }
  where at(std::uint64_t received) const {
    return where{displayed(request_.url), (request_.range ? request_.range->first : 0) + received, std::string()};
  }

  std::exception_ptr verdict(CURLcode result);
  void wake() noexcept {
    if (waiter_ != nullptr && (waits_for_head_ ? head_ready() : body_ready())) engine_.loop().post(*waiter_);
  }

  engine& engine_;
  request request_;
  const std::shared_ptr<const transport_options> transport_;
  body_options body_;
  head_parser parser_;
  CURL* easy_ = nullptr;
  header_lines fields_;
  ready_node* waiter_ = nullptr;
  bool waits_for_head_ = false;
  std::deque<bytes> chunks_;
  writable_bytes current_;
  std::size_t filled_ = 0;
  bool resumable_ = false;  // what is being filled may be left to a later exchange
  std::uint64_t received_ = 0;
  curl_off_t uploaded_ = 0;  // of the request's body, when it was looked at last
  time_point progress_{};
  std::exception_ptr error_;
  bool paused_ = false;
  bool queued_ = true;         // as far as libcurl tells: not once it is resolving, connecting or sending
  bool stands_still_ = false;  // paused because the reader is behind
  bool ended_ = false;
  char message_[CURL_ERROR_SIZE] = {};
};

}  // namespace millrace::http::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/detail/impl/transfer.ipp>
#endif
