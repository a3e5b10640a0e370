// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>
#include <poll.h>

#include <cstddef>
#include <memory>
#include <vector>

#include <millrace/base/error.hpp>
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
template <class = void>
class basic_engine final : public executor_service {
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
  static basic_engine& of(executor& ex) {
    if (basic_engine* existing = ex.find_service<basic_engine>()) return *existing;
    return of(ex, ex.runtime() == nullptr ? engine_options() : ex.runtime()->http());
  }
  /// `options` count when this call makes it.
  static basic_engine& of(executor& ex, const engine_options& options) {
    event_loop& loop = event_loop::of(ex);
    return ex.service<basic_engine>([&] { return std::make_unique<basic_engine>(loop, options); });
  }

  /// Throws configuration_error for limits that nothing could work with.
  basic_engine(event_loop& loop, engine_options options)
      : loop_(loop), options_(options), timer_(*this), next_turn_(*this) {
    if (options.connections < 1 || options.connections_per_host < 1 || options.receive_buffer < 1024)
      throw configuration_error("an HTTP engine needs a connection, one per host, and a receive buffer of 1 KiB");
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
      throw configuration_error("libcurl could not be initialised");
    multi_ = curl_multi_init();
    share_ = curl_share_init();
    if (multi_ == nullptr || share_ == nullptr) throw std::bad_alloc();
    curl_share_setopt(share_, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);  // one thread: needs no lock functions
    curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &basic_engine::on_socket);
    curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
    curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &basic_engine::on_timer);
    curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
    curl_multi_setopt(multi_, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
    // Pinned: the default grows and shrinks with the number of handles and closes connections that are about to be
    // used.
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, options_.connections);
    curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS, options_.connections);
    curl_multi_setopt(multi_, CURLMOPT_MAX_HOST_CONNECTIONS, options_.connections_per_host);
  }
  ~basic_engine() override {
    MILLRACE_ASSERT(transfers_ == 0, "an HTTP engine ended before its exchanges");
    curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, nullptr);
    curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, nullptr);
    for (std::unique_ptr<socket_watch>& watch : sockets_) {
      if (watch != nullptr) loop_.unwatch(*watch);
    }
    sockets_.clear();
    loop_.remove_timer(timer_);
    loop_.remove_timer(next_turn_);
    curl_multi_cleanup(multi_);
    for (CURL* easy : idle_) curl_easy_cleanup(easy);
    curl_share_cleanup(share_);
    curl_global_cleanup();
  }

  event_loop& loop() const noexcept { return loop_; }
  const engine_options& options() const noexcept { return options_; }
  CURLSH* share() const noexcept { return share_; }
  /// Exchanges in flight: part of the census.
  std::size_t transfers() const noexcept { return transfers_; }

  /// A fresh or recycled easy handle with default settings.
  CURL* take_handle() {
    if (!idle_.empty()) {
      CURL* easy = idle_.back();
      idle_.pop_back();
      return easy;
    }
    CURL* easy = curl_easy_init();
    if (easy == nullptr) throw std::bad_alloc();
    return easy;
  }
  void give_back_handle(CURL* easy) noexcept {
    curl_easy_reset(easy);  // keeps connections: they belong to the multi handle
    // A transfer that is taken back while libcurl has it queued leaves its receive buffer in the handle (7.88), and
    // such a handle refuses this option until its end.
    const bool clean = curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, options_.receive_buffer) == CURLE_OK;
    if (clean && idle_.size() < 64) {
      idle_.push_back(easy);
    } else {
      curl_easy_cleanup(easy);
    }
  }

  /// Starts a transfer; CURLOPT_PRIVATE of `easy` is its `client`.
  void start(CURL* easy) {
    const CURLMcode rc = curl_multi_add_handle(multi_, easy);
    if (rc != CURLM_OK)
      throw configuration_error(std::string("libcurl refused a transfer: ") + curl_multi_strerror(rc));
    ++transfers_;
  }
  /// Takes a transfer back, whatever its state: libcurl touches none of its memory afterwards.
  void stop(CURL* easy, client* who) noexcept {
    curl_multi_remove_handle(multi_, easy);
    --transfers_;
    if (charged_by_ == who) {  // the record may end with the pipeline
      account_ = nullptr;
      charged_by_ = nullptr;
    }
    who->unlink();
  }

  /// A transfer's connection stands still because its reader is behind, or does no longer.
  void standing_still(bool now) noexcept { standing_ += now ? 1 : -1; }
  /// For a transfer that waits in libcurl's queue because connections are limited. Those that stand still do not count:
  /// their readers may be waiting for the very one that is queued, and then nothing would ever go on. It may be queued
  /// again, at the end. False when libcurl has no memory to take it back.
  [[nodiscard]] bool make_room_for(CURL* easy) noexcept {
    if (standing_ != beyond_limit_) {
      beyond_limit_ = standing_;
      curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS, options_.connections + beyond_limit_);
      curl_multi_setopt(multi_, CURLMOPT_MAX_HOST_CONNECTIONS, options_.connections_per_host + beyond_limit_);
    }
    if (beyond_limit_ == 0) return true;
    // libcurl looks at its queue only when a transfer ends, and at the limits when one begins.
    curl_multi_remove_handle(multi_, easy);
    return curl_multi_add_handle(multi_, easy) == CURLM_OK;
  }

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
  void took(std::size_t n, bool new_memory) {
    if (turn_bytes_ == 0) loop_.add_timer(next_turn_, loop_.now());
    action_bytes += n;
    turn_bytes_ += new_memory ? turn_limit : n;
  }

  /// Calls who->next_turn() in the next turn of the loop.
  void resume_next_turn(client* who) {
    if (!who->linked()) deferred_.push(*who);
    loop_.add_timer(next_turn_, loop_.now());
  }

 private:
  class socket_watch final : public fd_watch {
   public:
    explicit socket_watch(basic_engine& e) noexcept : engine_(e) {}
    int fd = -1;

   protected:
    void ready(unsigned events) noexcept override {
      int flags = 0;
      if (events & (POLLIN | POLLHUP)) flags |= CURL_CSELECT_IN;
      if (events & POLLOUT) flags |= CURL_CSELECT_OUT;
      if (events & (POLLERR | POLLNVAL)) flags |= CURL_CSELECT_ERR;
      engine_.act_in_turn(fd, flags);  // may destroy this watch
    }

   private:
    basic_engine& engine_;
  };
  class engine_timer final : public timer_node {
   public:
    explicit engine_timer(basic_engine& e) noexcept : engine_(e) {}

   protected:
    // libcurl clears its memory of the last announced time-out on this action, so an early call is harmless.
    void fire() noexcept override { engine_.act(CURL_SOCKET_TIMEOUT, 0); }

   private:
    basic_engine& engine_;
  };
  class turn_timer final : public timer_node {
   public:
    explicit turn_timer(basic_engine& e) noexcept : engine_(e) {}

   protected:
    void fire() noexcept override { engine_.run_deferred(); }

   private:
    basic_engine& engine_;
  };

  // What may be thrown below is about memory, or that nothing more can be watched. libcurl is C, and a refusal would
  // end its multi handle for good: unwatched, a transfer ends by its time-outs.
  static int on_socket(CURL*, curl_socket_t fd, int what, void* self, void*) noexcept {
    try {
      static_cast<basic_engine*>(self)->follow(fd, what);
    } catch (...) {
    }
    return 0;
  }
  void follow(curl_socket_t fd, int what) {
    const auto place = static_cast<std::size_t>(fd);
    if (what == CURL_POLL_REMOVE) {
      if (place < sockets_.size() && sockets_[place] != nullptr) {
        loop_.unwatch(*sockets_[place]);
        retired_.push_back(std::move(sockets_[place]));  // it may be the one whose ready() we are in
      }
      return;
    }
    if (sockets_.size() <= place) sockets_.resize(place + 1);
    std::unique_ptr<socket_watch>& watch = sockets_[place];
    if (watch == nullptr) {
      watch = std::make_unique<socket_watch>(*this);
      watch->fd = fd;
    }
    unsigned events = 0;
    if (what & CURL_POLL_IN) events |= POLLIN;
    if (what & CURL_POLL_OUT) events |= POLLOUT;
    loop_.watch(*watch, fd, events);
  }

  static int on_timer(CURLM*, long ms, void* self) noexcept {
    auto& e = *static_cast<basic_engine*>(self);
    e.due_at_once_ = ms == 0;
    try {
      if (ms < 0) {
        e.loop_.remove_timer(e.timer_);
      } else {
        e.loop_.add_timer(e.timer_, e.loop_.now() + std::chrono::milliseconds(ms));
      }
    } catch (...) {  // as in on_socket()
    }
    return 0;
  }

  // While it is, next_turn_ is armed.
  bool turn_is_full() const noexcept { return turn_bytes_ >= turn_limit; }
  // Acts on a socket that is ready, or in a later turn when this one is full.
  void act_in_turn(int fd, int flags) noexcept {
    if (turn_is_full() && postpone(fd, flags)) return;
    act(fd, flags);
  }
  bool postpone(int fd, int flags) noexcept {
    try {
      postponed_.push_back(ready_socket(fd, flags));
      return true;
    } catch (...) {  // no memory: now, then
      return false;
    }
  }

  void run_deferred() noexcept {
    turn_bytes_ = 0;
    // Those that were not served at all come first. One that libcurl has closed meanwhile it does not know any more.
    serving_.swap(postponed_);
    for (const ready_socket& s : serving_) act_in_turn(s.fd, s.flags);
    serving_.clear();
    wait_list<client> now;  // each of them may end others, which leave it then, or ask for yet another turn
    while (!deferred_.empty()) now.push(deferred_.pop());
    while (!now.empty()) {
      client& first = now.pop();
      if (turn_is_full()) {
        deferred_.push(first);
      } else {
        first.next_turn();
      }
    }
  }

  void act(curl_socket_t fd, int flags) noexcept {
    retired_.clear();
    stage_record* const before = loop_.enter(account_);
    action_bytes = 0;  // of all rounds: newer versions of libcurl ask for another one as long as there is more to read
    // A few rounds at most: whatever still asks for 0 ms then has its timer armed and goes on in the next turn.
    for (int round = 0; round < 8; ++round) {
      int running = 0;
      due_at_once_ = false;
      curl_multi_socket_action(multi_, fd, flags, &running);
      collect();
      if (!due_at_once_ || action_bytes >= action_limit) break;
      fd = CURL_SOCKET_TIMEOUT;
      flags = 0;
    }
    loop_.enter(before);
  }

  void collect() noexcept {
    int left = 0;
    while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode result = message->data.result;
      char* who = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &who);
      reinterpret_cast<client*>(who)->transfer_ended(result);
    }
  }

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
using engine = basic_engine<>;

}  // namespace millrace::http
