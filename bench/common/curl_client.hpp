// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>
#include <liburing.h>
#include <poll.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include <millrace/memory/slab_pool.hpp>

#include "bench/common/raw_client.hpp"

namespace bench {

/// libcurl's multi handle on a bare io_uring: one-shot polls, armed once per turn; 256 KiB reads, bodies copied into
/// the slabs of a pool. What millrace does without millrace: no verdicts, no time-outs, no retries, no order.
class curl_client {
 public:
  /// `ca_file`: for an endpoint of https.
  curl_client(std::string endpoint, std::size_t connections, const std::string& ca_file = std::string())
      : endpoint_(std::move(endpoint)), transfers_(connections) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (io_uring_queue_init(256, &ring_, 0) != 0) std::abort();
    multi_ = curl_multi_init();
    curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &curl_client::on_socket);
    curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
    curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &curl_client::on_timer);
    curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(connections));
    for (transfer& t : transfers_) {
      t.easy = curl_easy_init();
      curl_easy_setopt(t.easy, CURLOPT_PRIVATE, &t);
      curl_easy_setopt(t.easy, CURLOPT_BUFFERSIZE, 256 * 1024L);
      curl_easy_setopt(t.easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
      curl_easy_setopt(t.easy, CURLOPT_NOSIGNAL, 1L);
      curl_easy_setopt(t.easy, CURLOPT_NOPROXY, "*");
      if (!ca_file.empty()) curl_easy_setopt(t.easy, CURLOPT_CAINFO, ca_file.c_str());
      curl_easy_setopt(t.easy, CURLOPT_WRITEFUNCTION, &curl_client::on_body);
      curl_easy_setopt(t.easy, CURLOPT_WRITEDATA, &t);
    }
  }
  curl_client(const curl_client&) = delete;
  curl_client& operator=(const curl_client&) = delete;
  ~curl_client() {
    for (transfer& t : transfers_) curl_easy_cleanup(t.easy);
    curl_multi_cleanup(multi_);
    io_uring_queue_exit(&ring_);
    curl_global_cleanup();
  }

  std::uint64_t fetch(const std::vector<range>& all, mill::slab_pool pool) {
    pool_ = std::move(pool);
    all_ = &all;
    next_ = 0;
    running_ = 0;
    total_ = 0;
    for (transfer& t : transfers_) ask(t);
    while (running_ > 0) turn();
    return total_;
  }

 private:
  struct transfer {
    CURL* easy = nullptr;
    mill::writable_bytes slab;
    std::size_t filled = 0;
  };
  struct watched {
    int events = 0;
    bool armed = false;
    std::uint32_t generation = 0;
  };

  void ask(transfer& t) {
    if (next_ == all_->size()) return;
    const range& r = (*all_)[next_++];
    t.slab = pool_.acquire();
    t.filled = 0;
    curl_easy_setopt(t.easy, CURLOPT_URL, (endpoint_ + r.path).c_str());
    const std::string text = std::to_string(r.offset) + '-' + std::to_string(r.offset + r.length - 1);
    curl_easy_setopt(t.easy, CURLOPT_RANGE, text.c_str());
    curl_multi_add_handle(multi_, t.easy);
    ++running_;
  }

  void turn() {
    for (auto& [fd, w] : sockets_) {
      if (w.armed || w.events == 0) continue;
      io_uring_sqe* e = io_uring_get_sqe(&ring_);
      io_uring_prep_poll_add(e, fd, static_cast<unsigned>(w.events));
      io_uring_sqe_set_data64(e, std::uint64_t(w.generation) << 32 | static_cast<std::uint32_t>(fd));
      w.armed = true;
    }
    io_uring_cqe* c = nullptr;
    __kernel_timespec limit{timer_ms_ < 0 ? 1 : timer_ms_ / 1000, timer_ms_ < 0 ? 0 : timer_ms_ % 1000 * 1000000};
    io_uring_submit_and_wait_timeout(&ring_, &c, 1, &limit, nullptr);
    bool any = false;
    while (io_uring_peek_cqe(&ring_, &c) == 0) {
      const std::uint64_t tag = io_uring_cqe_get_data64(c);
      const int result = c->res;
      io_uring_cqe_seen(&ring_, c);
      any = true;
      const auto found = sockets_.find(static_cast<int>(tag & 0xffffffff));
      if (found == sockets_.end() || found->second.generation != tag >> 32) continue;
      found->second.armed = false;
      act(found->first,
          (result & (POLLIN | POLLHUP) ? CURL_CSELECT_IN : 0) | (result & POLLOUT ? CURL_CSELECT_OUT : 0));
    }
    if (!any || timer_ms_ == 0) act(CURL_SOCKET_TIMEOUT, 0);
  }

  void act(curl_socket_t fd, int flags) {
    do {
      timer_ms_ = -1;
      int left = 0;
      curl_multi_socket_action(multi_, fd, flags, &left);
      while (CURLMsg* m = curl_multi_info_read(multi_, &left)) {
        if (m->data.result != CURLE_OK) std::abort();
        char* self = nullptr;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &self);
        auto& t = *reinterpret_cast<transfer*>(self);
        curl_multi_remove_handle(multi_, t.easy);
        --running_;
        total_ += t.filled;
        t.slab = mill::writable_bytes();
        ask(t);
      }
      fd = CURL_SOCKET_TIMEOUT;
      flags = 0;
    } while (timer_ms_ == 0);
  }

  static int on_socket(CURL*, curl_socket_t fd, int what, void* self, void*) {
    watched& w = static_cast<curl_client*>(self)->sockets_[fd];
    const int events = (what & CURL_POLL_IN ? POLLIN : 0) | (what & CURL_POLL_OUT ? POLLOUT : 0);
    w.events = what == CURL_POLL_REMOVE ? 0 : events;
    ++w.generation;
    w.armed = false;  // an old poll may still fire: its generation is over
    return 0;
  }
  static int on_timer(CURLM*, long ms, void* self) {
    static_cast<curl_client*>(self)->timer_ms_ = ms;
    return 0;
  }
  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self) {
    auto& t = *static_cast<transfer*>(self);
    std::memcpy(t.slab.data() + t.filled, data, size * count);
    t.filled += size * count;
    return size * count;
  }

  const std::string endpoint_;
  mill::slab_pool pool_;
  std::vector<transfer> transfers_;
  io_uring ring_{};
  CURLM* multi_ = nullptr;
  std::unordered_map<int, watched> sockets_;
  const std::vector<range>* all_ = nullptr;
  std::size_t next_ = 0, running_ = 0;
  std::uint64_t total_ = 0;
  long timer_ms_ = -1;
};

}  // namespace bench
