// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/runtime_counts.hpp>
#include <millrace/coro/tracer.hpp>
#include <millrace/http/authorities.hpp>
#include <millrace/http/engine.hpp>
#include <millrace/http/proxy.hpp>
#include <millrace/http/unconditional_hosts.hpp>
#include <millrace/loop/detail/descriptors.hpp>

namespace millrace::inline MILLRACE_ABI::http {

MILLRACE_INLINE unsigned detail::libcurl_version() noexcept {
  static const unsigned version = curl_version_info(CURLVERSION_NOW)->version_num;
  return version;
}

MILLRACE_INLINE engine_options detail::within_descriptors(engine_options o, std::size_t engines) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return o;
  const millrace::detail::owned_fd next(::eventfd(0, EFD_CLOEXEC));
  if (next.get() < 0 || limit.rlim_cur == RLIM_INFINITY) return o;
  // Descriptors are the lowest free numbers. While one connects it may hold three: two of the look-up and its socket to
  // the name server, or sockets to addresses of both families.
  const auto used = static_cast<rlim_t>(next.get());
  const rlim_t most = std::max<rlim_t>(1, (limit.rlim_cur - std::min(used, limit.rlim_cur)) / (3 * engines));
  const long fit = static_cast<long>(std::min<rlim_t>(most, 1L << 30));
  o.connections = std::min(o.connections, fit);
  o.connections_per_host = std::min(o.connections_per_host, fit);
  return o;
}

namespace detail {
/// libcurl's read size per call: memory of each exchange in flight. 16 KiB would double the CPU cost.
inline constexpr long receive_buffer = 128 * 1024;
}  // namespace detail

MILLRACE_INLINE engine::engine(event_loop& loop, engine_options options)
    : loop_(loop),
      options_(detail::within_descriptors(options, loop.runtime().loops())),
      addresses_(loop.runtime().addresses() != nullptr ? *loop.runtime().addresses() : own_addresses_),
      timer_(*this),
      look_(*this),
      next_turn_(*this) {
  if (options.connections < 1 || options.connections_per_host < 1)
    throw configuration_error("an HTTP engine needs a connection, and one per host");
  idle_.reserve(most_idle);  // give_back_handle() must not throw
  if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) throw configuration_error("libcurl could not be initialised");
  multi_ = curl_multi_init();
  share_ = curl_share_init();
  if (multi_ == nullptr || share_ == nullptr) throw std::bad_alloc();
  curl_share_setopt(share_, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);  // one thread: needs no lock functions
  curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &engine::on_socket);
  curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &engine::on_timer);
  curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
  // Pinned: the default grows and shrinks with the number of handles and closes connections that are about to be
  // used.
  curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, options_.connections);
  apply_limits();
  if (options_.connections_per_host < options.connections_per_host) {
    const std::string line = "millrace: " + std::to_string(options_.connections_per_host) +
                             " connections at once (of " + std::to_string(options.connections_per_host) +
                             ") fit into the limit on open files (RLIMIT_NOFILE, ulimit -n)";
    if (millrace::detail::first_time(line)) millrace::detail::log_line(loop, line);
  }
}

MILLRACE_INLINE engine::~engine() {
  MILLRACE_ASSERT(transfers_ == 0, "an HTTP engine ended before its exchanges");
  curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, nullptr);
  curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, nullptr);
  for (std::unique_ptr<socket_watch>& watch : sockets_) {
    if (watch != nullptr) loop_.unwatch(*watch);
  }
  sockets_.clear();
  loop_.remove_timer(timer_);
  loop_.remove_timer(look_);
  loop_.remove_timer(next_turn_);
  curl_multi_cleanup(multi_);
  for (CURL* easy : idle_) curl_easy_cleanup(easy);
  curl_share_cleanup(share_);
  curl_global_cleanup();
}

MILLRACE_INLINE CURL* engine::take_handle() {
  if (!idle_.empty()) {
    CURL* easy = idle_.back();
    idle_.pop_back();
    return easy;
  }
  CURL* easy = curl_easy_init();
  if (easy == nullptr) throw std::bad_alloc();
  return easy;
}

MILLRACE_INLINE void engine::give_back_handle(CURL* easy) noexcept {
  if (!loop_.process().here()) return;
  curl_easy_reset(easy);  // keeps connections: they belong to the multi handle
  // A transfer that is taken back while libcurl has it queued leaves its receive buffer in the handle (7.88), and
  // such a handle refuses this option until its end.
  const bool clean = curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, detail::receive_buffer) == CURLE_OK;
  if (clean && idle_.size() < most_idle) {
    idle_.push_back(easy);
  } else {
    curl_easy_cleanup(easy);
  }
}

MILLRACE_INLINE void engine::start(CURL* easy) {
  const CURLMcode rc = curl_multi_add_handle(multi_, easy);
  if (rc != CURLM_OK) throw configuration_error(std::string("libcurl refused a transfer: ") + curl_multi_strerror(rc));
  ++transfers_;
}

MILLRACE_INLINE void engine::stop(CURL* easy, client* who) noexcept {
  // In a child of fork() it would say goodbye on the parent's connection.
  if (loop_.process().here()) curl_multi_remove_handle(multi_, easy);
  --transfers_;
  moved(*who, client::step::queued);
  if (charged_by_ == who) {  // the record may end with the pipeline
    account_ = nullptr;
    charged_by_ = nullptr;
  }
  who->unlink();
}

MILLRACE_INLINE bool engine::make_room_for(CURL* easy) noexcept {
  beyond_limit_ = standing_;
  apply_limits();
  if (beyond_limit_ == 0) return true;
  // libcurl looks at its queue only when a transfer ends, and at the limits when one begins.
  curl_multi_remove_handle(multi_, easy);
  return curl_multi_add_handle(multi_, easy) == CURLM_OK;
}

MILLRACE_INLINE void engine::apply_limits() noexcept {
  const auto room = static_cast<long>(std::min<std::size_t>(room_.limit(), 1UL << 30));
  const long most = std::min(options_.connections, room) + beyond_limit_;
  if (most == most_) return;
  most_ = most;
  curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS, most);
  curl_multi_setopt(multi_, CURLMOPT_MAX_HOST_CONNECTIONS, options_.connections_per_host + beyond_limit_);
}

MILLRACE_INLINE void engine::moved(client& who, client::step to) noexcept {
  using step = client::step;
  if (who.reached_ == to) return;
  connecting_ += std::size_t(to == step::connecting) - std::size_t(who.reached_ == step::connecting);
  active_ += std::size_t(to != step::queued) - std::size_t(who.reached_ != step::queued);
  if (who.reached_ == step::queued) who.room_seen_ = room_.generation();
  who.reached_ = to;
  if (must_look_ && to == step::connecting && connecting_ == 1) {
    look_at(millrace::detail::added(loop_.now(), look_pause));
  }
  if (connecting_ == 0) loop_.remove_timer(look_);
}

MILLRACE_INLINE int engine::open_socket(const curl_sockaddr& address) noexcept {
  const int fd = ::socket(address.family, address.socktype | SOCK_CLOEXEC, address.protocol);
  if (fd < 0 || static_cast<std::size_t>(fd) >= sockets_.size()) return fd;
  if (socket_watch* stale = sockets_[static_cast<std::size_t>(fd)].get()) {
    loop_.unwatch(*stale);
    try {
      loop_.watch(*stale, fd, stale->asked);
    } catch (const io_error& e) {
      ::close(fd);
      errno = e.code().value();
      return -1;
    } catch (...) {
      ::close(fd);
      errno = ENOMEM;
      return -1;
    }
  }
  return fd;
}

MILLRACE_INLINE bool engine::wait_for_descriptors(CURL* easy, client& who) noexcept {
  const std::size_t before = room_.limit();
  room_.refused(who.room_seen_, active_);
  apply_limits();
  if (active_ <= 1 && before <= 1) return false;
  moved(who, client::step::queued);
  curl_multi_remove_handle(multi_, easy);
  return curl_multi_add_handle(multi_, easy) == CURLM_OK;
}

MILLRACE_INLINE void engine::took(std::size_t n, bool new_memory) noexcept {
  if (turn_bytes_ == 0) loop_.add_timer(next_turn_, loop_.now());
  action_bytes += n;
  turn_bytes_ += new_memory ? turn_limit : n;
}

MILLRACE_INLINE void engine::socket_watch::ready(unsigned events) noexcept {
  int flags = 0;
  if (events & (POLLIN | POLLHUP)) flags |= CURL_CSELECT_IN;
  if (events & POLLOUT) flags |= CURL_CSELECT_OUT;
  if (events & (POLLERR | POLLNVAL)) flags |= CURL_CSELECT_ERR;
  engine_.act_in_turn(fd, flags);  // may destroy this watch
}

MILLRACE_INLINE int engine::on_socket(CURL* easy, curl_socket_t fd, int what, void* self, void*) noexcept {
  auto& e = *static_cast<engine*>(self);
  try {
    e.follow(fd, what);
  } catch (...) {
    if (client* const who = client_of(easy)) {
      who->unwatched_ = std::current_exception();
      e.resume_next_turn(who);
    }
  }
  if (e.must_look_ && what == CURL_POLL_REMOVE && e.connecting_ > 0) {
    const client* const who = client_of(easy);
    if (who != nullptr && who->reached() == client::step::connecting) e.look_at(e.loop_.now());
  }
  return 0;
}

MILLRACE_INLINE engine::client* engine::client_of(CURL* easy) noexcept {
  char* who = nullptr;
  curl_easy_getinfo(easy, CURLINFO_PRIVATE, &who);
  return reinterpret_cast<client*>(who);
}

MILLRACE_INLINE void engine::follow(curl_socket_t fd, int what) {
  const auto place = static_cast<std::size_t>(fd);
  if (what == CURL_POLL_REMOVE) {
    if (place < sockets_.size() && sockets_[place] != nullptr) {
      loop_.unwatch(*sockets_[place]);
      sockets_[place]->next = std::move(retired_);
      retired_ = std::move(sockets_[place]);  // it may be the one whose ready() we are in
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
  watch->asked = events;
  loop_.watch(*watch, fd, events);
}

MILLRACE_INLINE int engine::on_timer(CURLM*, long ms, void* self) noexcept {
  auto& e = *static_cast<engine*>(self);
  e.due_at_once_ = ms == 0;
  if (ms < 0) {
    e.loop_.remove_timer(e.timer_);
  } else {
    e.loop_.add_timer(e.timer_, millrace::detail::added(e.loop_.now(), std::chrono::milliseconds(ms)));
  }
  return 0;
}

MILLRACE_INLINE bool engine::postpone(int fd, int flags) noexcept {
  try {
    postponed_.push_back(ready_socket(fd, flags));
    return true;
  } catch (...) {  // no memory: now, then
    return false;
  }
}

MILLRACE_INLINE void engine::run_deferred() noexcept {
  turn_bytes_ = 0;
  // Sockets not served yet go first. libcurl ignores sockets that it has closed.
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

MILLRACE_INLINE void engine::act(curl_socket_t fd, int flags) noexcept {
  while (retired_ != nullptr) retired_ = std::move(retired_->next);
  stage_record* const before = loop_.enter(account_);
  action_bytes = 0;  // of all rounds: newer versions of libcurl ask for another one as long as there is more to read
  // A few rounds at most: whatever still asks for 0 ms then has its timer armed and continues in the next turn.
  for (int round = 0; round < 8; ++round) {
    int running = 0;
    due_at_once_ = false;
    if (fd == all_sockets) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // nothing else checks all of them, and reports sockets
      curl_multi_socket_all(multi_, &running);
#pragma GCC diagnostic pop
      fd = CURL_SOCKET_TIMEOUT;
    } else {
      curl_multi_socket_action(multi_, fd, flags, &running);
    }
    collect();
    if (!due_at_once_ || action_bytes >= action_limit) break;
    fd = CURL_SOCKET_TIMEOUT;
    flags = 0;
  }
  loop_.enter(before);
}

MILLRACE_INLINE void engine::look() noexcept {
  if (connecting_ == 0) return;
  look_at(millrace::detail::added(loop_.now(), look_pause));
  act(all_sockets, 0);
}

MILLRACE_INLINE void engine::look_at(time_point due) noexcept {
  loop_.add_timer(look_, due);
}

MILLRACE_INLINE void engine::collect() noexcept {
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode result = message->data.result;
    char* who = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &who);
    reinterpret_cast<client*>(who)->transfer_ended(result);
  }
}

}  // namespace millrace::http

namespace millrace::inline MILLRACE_ABI::http::detail {

MILLRACE_INLINE void copy_past_caches(void* to, const void* from, std::size_t size) noexcept {
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
#if defined(__SSE2__)
  constexpr std::size_t line = 64;
  const std::size_t before = (line - reinterpret_cast<std::uintptr_t>(out) % line) % line;
  if (size >= before + line) {
    std::memcpy(out, in, before);
    out += before;
    in += before;
    size -= before;
    for (; size >= line; size -= line, out += line, in += line) {
      sixteen four[4];
      std::memcpy(four, in, line);
      auto* const target = reinterpret_cast<sixteen*>(out);
      for (std::size_t i = 0; i < 4; ++i) {
#if defined(__clang__)
        __builtin_nontemporal_store(four[i], target + i);
#else
        __builtin_ia32_movntdq(target + i, four[i]);
#endif
      }
    }
    __builtin_ia32_sfence();  // such stores are not ordered with those that publish the data
  }
#endif
  std::memcpy(out, in, size);
}

/// The kind of failure that libcurl's result stands for.
MILLRACE_INLINE failure failure_of(CURLcode rc) noexcept {
  switch (rc) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return failure::resolve;
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
      return failure::connect;
    case CURLE_OPERATION_TIMEDOUT:
      return failure::timeout;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
      return failure::tls;
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE:
      return failure::broken;
    case CURLE_FILESIZE_EXCEEDED:
      return failure::too_large;
    default:
      return failure::protocol;
  }
}

MILLRACE_INLINE transfer::transfer(engine& e, request&& r, std::shared_ptr<const transport_options> transport,
                                   body_options&& body)
    : engine_(e),
      request_(std::move(r)),
      transport_(std::move(transport)),
      body_(std::move(body)),
      parser_(request_, body_.resume != nullptr) {
  easy_ = engine_.take_handle();
  progress_ = engine_.loop().now();
  try {
    configure();
    watch(after(std::min(transport_->first_byte_timeout, queue_look)));
    engine_.start(easy_);  // last: once libcurl has it, only the destructor takes it back
  } catch (...) {
    engine_.loop().remove_timer(*this);
    engine_.give_back_handle(easy_);
    throw;
  }
}

MILLRACE_INLINE transfer::~transfer() {
  if (engine_.loop().process().here()) {
    leave_partial();
    stand_still(false);
  }
  engine_.loop().remove_timer(*this);
  engine_.stop(easy_, this);
  engine_.give_back_handle(easy_);
}

MILLRACE_INLINE void transfer::set_waiter(ready_node* node, bool for_head, stage_record* stage) noexcept {
  if (stage != nullptr) engine_.charge_to(stage, this);
  waiter_ = node;
  waits_for_head_ = for_head;
}

MILLRACE_INLINE bytes transfer::take_body() {
  if (chunks_.empty()) {
    if (filled_ > 0) return take_last();
    rethrow_if_failed();
    return bytes();
  }
  bytes chunk = std::move(chunks_.front());
  chunks_.pop_front();
  if (paused_ && !ended_) unpause();
  return chunk;
}

MILLRACE_INLINE void transfer::transfer_ended(CURLcode result) noexcept {
  if (!error_ && !parser_.any() && out_of_descriptors(result) != 0) {
    if (engine_.wait_for_descriptors(easy_, *this))
      return watch(millrace::detail::added(engine_.loop().now(), queue_look));
  }
  if (reached() == step::connecting && (result == CURLE_COULDNT_CONNECT || result == CURLE_OPERATION_TIMEDOUT)) {
    // If none was tried, libcurl (7.88 to 8.5 at least) reports the failure of the handle's last connection.
    const bool failed = result == CURLE_COULDNT_CONNECT || (!trying_[0] && !trying_[1]);
    not_connected();
    if (!error_ && failed && passed_over_ && !any_address_) {
      any_address_ = true;
      if (start_again()) return;
    }
  }
  if (std::exchange(leaves_, false) && !error_) {
    curl_easy_setopt(easy_, CURLOPT_FRESH_CONNECT, 1L);
    if (start_again()) return;
  }
  engine_.loop().remove_timer(*this);
  if (!error_) error_ = verdict(result);
  if (!address_ && result == CURLE_SSL_CONNECT_ERROR) {  // it is known from the request on
    const char* ip = nullptr;
    long port = 0;
    curl_easy_getinfo(easy_, CURLINFO_PRIMARY_IP, &ip);
    curl_easy_getinfo(easy_, CURLINFO_PRIMARY_PORT, &port);
    if (ip != nullptr) address_ = socket_address(ip, static_cast<int>(port));
  }
  if (!ended_) judge_address();
  if (!error_) {
    engine_.succeeded();
    measure();
  }
  count();
  end();
}

MILLRACE_INLINE bool transfer::start_again() noexcept {
  if (!engine_.start_again(easy_, *this)) {
    error_ = std::make_exception_ptr(std::bad_alloc());
    return false;
  }
  watch(millrace::detail::added(engine_.loop().now(), queue_look));
  return true;
}

MILLRACE_INLINE void transfer::not_connected(const socket_address& a, bool only_one) noexcept {
  try {
    const std::string_view host = unconditional_hosts::host_of(request_.url);
    log(engine_.addresses().failed(host, a, engine_.loop().now(), only_one));
  } catch (...) {  // no memory: it is tried again
  }
}

MILLRACE_INLINE void transfer::reached_address() noexcept {
  try {
    log(engine_.addresses().reached(unconditional_hosts::host_of(request_.url), address_, engine_.loop().now()));
  } catch (...) {  // no memory: it is not told
  }
}

MILLRACE_INLINE std::string transfer::proxy() const {
  if (transport_->proxy.empty() || request_.url.compare(0, 5, "http:") != 0) return {};
  // no_proxy may have led past it: then the connection is to another port, as a rule.
  long port = 0;
  curl_easy_getinfo(easy_, CURLINFO_PRIMARY_PORT, &port);
  if (port != proxy_port(transport_->proxy)) return {};
  return displayed_proxy(transport_->proxy);
}

MILLRACE_INLINE void transfer::blame(const char* what) noexcept {
  if (!address_) return;
  try {
    log(engine_.addresses().unwell(unconditional_hosts::host_of(request_.url), address_, engine_.loop().now(), what));
  } catch (...) {  // no memory: it does not count
  }
}

MILLRACE_INLINE void transfer::judge_address() noexcept {
  if (!address_) return;
  if (!error_) {
    const int status = parser_.head().status;
    if (status < 500) {
      if (request_.method == "HEAD") return;  // a node may answer these and break off all bodies
      return engine_.addresses().well(unconditional_hosts::host_of(request_.url), address_);
    }
    if (!may_pass(status) || status == 503) return;  // 503: it may be about the number of requests
    char what[24];
    std::snprintf(what, sizeof what, "status %d", status);
    return blame(what);
  }
  try {
    std::rethrow_exception(error_);
  } catch (const short_answer&) {
  } catch (const error& e) {
    if (e.kind() == failure::connect) blame("a handshake that breaks off");
    if (e.kind() == failure::timeout) blame("no answer in time");
    if (e.kind() == failure::broken) blame("a broken connection");
    if (e.kind() == failure::protocol) blame("an answer that is not valid");
  } catch (...) {
  }
}

MILLRACE_INLINE void transfer::measure() noexcept {
  if (!address_ || stood_still_ || !request_.range || parser_.head().status != 206) return;
  curl_off_t sent = 0, first = 0, total = 0;  // microseconds
  curl_easy_getinfo(easy_, CURLINFO_PRETRANSFER_TIME_T, &sent);
  curl_easy_getinfo(easy_, CURLINFO_STARTTRANSFER_TIME_T, &first);
  curl_easy_getinfo(easy_, CURLINFO_TOTAL_TIME_T, &total);
  if (sent > first || first > total) return;
  try {
    const std::string_view host = unconditional_hosts::host_of(request_.url);
    log(engine_.addresses().took(host, address_, engine_.loop().now(), std::chrono::microseconds(first - sent),
                                 std::chrono::microseconds(total - first), received_));
  } catch (...) {  // no memory: it does not count
  }
}

MILLRACE_INLINE void transfer::count() noexcept {
  millrace::detail::runtime_counts* const counts = engine_.loop().runtime().counts();
  millrace::detail::tracer* const trace = engine_.loop().runtime().trace();
  if (counts == nullptr && trace == nullptr) return;
  // libcurl reports the end after all that it does in one call: by then the next request may be on the connection.
  std::int64_t now = monotonic_ns();
  if (sent_ns_ != 0) {
    curl_off_t sent = 0, total = 0;  // microseconds
    curl_easy_getinfo(easy_, CURLINFO_PRETRANSFER_TIME_T, &sent);
    curl_easy_getinfo(easy_, CURLINFO_TOTAL_TIME_T, &total);
    now = std::min(now, std::max(sent_ns_ + 1000 * (total - sent), std::max(sent_ns_, first_ns_)));
  }
  const bool whole = !error_ && sent_ns_ != 0 && first_ns_ != 0;
  if (counts != nullptr && whole) {
    counts->request.add(now - begun_ns_);
    counts->first_byte.add(first_ns_ - sent_ns_);
  }
  if (trace == nullptr) return;
  using millrace::detail::trace_lane;
  trace->add({.begin = begun_ns_,
              .end = sent_ns_ != 0 ? sent_ns_ : now,
              .name = sent_ns_ != 0 ? "queue" : "failed in the queue",
              .lane = trace_lane::queue});
  if (sent_ns_ == 0) return;
  const auto add = [&](std::int64_t begin, std::int64_t end, const char* name, std::uint64_t bytes) {
    trace->add({.begin = begin,
                .end = end,
                .name = name,
                .lane = trace_lane::connection,
                .key = own_port_,
                .bytes = static_cast<std::int64_t>(bytes)});
  };
  if (!whole) return add(sent_ns_, now, "failed", received_);
  add(sent_ns_, first_ns_, "first byte", 0);
  add(first_ns_, now, "body", received_);
}

MILLRACE_INLINE void transfer::log(const std::string& line) const {
  if (!line.empty()) millrace::detail::log_line(engine_.loop(), line);
}

MILLRACE_INLINE int transfer::on_sending(void* self, char* ip, char*, int port, int own_port) noexcept {
  auto& t = *static_cast<transfer*>(self);
  t.address_ = socket_address(ip, port);
  for (socket_address& each : t.trying_) each = socket_address();
  if (t.any_address_) {
    t.engine_.addresses().needed(t.address_);
  } else if (t.engine_.addresses().slow(t.address_, t.engine_.loop().now())) {
    t.passed_over_ = true;
    t.leaves_ = true;
    return CURL_PREREQFUNC_ABORT;
  }
  t.reached_address();
  t.moved(step::connected);
  t.sent_ns_ = monotonic_ns();
  t.own_port_ = static_cast<std::uint32_t>(own_port);
  t.touch();
  return CURL_PREREQFUNC_OK;
}

MILLRACE_INLINE curl_socket_t transfer::on_opening(void* self, curlsocktype, curl_sockaddr* address) noexcept {
  auto& t = *static_cast<transfer*>(self);
  t.moved(step::connecting);
  // libcurl tries the addresses of a family in turn: it has given up the one before.
  const socket_address next(address->addr, address->addrlen);
  socket_address& trying = t.trying_[address->family == AF_INET6 ? 1 : 0];
  const time_point now = t.engine_.loop().now();
  if (trying) t.not_connected(trying, false);
  trying = socket_address();
  const addresses& known = t.engine_.addresses();
  if (!t.any_address_ && (known.passes_over(next, now) || (t.request_.elsewhere && known.suspect(next, now)))) {
    t.passed_over_ = true;
    t.opening_error_ = 0;
    return CURL_SOCKET_BAD;
  }
  const int fd = t.engine_.open_socket(*address);
  t.opening_error_ = fd < 0 ? errno : 0;
  if (fd >= 0) {
    ++t.opened_;
    trying = next;
  }
  return fd;
}

MILLRACE_INLINE int transfer::out_of_descriptors(CURLcode result) const noexcept {
  switch (result) {
    case CURLE_COULDNT_CONNECT:
      return opening_error_ == EMFILE || opening_error_ == ENFILE ? opening_error_ : 0;
    case CURLE_COULDNT_RESOLVE_HOST:  // these open files and sockets, and do not report why they fail
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_SSL_CACERT_BADFILE: {
      const millrace::detail::owned_fd one(::eventfd(0, EFD_CLOEXEC));
      return one.get() < 0 && (errno == EMFILE || errno == ENFILE) ? errno : 0;
    }
    default:
      return 0;
  }
}

MILLRACE_INLINE void transfer::configure() {
  const auto set = [this](auto option, auto value) {
    const CURLcode rc = curl_easy_setopt(easy_, option, value);
    if (rc != CURLE_OK)
      throw configuration_error(std::string("libcurl refused an option: ") + curl_easy_strerror(rc), at());
  };
  // libcurl would see the URL only up to a NUL.
  for (char c : request_.url) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      throw configuration_error("the URL has a control character", at());
    }
  }
  set(CURLOPT_PRIVATE, static_cast<engine::client*>(this));
  set(CURLOPT_SHARE, engine_.share());
  set(CURLOPT_URL, request_.url.c_str());
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  // Dropped or timed out while its host is looked up: libcurl would wait, on the loop's thread, for getaddrinfo(). It
  // detaches a thread, which ends when that has returned.
  set(CURLOPT_QUICK_EXIT, 1L);
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(CURLOPT_HTTP_CONTENT_DECODING, 0L);
  set(CURLOPT_BUFFERSIZE, detail::receive_buffer);
  // In whole milliseconds, rounded up: 0 would be libcurl's own 300 s. Bounded: libcurl keeps an int of them.
  const duration connecting =
      std::clamp<duration>(transport_->connect_timeout, duration(1), std::chrono::hours(24 * 20));
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>((connecting - duration(1)) / std::chrono::milliseconds(1) + 1));
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  if (request_.new_connection || request_.elsewhere) set(CURLOPT_FRESH_CONNECT, 1L);
  set(CURLOPT_MAXAGE_CONN, 5L);  // S3 closes connections that idle for about that long
  if (const char* why = misread_proxy(transport_->proxy)) throw configuration_error(why, at());
  set(CURLOPT_PROXY, transport_->proxy.c_str());  // set even when empty: libcurl reads the environment otherwise
  set(CURLOPT_NOPROXY, transport_->no_proxy.c_str());
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // the proxy's reply to CONNECT is not the answer
  set(CURLOPT_SSL_VERIFYPEER, 1L);
  set(CURLOPT_SSL_VERIFYHOST, 2L);
  if (!transport_->ca_file.empty()) {
    set(CURLOPT_CAINFO, transport_->ca_file.c_str());
    set(CURLOPT_PROXY_CAINFO, transport_->ca_file.c_str());
  } else if (missing_system_authorities() != nullptr) {
    // libcurl refuses every connection if its file is missing, also if a directory has the authorities.
    set(CURLOPT_CAINFO, static_cast<const char*>(nullptr));
    set(CURLOPT_PROXY_CAINFO, static_cast<const char*>(nullptr));
  }
  if (!transport_->ca_directory.empty()) {
    set(CURLOPT_CAPATH, transport_->ca_directory.c_str());
    set(CURLOPT_PROXY_CAPATH, transport_->ca_directory.c_str());
  }
  set(CURLOPT_ERRORBUFFER, message_);
  set(CURLOPT_HEADERFUNCTION, &transfer::on_header);
  set(CURLOPT_HEADERDATA, this);
  set(CURLOPT_WRITEFUNCTION, &transfer::on_body);
  set(CURLOPT_WRITEDATA, this);
  set(CURLOPT_PREREQFUNCTION, &transfer::on_sending);
  set(CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
  set(CURLOPT_DNS_CACHE_TIMEOUT, engine_.may_look_up() ? 0L : 60L);
  set(CURLOPT_RESOLVER_START_FUNCTION, &transfer::on_look_up);
  set(CURLOPT_RESOLVER_START_DATA, this);
  set(CURLOPT_OPENSOCKETFUNCTION, &transfer::on_opening);
  set(CURLOPT_OPENSOCKETDATA, this);
  set(CURLOPT_PREREQDATA, this);
  if (request_.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (!request_.body.empty() || request_.method == "PUT" || request_.method == "POST") {
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDS, request_.body.empty() ? "" : request_.body.data());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request_.body.size()));
    set(CURLOPT_CUSTOMREQUEST, request_.method.c_str());
  } else {
    set(CURLOPT_CUSTOMREQUEST, request_.method.c_str());
  }
  for (const auto& [name, value] : request_.fields) fields_.add(name, value);
  if (request_.range && request_.fields.find("range") == nullptr) {
    fields_.add("Range", request_.range->header_value());
  }
  for (const char* unwanted : {"Expect", "Content-Type", "Accept"}) {
    if (request_.fields.find(unwanted) == nullptr) fields_.suppress(unwanted);
  }
  if (request_.fields.find("accept-encoding") == nullptr) fields_.add("Accept-Encoding", "identity");
  set(CURLOPT_HTTPHEADER, fields_.list());
}

MILLRACE_INLINE std::size_t transfer::on_header(char* data, std::size_t size, std::size_t count, void* self) noexcept {
  auto& t = *static_cast<transfer*>(self);
  if (t.ended_) return 0;  // timed out: libcurl learns it here
  try {
    t.came(size * count, !t.parser_.any());
    if (!t.parser_.any()) {
      t.first_ns_ = monotonic_ns();
      t.watch(t.after(t.transport_->stall_timeout));  // from now on the shorter look-back
    }
    if (t.parser_.line(std::string_view(static_cast<const char*>(data), size * count))) {
      t.touch();
      t.wake();
    }
    return size * count;
  } catch (...) {
    t.error_ = std::current_exception();
    return 0;
  }
}

MILLRACE_INLINE std::size_t transfer::on_body(char* data, std::size_t size, std::size_t count, void* self) noexcept {
  auto& t = *static_cast<transfer*>(self);
  if (t.ended_) return 0;
  try {
    const std::size_t n = size * count;
    if (t.ahead() + n > t.body_.window && !t.chunks_.empty()) {
      t.paused_ = true;
      t.stand_still(true);
      return CURL_WRITEFUNC_PAUSE;
    }
    if (t.engine_.action_bytes >= t.engine_.action_limit) {
      t.paused_ = true;
      t.engine_.resume_next_turn(&t);
      return CURL_WRITEFUNC_PAUSE;
    }
    t.came(n, t.received_ == 0);
    t.store(data, n);
    return n;
  } catch (...) {
    t.error_ = std::current_exception();
    return 0;
  }
}

MILLRACE_INLINE void transfer::store(const char* data, std::size_t n) {
  engine_.took(n, !current_ && body_.pool && !body_.pool->has_free());
  while (n > 0) {
    if (!current_) begin_piece();
    const std::size_t part = std::min(n, current_.capacity() - filled_);
    // While it is in the cache. If the memory is summed anyway, the CRC-32C is known in the end.
    const bool known = resumable_ && current_.is_summed() && body_.resume->crc.kind() == crc_kind::crc32c;
    if (resumable_ && !known) body_.resume->crc.add(data, part);
    current_.note_filled(filled_, data, part);
    if (current_.capacity() >= past_caches) {
      copy_past_caches(current_.data() + filled_, data, part);
    } else {
      std::memcpy(current_.data() + filled_, data, part);
    }
    filled_ += part;
    received_ += part;
    data += part;
    n -= part;
    if (filled_ == current_.capacity()) {
      push_filled();
      wake();
    }
  }
}

MILLRACE_INLINE void transfer::begin_piece() {
  const int status = parser_.head().status;
  const bool first = received_ == 0;  // not yet counted
  resumable_ = status == (request_.range ? 206 : 200) && first && body_.resume != nullptr;
  if (resumable_ && body_.resume->memory) {
    current_ = std::move(body_.resume->memory);
    filled_ = std::exchange(body_.resume->filled, 0);
  } else {
    const bool success = status >= 200 && status < 300;
    current_ = body_.pool && success ? body_.pool->acquire() : writable_bytes::allocate(body_.heap_chunk);
  }
}

MILLRACE_INLINE void transfer::end() noexcept {
  ended_ = true;
  stand_still(false);
  if (error_) leave_partial();
  wake();
}

MILLRACE_INLINE bytes transfer::take_last() {
  bytes last = current_.share(0, filled_);
  current_ = writable_bytes();
  filled_ = 0;
  return last;
}

MILLRACE_INLINE void transfer::leave_partial() noexcept {
  if (!resumable_ || filled_ == 0) return;
  body_.resume->memory = std::move(current_);
  body_.resume->filled = std::exchange(filled_, 0);
}

MILLRACE_INLINE std::size_t transfer::ahead() const noexcept {
  std::size_t total = filled_;
  for (const bytes& c : chunks_) total += c.size();
  return total;
}

MILLRACE_INLINE void transfer::unpause() noexcept {
  paused_ = false;
  stand_still(false);
  touch();
  watch(after(transport_->stall_timeout));
  engine_.action_bytes = 0;  // this is an action of its own: with the last one's count on_body would pause again
  curl_easy_pause(easy_, CURLPAUSE_CONT);  // may call on_body at once
}

MILLRACE_INLINE void transfer::fire() noexcept {
  if (ended_ || paused_) return;  // unpause() watches again
  curl_off_t sent = 0;
  curl_easy_getinfo(easy_, CURLINFO_PRETRANSFER_TIME_T, &sent);
  const bool started = parser_.any();
  const duration limit = started ? transport_->stall_timeout : transport_->first_byte_timeout;
  const time_point now = engine_.loop().now();
  if (sent == 0) {  // queued or connecting: libcurl's connect time-out counts
    if (reached() != step::queued || engine_.make_room_for(easy_)) {
      return watch(millrace::detail::added(now, std::min(limit, queue_look)));
    }
    error_ = std::make_exception_ptr(std::bad_alloc());
    return end();
  }
  if (now - progress_ < limit) return watch(after(limit));
  curl_off_t uploaded = 0;
  curl_easy_getinfo(easy_, CURLINFO_SIZE_UPLOAD_T, &uploaded);
  const auto sent_now = static_cast<std::uint64_t>(uploaded - std::exchange(uploaded_, uploaded));
  const bool ended = static_cast<std::uint64_t>(uploaded) >= request_.body.size();
  if (sent_now >= (ended ? 1 : least_within(limit))) {  // a large body, a slow link: it goes on
    progress_ = now;
    return watch(millrace::detail::added(now, limit));
  }
  try {
    const std::string ms = std::to_string(limit / std::chrono::milliseconds(1)) + " ms";
    std::string what = started ? "no byte of the answer for " : "no answer within ";
    if (came_ != seen_) what = "only " + std::to_string(came_ - seen_) + " bytes of the answer within ";
    throw error(failure::timeout, told_of(request_, what + ms), at(received_));
  } catch (...) {  // that, or no memory to say it
    error_ = std::current_exception();
  }
  judge_address();
  end();
}

MILLRACE_INLINE std::exception_ptr transfer::verdict(CURLcode result) {
  try {
    if (result != CURLE_OK) {
      std::string reason = message_[0] != '\0' ? message_ : curl_easy_strerror(result);
      // libcurl repeats a proxy's URL that it cannot read, password and all, as far as its buffer goes.
      if (reason.compare(0, 17, "Unsupported proxy") == 0) reason = "libcurl does not know such a proxy";
      long tunnel = 0;
      curl_easy_getinfo(easy_, CURLINFO_HTTP_CONNECTCODE, &tunnel);
      if (tunnel >= 300 && !parser_.any()) {
        reason = "the proxy " + displayed_proxy(transport_->proxy) + " answers " + std::to_string(tunnel) +
                 (tunnel == 407 ? " Proxy Authentication Required" : "");
        const failure kind = may_pass(static_cast<int>(tunnel)) ? failure::connect : failure::status;
        throw error(kind, told_of(request_, std::move(reason)), at(), static_cast<int>(tunnel));
      }
      if (const int code = out_of_descriptors(result)) {
        reason = std::string("no connection could be opened: ") + std::strerror(code) +
                 (code == EMFILE ? " (EMFILE: RLIMIT_NOFILE, ulimit -n)" : " (ENFILE)");
        throw error(failure::connect, told_of(request_, std::move(reason)), at());
      }
      if (result == CURLE_COULDNT_CONNECT && opening_error_ == ENOMEM) throw std::bad_alloc();
      if (result == CURLE_COULDNT_CONNECT && opening_error_ != 0) {
        reason += std::string(": no socket: ") + std::strerror(opening_error_);
      }
      if (failure_of(result) == failure::tls) {
        reason += about_authorities(*transport_, reason, result == CURLE_SSL_CACERT_BADFILE);
      }
      const where place = parser_.any() || request_.range ? at(received_) : at();
      throw error(failure_of(result), told_of(request_, std::move(reason)), place, parser_.head().status);
    }
    // libcurl answers OK to heads cut short and to bodies without an end: judged here.
    if (!parser_.complete()) {
      throw error(failure::broken, told_of(request_, "the answer ended inside its head"), at());
    }
    parser_.check_body(received_);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace millrace::http::detail
