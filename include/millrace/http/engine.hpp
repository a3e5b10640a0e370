// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>
#include <poll.h>

#include <cstddef>
#include <memory>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/base/wait_list.hpp>
#include <millrace/coro/runtime_parts.hpp>
#include <millrace/http/options.hpp>
#include <millrace/loop/event_loop.hpp>

namespace millrace::http {

/// libcurl's multi handle on one event loop: sockets are watched by the loop, the multi handle's timer is one of the
/// loop's timers, and libcurl is driven by curl_multi_socket_action only. One engine per loop, made on first use.
///
/// libcurl's callbacks never resume a coroutine, they only post. After every socket action, the timer's too, finished
/// transfers are collected, and the action is repeated while libcurl asks for a timer of 0 ms: a transfer that ends
/// inside the timer's action would otherwise be lost until the next one. Connections are kept and reused.
class engine final : public executor_service {
 public:
  /// Told on the loop, outside of libcurl, when a transfer has ended.
  class client : public waiter {
   public:
    virtual void transfer_ended(CURLcode result) noexcept = 0;
    /// One turn later, when asked for by resume_next_turn().
    virtual void next_turn() noexcept = 0;

   protected:
    ~client() = default;
  };

  /// The engine of the event loop `ex`. When this call makes it, its limits are those of the loop's runtime.
  static engine& of(executor& ex) {
    if (engine* existing = ex.find_service<engine>()) return *existing;
    return of(ex, ex.runtime() == nullptr ? engine_options() : ex.runtime()->http());
  }
  /// `options` count when this call makes it.
  static engine& of(executor& ex, const engine_options& options) {
    event_loop& loop = event_loop::of(ex);
    return ex.service<engine>(loop, options);
  }

  /// Throws configuration_error for limits that nothing could work with.
  engine(event_loop& loop, engine_options options);
  MILLRACE_INLINE ~engine() override;

  event_loop& loop() const noexcept { return loop_; }
  const engine_options& options() const noexcept { return options_; }
  CURLSH* share() const noexcept { return share_; }
  /// Exchanges in flight: part of the census.
  std::size_t transfers() const noexcept { return transfers_; }

  /// A fresh or recycled easy handle with default settings.
  CURL* take_handle();
  void give_back_handle(CURL* easy) noexcept;

  /// Starts a transfer; CURLOPT_PRIVATE of `easy` is its `client`.
  void start(CURL* easy);
  /// Takes a transfer back, whatever its state: libcurl touches none of its memory afterwards.
  void stop(CURL* easy, client* who) noexcept;

  /// A transfer's connection stands still because its reader is behind, or does no longer.
  void standing_still(bool now) noexcept { standing_ += now ? 1 : -1; }
  /// For a transfer that waits in libcurl's queue because connections are limited. Those that stand still do not count:
  /// their readers may be waiting for the very one that is queued, and then nothing would ever go on. It may be queued
  /// again, at the end. False when libcurl has no memory to take it back.
  [[nodiscard]] bool make_room_for(CURL* easy) noexcept;

  /// On whose account libcurl works from now on: the stage that waited last. Approximate where several stages share it.
  void charge_to(stage_record* stage, client* who) noexcept {
    account_ = stage;
    charged_by_ = who;
  }

  /// libcurl may drain a fast socket for tens of megabytes in one call; a transfer that is given more when its action
  /// has come to this many bytes is paused until the next turn, so that timers and other sockets are served.
  static constexpr std::size_t action_limit = 8 * MiB;
  /// Bytes that libcurl has handed over in the current action.
  std::size_t action_bytes = 0;
  /// A turn has as many actions as there are sockets that are ready. When it has come to this many bytes, 5 to 20 ms,
  /// the others wait for the next one, so that whoever wants the loop to end, say, need not wait for all of them.
  static constexpr std::size_t turn_limit = 32 * MiB;
  /// `n` bytes have been handed over. The first ones in a new slab fill a turn: the kernel makes a huge page for them,
  /// which may take longer than to receive all that fits there (5 ms where it gets the memory from its host first).
  void took(std::size_t n, bool new_memory);

  /// Calls who->next_turn() in the next turn of the loop.
  void resume_next_turn(client* who) {
    if (!who->linked()) deferred_.push(*who);
    loop_.add_timer(next_turn_, loop_.now());
  }

 private:
  class socket_watch final : public fd_watch {
   public:
    explicit socket_watch(engine& e) noexcept : engine_(e) {}
    int fd = -1;

   protected:
    MILLRACE_INLINE void ready(unsigned events) noexcept override;

   private:
    engine& engine_;
  };
  class engine_timer final : public timer_node {
   public:
    explicit engine_timer(engine& e) noexcept : engine_(e) {}

   protected:
    // libcurl clears its memory of the last announced time-out on this action, so an early call is harmless.
    void fire() noexcept override { engine_.act(CURL_SOCKET_TIMEOUT, 0); }

   private:
    engine& engine_;
  };
  class turn_timer final : public timer_node {
   public:
    explicit turn_timer(engine& e) noexcept : engine_(e) {}

   protected:
    void fire() noexcept override { engine_.run_deferred(); }

   private:
    engine& engine_;
  };

  // What may be thrown below is about memory, or that nothing more can be watched. libcurl is C, and a refusal would
  // end its multi handle for good: unwatched, a transfer ends by its time-outs.
  static int on_socket(CURL*, curl_socket_t fd, int what, void* self, void*) noexcept;
  void follow(curl_socket_t fd, int what);

  static int on_timer(CURLM*, long ms, void* self) noexcept;

  // While it is, next_turn_ is armed.
  bool turn_is_full() const noexcept { return turn_bytes_ >= turn_limit; }
  // Acts on a socket that is ready, or in a later turn when this one is full.
  void act_in_turn(int fd, int flags) noexcept {
    if (turn_is_full() && postpone(fd, flags)) return;
    act(fd, flags);
  }
  bool postpone(int fd, int flags) noexcept;

  void run_deferred() noexcept;

  void act(curl_socket_t fd, int flags) noexcept;

  void collect() noexcept;

  struct ready_socket {
    ready_socket(int of, int how) noexcept : fd(of), flags(how) {}
    int fd;
    int flags;
  };

  event_loop& loop_;
  const engine_options options_;
  CURLM* multi_ = nullptr;
  CURLSH* share_ = nullptr;
  std::vector<std::unique_ptr<socket_watch>> sockets_;  // by descriptor: they are small numbers
  std::vector<std::unique_ptr<socket_watch>> retired_;
  std::vector<CURL*> idle_;
  wait_list<client> deferred_;  // for the next turn
  std::vector<ready_socket> postponed_;
  std::vector<ready_socket> serving_;  // of those, while they are
  engine_timer timer_;
  turn_timer next_turn_;
  bool due_at_once_ = false;
  stage_record* account_ = nullptr;
  client* charged_by_ = nullptr;
  std::size_t transfers_ = 0;
  std::size_t turn_bytes_ = 0;
  long standing_ = 0;      // transfers whose connections stand still
  long beyond_limit_ = 0;  // of those, as many as libcurl's limits know of
};

}  // namespace millrace::http

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/impl/engine.ipp>
#endif
