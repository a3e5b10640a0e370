// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/http/engine.hpp>

namespace millrace::http {

MILLRACE_INLINE engine::engine(event_loop& loop, engine_options options)
    : loop_(loop), options_(options), timer_(*this), next_turn_(*this) {
  if (options.connections < 1 || options.connections_per_host < 1 || options.receive_buffer < 1024)
    throw configuration_error("an HTTP engine needs a connection, one per host, and a receive buffer of 1 KiB");
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
  curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS, options_.connections);
  curl_multi_setopt(multi_, CURLMOPT_MAX_HOST_CONNECTIONS, options_.connections_per_host);
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

MILLRACE_INLINE void engine::start(CURL* easy) {
  const CURLMcode rc = curl_multi_add_handle(multi_, easy);
  if (rc != CURLM_OK) throw configuration_error(std::string("libcurl refused a transfer: ") + curl_multi_strerror(rc));
  ++transfers_;
}

MILLRACE_INLINE void engine::stop(CURL* easy, client* who) noexcept {
  curl_multi_remove_handle(multi_, easy);
  --transfers_;
  if (charged_by_ == who) {  // the record may end with the pipeline
    account_ = nullptr;
    charged_by_ = nullptr;
  }
  who->unlink();
}

MILLRACE_INLINE bool engine::make_room_for(CURL* easy) noexcept {
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

MILLRACE_INLINE void engine::took(std::size_t n, bool new_memory) {
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

MILLRACE_INLINE int engine::on_socket(CURL*, curl_socket_t fd, int what, void* self, void*) noexcept {
  try {
    static_cast<engine*>(self)->follow(fd, what);
  } catch (...) {
  }
  return 0;
}

MILLRACE_INLINE void engine::follow(curl_socket_t fd, int what) {
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

MILLRACE_INLINE int engine::on_timer(CURLM*, long ms, void* self) noexcept {
  auto& e = *static_cast<engine*>(self);
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

MILLRACE_INLINE void engine::act(curl_socket_t fd, int flags) noexcept {
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
