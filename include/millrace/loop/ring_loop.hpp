// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>
#include <pthread.h>

#include <millrace/loop/detail/epoll_set.hpp>
#include <millrace/loop/detail/file_queue.hpp>
#include <millrace/loop/detail/ring.hpp>
#include <millrace/loop/detail/ring_prepare.hpp>
#include <millrace/loop/detail/wake_event.hpp>
#include <millrace/loop/detail/watch_table.hpp>
#include <millrace/loop/event_loop.hpp>
#include <millrace/loop/loop_options.hpp>

namespace millrace {

/// The event loop on io_uring. See event_loop.
///
/// Once per turn everything that changed goes to the kernel in one call: cancellations, one-shot polls of the watches
/// that are to be armed again, file operations, the wake-up. What is under way is counted against the completion ring,
/// which therefore cannot overflow: file operations beyond their share wait in the loop, watches beyond theirs are
/// polled through an epoll set inside the ring, and a share is kept for cancellations, which never wait for anything.
/// The ring belongs to the thread that polls it first; when another thread goes on with the loop, it is made anew.
template <class T = void>
class basic_ring_loop final : public event_loop {
 public:
  using flavour = typename detail::ring<T>::flavour;

  /// Null, with the errno value in `refused`, where the kernel gives no ring. Throws io_error when there are no
  /// descriptors left. `best` is lowered until the kernel agrees.
  static std::unique_ptr<basic_ring_loop> try_make(const loop_options& o, int& refused,
                                                   flavour best = flavour::deferred) {
    std::unique_ptr<basic_ring_loop> made(new basic_ring_loop(o, best));
    refused = made->open();
    if (refused != 0) made.reset();
    return made;
  }
  ~basic_ring_loop() override {
    shut_down();
    MILLRACE_ASSERT(watches_.live() == 0, "an event loop was destroyed before its watches");
    end_polls();
  }

  const char* backend() const noexcept override { return "io_uring"; }
  /// How the ring was set up, for reports.
  flavour ring_flavour() const noexcept { return ring_.kind(); }

  void watch(fd_watch& w, int fd, unsigned poll_events) override {
    std::uint32_t index;
    if (w.watched()) {
      watches_.check(w);
      index = watches_.index_of(w);
      detail::watch_table::slot& s = watches_.at(index);
      if (s.fd == fd && s.events == poll_events && !s.broken) return;
      disarm(index);
      ++s.generation;
      s.broken = false;
    } else {
      to_arm_.reserve(watches_.size() + 1);  // so that listing never allocates
      index = watches_.attach(w);
    }
    watches_.at(index).fd = fd;
    watches_.at(index).events = poll_events;
    list(index);
  }

  void unwatch(fd_watch& w) noexcept override {
    if (!w.watched()) return;
    disarm(watches_.index_of(w));
    watches_.detach(w);
  }

  void start(file_operation& op) noexcept override {
    operation_started();
    waiting_.push(op, detail::file_queue::place::queued);
  }

  void cancel(file_operation& op) noexcept override {
    using place = detail::file_queue::place;
    if (detail::file_queue::place_of(op) == place::queued) {
      waiting_.remove(op);
      operation_finished();
      detail::file_queue::complete(op, -ECANCELED);
    } else if (detail::file_queue::place_of(op) == place::kernel && !detail::file_queue::cancelled(op)) {
      detail::file_queue::set_cancelled(op);
      cancels_.push_back(detail::ring_data(op));
    }
  }

  /// Operations and polls in the kernel whose completion has not been taken, and the most there may be.
  std::size_t under_way() const noexcept { return polls_ + in_kernel_.size() + cancelling_ + others_; }
  std::size_t capacity() const noexcept { return capacity_; }
  /// Completions that the kernel had no room for: always 0.
  unsigned overflows() const noexcept { return ring_.overflows(); }

 protected:
  void poll(bool block, std::optional<time_point> deadline) override {
    own_ring();
    submit_changes();
    if (!to_arm_.empty() || told_) block = false;  // who was told of a refusal may have made something ready
    told_ = false;
    std::optional<duration> timeout;
    if (block && deadline) {
      timeout = *deadline - now();
      if (timeout->count() <= 0) block = false;
    }
    if (block) {
      wake_.sleep_begins();
      if (!inbox_empty()) block = false;
    }
    const int rc = block ? ring_.wait(timeout) : ring_.poke();
    wake_.sleep_ends();
    if (rc < 0) check(-rc);
    take_completions();
  }
  void wake() noexcept override { wake_.wake(); }

 private:
  using slot = detail::watch_table::slot;
  using tag = detail::ring_tag;

  basic_ring_loop(const loop_options& o, flavour best) : options_(o), best_(best) {}

  int open() noexcept {
    const unsigned completions = std::max(options_.completion_entries, 16u);
    const unsigned entries = std::clamp(options_.ring_entries, 1u, completions);
    const int error = ring_.open(entries, completions, best_);
    if (error == 0) capacity_ = ring_.completions();
    return error;
  }

  // ---- the ring and its thread

  void own_ring() {
    const pthread_t self = ::pthread_self();
    if (owned_ && ::pthread_equal(self, owner_)) return;
    if (owned_) {
      if (!in_kernel_.empty()) detail::misused("an event loop changed threads while a file operation was under way");
      renew();
    }
    if (const int error = ring_.enable()) fail(error, "cannot enable the ring");
    owner_ = self;
    owned_ = true;
  }

  // The old ring takes its polls with it: everything is armed again in the new one.
  void renew() {
    ring_.close();
    polls_ = cancelling_ = others_ = 0;
    wake_armed_ = overflow_armed_ = false;
    cancels_.clear();
    for (std::uint32_t i = 0; i < watches_.size(); ++i) {
      slot& s = watches_.at(i);
      s.polled = false;
      if (s.owner != nullptr && !s.in_epoll && !s.broken) list(i);
    }
    owned_ = false;
    if (const int error = open()) fail(error, "cannot set up a ring");
  }

  void check(int error) {
    if (error == ETIME || error == EINTR || error == EAGAIN || error == EBUSY) return;
    if (error == EEXIST) {
      // A new thread with the identity of the one that ended. The kernel took nothing from it.
      while (!in_kernel_.empty()) waiting_.push(in_kernel_.pop(), detail::file_queue::place::queued);
      renew();
      return;
    }
    fail(error, "io_uring_enter(2) failed");
  }
  [[noreturn]] static void fail(int error, const char* what) {
    throw io_error(error, std::string(what) + ": " + std::strerror(error));
  }

  // ---- shares of the completion ring

  std::size_t poll_share() const noexcept { return capacity_ / 2; }
  std::size_t file_share() const noexcept { return capacity_ / 3; }
  std::size_t cancel_share() const noexcept { return capacity_ - poll_share() - file_share() - 2; }  // wake, epoll set

  // ---- to the kernel

  void list(std::uint32_t index) noexcept {
    slot& s = watches_.at(index);
    if (s.listed) return;
    s.listed = true;
    to_arm_.push_back(index);
  }

  void disarm(std::uint32_t index) noexcept {
    slot& s = watches_.at(index);
    if (s.polled) cancels_.push_back(detail::ring_data_of_watch(watches_.tag(index)));
    if (s.in_epoll) overflow_->remove(s.fd);
    s.polled = s.in_epoll = false;
  }

  void submit_changes() {
    if (!wake_armed_) arm_wake();
    if (overflow_ && !overflow_armed_) arm_overflow();
    submit_cancels();
    if (!to_arm_.empty()) arm_watches();
    while (!waiting_.empty() && in_kernel_.size() < file_share()) {
      io_uring_sqe* e = ring_.entry();
      if (e == nullptr) return;
      file_operation& op = waiting_.pop();
      in_kernel_.push(op, detail::file_queue::place::kernel);
      detail::prepare(e, op.request());
      io_uring_sqe_set_data64(e, detail::ring_data(op));
    }
  }

  void arm_wake() noexcept {
    io_uring_sqe* e = ring_.entry();
    if (e == nullptr) return;
    io_uring_prep_poll_add(e, wake_.fd(), POLLIN);
    io_uring_sqe_set_data64(e, detail::ring_data(tag::wake));
    wake_armed_ = true;
    ++others_;
  }

  void arm_overflow() noexcept {
    io_uring_sqe* e = ring_.entry();
    if (e == nullptr) return;
    io_uring_prep_poll_add(e, overflow_->fd(), POLLIN);
    io_uring_sqe_set_data64(e, detail::ring_data(tag::overflow));
    overflow_armed_ = true;
    ++others_;
  }

  void submit_cancels() noexcept {
    std::size_t done = 0;
    while (done < cancels_.size() && cancelling_ < cancel_share()) {
      io_uring_sqe* e = ring_.entry();
      if (e == nullptr) break;
      // Polls too: a poll removal fails with -EALREADY when it meets a wake-up, also one after which the poll is armed
      // again (another event of the descriptor), and would then stay for ever. A cancellation leaves a mark.
      io_uring_prep_cancel64(e, cancels_[done], 0);
      io_uring_sqe_set_data64(e, detail::ring_data(tag::cancel));
      ++cancelling_;
      ++done;
    }
    cancels_.erase(cancels_.begin(), cancels_.begin() + static_cast<std::ptrdiff_t>(done));
  }

  void arm_watches() {
    std::size_t done = 0;
    for (const std::size_t listed = to_arm_.size(); done < listed; ++done) {  // what is listed meanwhile: next turn
      const std::uint32_t index = to_arm_[done];
      slot& s = watches_.at(index);
      if (s.owner == nullptr || s.polled || s.in_epoll || s.broken) {
        s.listed = false;
      } else if (polls_ >= poll_share()) {
        s.listed = false;
        move_to_epoll(index);
      } else {
        io_uring_sqe* e = ring_.entry();
        if (e == nullptr) break;
        io_uring_prep_poll_add(e, s.fd, s.events);
        io_uring_sqe_set_data64(e, detail::ring_data_of_watch(watches_.tag(index)));
        s.listed = false;
        s.polled = true;
        ++polls_;
      }
    }
    to_arm_.erase(to_arm_.begin(), to_arm_.begin() + static_cast<std::ptrdiff_t>(done));
  }

  void move_to_epoll(std::uint32_t index);

  // ---- from the kernel

  void take_completions() {
    for (unsigned n = ring_.completions_ready(); n > 0; --n) {
      const typename detail::ring<T>::completion c = ring_.take();
      switch (static_cast<tag>(c.data & detail::ring_tag_mask)) {
        case tag::file:
          finish(*reinterpret_cast<file_operation*>(c.data), c.result);
          break;
        case tag::poll:
          --polls_;
          polled(detail::watch_of_ring_data(c.data), c.result);
          break;
        case tag::wake:
          --others_;
          wake_armed_ = false;
          wake_.clear();
          break;
        case tag::overflow:
          --others_;
          overflow_armed_ = false;
          overflow_->wait(duration(0), [this](std::uint64_t watch_tag, unsigned events) {
            if (slot* s = watches_.find(watch_tag)) detail::watch_table::report(*s->owner, events);
          });
          break;
        case tag::cancel:
          --cancelling_;
          break;
      }
    }
  }

  void polled(std::uint64_t watch_tag, int result) noexcept {
    slot* s = watches_.find(watch_tag);
    if (s == nullptr) return;
    s->polled = false;
    const bool dead = result < 0 && result != -ECANCELED && result != -EINTR && result != -EAGAIN;
    if (dead) {
      s->broken = true;
    } else {
      list(static_cast<std::uint32_t>(watch_tag));
      if (result < 0) return;
    }
    detail::watch_table::report(*s->owner, dead ? unsigned(POLLNVAL) : static_cast<unsigned>(result));
  }

  void finish(file_operation& op, std::int64_t result) noexcept {
    in_kernel_.remove(op);
    if (detail::file_queue::cancelled(op)) {
      // Its address may serve another operation before a cancellation that had to wait is submitted.
      std::size_t kept = 0;
      for (const std::uint64_t c : cancels_) {
        if (c != detail::ring_data(op)) cancels_[kept++] = c;
      }
      cancels_.resize(kept);
    }
    operation_finished();
    detail::file_queue::complete(op, result);
  }

  // Lets the cancelled polls end, so that their descriptors are really closed when the loop is gone.
  void end_polls() noexcept {
    if (!owned_ || !::pthread_equal(::pthread_self(), owner_)) return;
    while (polls_ > 0) {
      submit_cancels();
      const int rc = ring_.wait(std::nullopt);
      if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) return;
      take_completions();
    }
  }

  const loop_options options_;
  const flavour best_;
  detail::wake_event wake_;
  detail::ring<T> ring_;
  std::size_t capacity_ = 0;
  pthread_t owner_{};
  bool owned_ = false;

  detail::watch_table watches_;
  std::vector<std::uint32_t> to_arm_;
  std::vector<std::uint64_t> cancels_;
  std::unique_ptr<detail::epoll_set<T>> overflow_;
  detail::file_queue waiting_;
  detail::file_queue in_kernel_;
  std::size_t polls_ = 0;
  std::size_t cancelling_ = 0;
  std::size_t others_ = 0;
  bool wake_armed_ = false;
  bool overflow_armed_ = false;
  bool told_ = false;  // a watch of its refusal, outside take_completions()
};
using ring_loop = basic_ring_loop<>;

template <class T>
void basic_ring_loop<T>::move_to_epoll(std::uint32_t index) {
  slot& s = watches_.at(index);
  try {
    if (!overflow_) {
      overflow_ = std::make_unique<detail::epoll_set<T>>();
      arm_overflow();
    }
    overflow_->set(s.fd, s.events, watches_.tag(index), false);
    s.in_epoll = true;
  } catch (...) {  // out of descriptors, or of what a user may watch: this watch's trouble, not the loop's
    s.broken = true;
    told_ = true;
    detail::watch_table::report(*s.owner, POLLNVAL);
  }
}

}  // namespace millrace
