// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>
#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/aimd_limit.hpp>
#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/base/wait_list.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/http/detail/addresses.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/message.hpp>
#include <millrace/http/options.hpp>
#include <millrace/loop/event_loop.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::inline MILLRACE_ABI::http {

namespace detail {
/// The version of the libcurl that is loaded, as LIBCURL_VERSION_NUM writes that of the headers: 0x075801 is 7.88.1.
unsigned libcurl_version() noexcept;
/// `o` with as many connections as RLIMIT_NOFILE leaves room for, beside the descriptors open now, to each of so many
/// engines.
engine_options within_descriptors(engine_options o, std::size_t engines) noexcept;
}  // namespace detail

/// libcurl's multi handle on one event loop: sockets are watched by the loop, the multi handle's timer is one of the
/// loop's timers, and libcurl is driven by curl_multi_socket_action only. One engine per loop, made on first use.
///
/// libcurl's callbacks never resume a coroutine, they only post. After every socket action, the timer's too, finished
/// transfers are collected, and the action is repeated while libcurl asks for a timer of 0 ms: a transfer that ends
/// inside the timer's action would otherwise be lost until the next one. Connections are kept and reused.
///
/// Between its timers libcurl reports everything by sockets, except, before 8.4.0, while it connects. When an address
/// swallows the SYN, 7.88.1 closes that socket in silence, and opens the next one only when it is called again, for
/// which it sets no timer; a socket opened in the same call may have the number of the closed one, and is not announced
/// then. So the engine opens the sockets, to watch such a number anew, and has a libcurl before 8.4.0 look at all
/// transfers while one connects: at once when that transfer's socket goes, and every 250 ms.
class engine final : public executor_service {
 public:
  /// Notified on the loop, outside of libcurl, when a transfer has ended.
  class client : public waiter {
   public:
    virtual void transfer_ended(CURLcode result) noexcept = 0;
    /// One turn later, when asked for by resume_next_turn().
    virtual void next_turn() noexcept = 0;

    /// The state of the transfer in libcurl, as far as it can be seen; the engine keeps count (moved()).
    enum class step { queued, connecting, connected };
    step reached() const noexcept { return reached_; }

   protected:
    ~client() = default;
    /// Why a socket of its transfer could not be watched: it cannot go on. Null as a rule; next_turn() comes with it.
    const std::exception_ptr& unwatched() const noexcept { return unwatched_; }

   private:
    friend class engine;
    std::exception_ptr unwatched_;
    step reached_ = step::queued;
    std::uint64_t room_seen_ = 0;  // how often descriptors had run out when it left the queue
  };

  /// The engine of the event loop `ex`. When this call makes it, its limits are those of the loop's runtime.
  static engine& of(executor& ex) {
    if (engine* existing = ex.find_service<engine>()) return *existing;
    const engine_options* const given = ex.runtime().http();
    return of(ex, given == nullptr ? engine_options() : *given);
  }
  /// `options` count when this call makes it.
  static engine& of(executor& ex, const engine_options& options) {
    event_loop& loop = event_loop::of(ex);
    return ex.service<engine>(loop, options);
  }

  /// Throws configuration_error for limits that nothing could work with. If RLIMIT_NOFILE leaves no room for as many
  /// connections, the limits are lower: one line in the log.
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
  /// Removes a transfer, whatever its state: libcurl does not touch its memory afterwards.
  void stop(CURL* easy, client* who) noexcept;

  /// `who` has left libcurl's queue, has a connection, or is back in the queue.
  void moved(client& who, client::step to) noexcept;
  /// True if a connection that is opened now may look its host up anew: each look-up has the addresses in another
  /// order, and connections of one look-up all go to the first address that answers. If hundreds of connections are
  /// opened each second, most use a look-up of the last minute. Transfers that start in one turn of the loop are asked
  /// for before any of them looks up: they may be more.
  bool may_look_up() noexcept {
    if (loop_.now() - look_ups_since_ >= std::chrono::seconds(1)) {
      look_ups_since_ = loop_.now();
      look_ups_ = 0;
    }
    return look_ups_ < 64;
  }
  void looks_up() noexcept { ++look_ups_; }

  /// A socket for a connection that begins; -1, and errno, when there is none.
  int open_socket(const curl_sockaddr& address) noexcept;

  /// The known addresses: those of the runtime, or of this engine alone.
  detail::addresses& addresses() noexcept { return addresses_; }
  /// Starts a transfer that has ended again, at the end of the queue. False when libcurl has no memory to take it back.
  [[nodiscard]] bool start_again(CURL* easy, client& who) noexcept {
    moved(who, client::step::queued);
    who.unwatched_ = nullptr;
    curl_multi_remove_handle(multi_, easy);
    return curl_multi_add_handle(multi_, easy) == CURLM_OK;
  }

  /// A transfer has failed, before any answer, for want of a descriptor. Fewer connections are open at once from now
  /// on, more again as transfers succeed. True when others hold connections: then this one is back in the queue.
  [[nodiscard]] bool wait_for_descriptors(CURL* easy, client& who) noexcept;
  /// A transfer has succeeded.
  void succeeded() noexcept {
    room_.succeeded();
    apply_limits();
  }

  /// A transfer's connection is paused because its reader is slow, or is not any more.
  void standing_still(bool now) noexcept { standing_ += now ? 1 : -1; }
  /// For a transfer that waits in libcurl's queue because connections are limited. Paused ones do not count: their
  /// readers may be waiting for the one that is queued, which would be a deadlock. It may be queued again, at the end.
  /// False when libcurl has no memory to take it back.
  [[nodiscard]] bool make_room_for(CURL* easy) noexcept;

  /// The stage whose metrics get libcurl's time from now on: the one that waited last. Approximate if several stages
  /// share it.
  void charge_to(stage_record* stage, client* who) noexcept {
    account_ = stage;
    charged_by_ = who;
  }

  /// libcurl may drain a fast socket for tens of megabytes in one call; a transfer that is given more when its action
  /// has come to this many bytes is paused until the next turn, so that timers and other sockets are served.
  static constexpr std::size_t action_limit = 8 * MiB;
  /// Bytes that libcurl has delivered in the current action.
  std::size_t action_bytes = 0;
  /// A turn has as many actions as there are sockets that are ready. When it has come to this many bytes, 5 to 20 ms,
  /// the others wait for the next one, so that messages to the loop need not wait for all of them.
  static constexpr std::size_t turn_limit = 32 * MiB;
  /// `n` bytes have been delivered. The first ones in a new slab use up a turn: the kernel makes a huge page for them,
  /// which may take longer than to receive all that fits there (5 ms if it gets the memory from its host first).
  void took(std::size_t n, bool new_memory) noexcept;

  /// Calls who->next_turn() in the next turn of the loop.
  void resume_next_turn(client* who) noexcept {
    if (!who->linked()) deferred_.push(*who);
    loop_.add_timer(next_turn_, loop_.now());
  }

 private:
  class socket_watch final : public fd_watch {
   public:
    explicit socket_watch(engine& e) noexcept : engine_(e) {}
    int fd = -1;
    unsigned asked = 0;
    std::unique_ptr<socket_watch> next;  // of those that are retired

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
  class look_timer final : public timer_node {
   public:
    explicit look_timer(engine& e) noexcept : engine_(e) {}

   protected:
    void fire() noexcept override { engine_.look(); }

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

  // The exceptions below report a lack of memory, or that no further descriptor can be watched. libcurl is C, and a
  // refusal would end its multi handle for good: so the transfer that owns the socket gets the error in the next turn.
  static int on_socket(CURL* easy, curl_socket_t fd, int what, void* self, void*) noexcept;
  /// Null for a handle of libcurl's own.
  static client* client_of(CURL* easy) noexcept;
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

  // Lets libcurl look at every transfer, while any connects: before 8.4.0.
  void look() noexcept;
  void look_at(time_point due) noexcept;
  static constexpr duration look_pause = std::chrono::milliseconds(250);
  static constexpr curl_socket_t all_sockets = CURL_SOCKET_TIMEOUT - 1;  // for act()

  void apply_limits() noexcept;

  void collect() noexcept;

  struct ready_socket {
    ready_socket(int of, int how) noexcept : fd(of), flags(how) {}
    int fd;
    int flags;
  };

  event_loop& loop_;
  const engine_options options_;
  const bool must_look_ = detail::libcurl_version() < 0x080400;
  CURLM* multi_ = nullptr;
  CURLSH* share_ = nullptr;
  time_point look_ups_since_{};
  unsigned look_ups_ = 0;  // since then
  detail::addresses own_addresses_;  // if there is no runtime
  detail::addresses& addresses_;
  std::vector<std::unique_ptr<socket_watch>> sockets_;  // by descriptor: they are small numbers
  std::unique_ptr<socket_watch> retired_;               // the first of a list
  static constexpr std::size_t most_idle = 64;
  std::vector<CURL*> idle_;
  wait_list<client> deferred_;  // for the next turn
  std::vector<ready_socket> postponed_;
  std::vector<ready_socket> serving_;  // of those, while they are
  engine_timer timer_;
  look_timer look_;
  turn_timer next_turn_;
  bool due_at_once_ = false;
  stage_record* account_ = nullptr;
  client* charged_by_ = nullptr;
  std::size_t transfers_ = 0;
  std::size_t connecting_ = 0;
  std::size_t active_ = 0;  // transfers that have left libcurl's queue
  std::size_t turn_bytes_ = 0;
  aimd_limit room_;      // connections, as descriptors have run out
  long most_ = 0;        // connections, as libcurl knows
  long standing_ = 0;      // transfers whose connections are paused
  long beyond_limit_ = 0;  // of those, as many as libcurl's limits know of
};

}  // namespace millrace::http

namespace millrace::inline MILLRACE_ABI::http::detail {

#if defined(__SSE2__)
/// Sixteen bytes, and their store past the caches. <emmintrin.h> takes long to compile.
using sixteen = long long __attribute__((vector_size(16)));

#endif

/// memcpy() into memory that is not in the caches and is not read soon, a slab that fills up part by part: on x86 with
/// non-temporal stores (Intel SDM volume 1, 10.4.6.2), which neither read the memory first nor evict lines from the
/// caches. Other threads that are notified of the data afterwards see it, as after memcpy().
void copy_past_caches(void* to, const void* from, std::size_t size) noexcept;

/// One exchange inside libcurl: the easy handle, the callbacks, the received head and the body that waits to be read.
/// Lives on the heap, owned by an `exchange`; destroying it at any moment takes the transfer out of libcurl.
class transfer final : public engine::client, private timer_node {
 public:
  /// How often a transfer in libcurl's queue looks whether it may leave it (engine::make_room_for).
  static constexpr duration queue_look = std::chrono::seconds(1);
  /// Pieces of a body from this size on are read when they are whole: their beginning is in no cache by then.
  static constexpr std::size_t past_caches = 1024 * 1024;

  transfer(engine& e, request&& r, std::shared_ptr<const transport_options> transport, body_options&& body);
  MILLRACE_INLINE ~transfer() override;

  bool head_ready() const noexcept { return parser_.complete() || ended_; }
  bool head_complete() const noexcept { return parser_.complete(); }
  bool body_ready() const noexcept { return !chunks_.empty() || ended_; }
  response_head& head() noexcept { return parser_.head(); }
  const request& asked() const noexcept { return request_; }
  /// The one coroutine that waits, for the head or for a piece of the body; null: none.
  void set_waiter(ready_node* node, bool for_head, stage_record* stage = nullptr) noexcept;
  std::uint64_t received() const noexcept { return received_; }
  std::string proxy() const;
  /// The request has failed at its address, with `what`.
  void blame(const char* what) noexcept;

  void rethrow_if_failed() const {
    if (error_) std::rethrow_exception(error_);
  }

  /// The next piece of the body; empty at its verified end. Call when body_ready().
  bytes take_body();

  // ---- engine::client

  MILLRACE_INLINE void transfer_ended(CURLcode result) noexcept override;
  void next_turn() noexcept override {
    if (ended_) return;
    if (unwatched()) {
      error_ = unwatched();
      end();
    } else if (paused_) {
      unpause();
    }
  }

 private:
  void configure();

  // ---- libcurl's callbacks: they keep books and post; an exception must not pass through C

  /// It has left libcurl's queue: its host is looked up, or it has a socket.
  static int on_look_up(void*, void*, void* self) noexcept {
    static_cast<transfer*>(self)->moved(step::connecting);
    static_cast<transfer*>(self)->engine_.looks_up();
    return 0;
  }
  static curl_socket_t on_opening(void* self, curlsocktype, curl_sockaddr* address) noexcept;
  /// There is a connection, and the request goes out: time that it waited before does not count.
  static int on_sending(void* self, char* ip, char* own_ip, int port, int own_port) noexcept;
  void moved(step to) noexcept { engine_.moved(*this, to); }
  /// Neither address that is being tried can be connected to.
  void not_connected() noexcept {
    for (const socket_address& each : trying_) {
      if (each) not_connected(each, opened_ < 2 && !passed_over_);
    }
  }
  void not_connected(const socket_address& a, bool only_one) noexcept;
  void reached_address() noexcept;
  /// False, with the error, when libcurl has no memory to take it back.
  bool start_again() noexcept;
  /// Its end counts for its address.
  void judge_address() noexcept;
  /// It has succeeded: the time of a ranged read tells the speed of its address.
  void measure() noexcept;
  void count() noexcept;
  void log(const std::string& line) const;

  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self) noexcept;

  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self) noexcept;

  void store(const char* data, std::size_t n);
  void begin_piece();
  /// A piece that is not full stays in place, for take_body(): nothing here allocates.
  void end() noexcept;
  bytes take_last();
  void leave_partial() noexcept;
  void push_filled() { chunks_.push_back(take_last()); }
  std::size_t ahead() const noexcept;

  /// The connection is, or is no longer, paused because the reader is slow.
  void stand_still(bool now) noexcept {
    stood_still_ = stood_still_ || now;
    if (std::exchange(stands_still_, now) != now) engine_.standing_still(now);
  }
  void unpause() noexcept;

  // ---- time-outs: one timer that looks back at the last progress instead of being moved by every packet

  void touch() noexcept {
    progress_ = engine_.loop().now();
    seen_ = came_;
  }
  /// `n` bytes of the answer have come, the first ones of its head or body if `begins`. A trickle is no progress.
  void came(std::size_t n, bool begins) noexcept {
    came_ += n;
    if (begins || came_ - seen_ >= least_within(transport_->stall_timeout)) touch();
  }
  /// Bytes that are progress in a time of `d`: 512 a second.
  static std::uint64_t least_within(duration d) noexcept {
    return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(d.count()) / (1'000'000'000 / 512), 1, 64 * KiB);
  }
  time_point after(duration d) const noexcept { return millrace::detail::added(progress_, d); }
  void watch(time_point due) noexcept { engine_.loop().add_timer(*this, due); }
  MILLRACE_INLINE void fire() noexcept override;

  where at() const { return place_of(request_); }
  where at(std::uint64_t received) const {
    return place_of(request_, (request_.range ? request_.range->first : 0) + received);
  }

  /// The errno value if `result` may be the result of libcurl for a lack of descriptors; 0 if it is not.
  int out_of_descriptors(CURLcode result) const noexcept;
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
  bool resumable_ = false;  // the piece may be left to a later exchange
  std::uint64_t received_ = 0;
  curl_off_t uploaded_ = 0;  // of the request's body, when it was looked at last
  time_point progress_{};
  std::uint64_t came_ = 0;  // bytes of the answer, its head's too
  std::uint64_t seen_ = 0;  // of those, at the last progress
  std::exception_ptr error_;
  bool paused_ = false;
  bool stands_still_ = false;  // paused because the reader is slow
  bool stood_still_ = false;   // now or before
  bool ended_ = false;
  int opening_error_ = 0;      // of the last socket that could not be opened
  socket_address trying_[2];   // of IPv4, of IPv6
  unsigned opened_ = 0;        // sockets
  socket_address address_;     // that it is connected to
  bool passed_over_ = false;   // an address that has failed or is slow
  bool any_address_ = false;   // is to be tried, those too
  bool leaves_ = false;        // its connection, as the address is slow
  std::int64_t begun_ns_ = monotonic_ns();
  std::int64_t sent_ns_ = 0;   // when there was a connection for it
  std::uint32_t own_port_ = 0;
  std::int64_t first_ns_ = 0;  // when the first line of the answer came
  char message_[CURL_ERROR_SIZE] = {};
};

}  // namespace millrace::http::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/engine.ipp>
#endif
