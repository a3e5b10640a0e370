// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <millrace/base/compiler.hpp>
#include <millrace/loop/detail/descriptors.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void wake_event::wake() noexcept {
  if (!sleeping_.load(std::memory_order_relaxed)) return;
  const std::uint64_t one = 1;
  while (::write(fd_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

MILLRACE_INLINE void wake_event::clear() noexcept {
  std::uint64_t count;
  while (::read(fd_.get(), &count, sizeof count) < 0 && errno == EINTR) {
  }
}

MILLRACE_INLINE void epoll_set::set(int fd, unsigned events, std::uint64_t tag) {
  epoll_event e{};
  e.events = events;
  e.data.u64 = tag;
  const int call = registered(fd, tag) ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (::epoll_ctl(fd_.get(), call, fd, &e) != 0) fail("epoll_ctl(2)");
  const auto place = static_cast<std::size_t>(fd);
  try {
    if (tags_.size() <= place) tags_.resize(place + 1, no_tag);
  } catch (...) {
    ::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
    throw;
  }
  tags_[place] = tag;
}

MILLRACE_INLINE void epoll_set::remove(int fd, std::uint64_t tag) noexcept {
  if (!registered(fd, tag)) return;
  // Fails if the descriptor was closed, as libcurl (7.88.1) closes sockets that did not get connected before it says
  // so. Another thread may have its number by now, which ThreadSanitizer reports as a race: it knows of this call by
  // the C library's function only.
  ::syscall(SYS_epoll_ctl, fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
  tags_[static_cast<std::size_t>(fd)] = no_tag;
}

MILLRACE_INLINE int epoll_set::wait_for(epoll_event* events, std::optional<duration> timeout) noexcept {
  if (!timeout) return ::epoll_wait(fd_.get(), events, batch, -1);
  const std::int64_t ns = timeout->count();
  if (ns <= 0) return ::epoll_wait(fd_.get(), events, batch, 0);
  if (precise_) {
    const timespec t{ns / 1000000000, ns % 1000000000};
    const int n = ::epoll_pwait2(fd_.get(), events, batch, &t, nullptr);
    if (n >= 0 || !is_missing_call(errno)) return n;
    precise_ = false;  // it came with Linux 5.11
  }
  constexpr std::int64_t longest = 3600 * std::int64_t(1000);  // the caller asks again
  const std::int64_t ms = (ns - 1) / 1000000 + 1;
  return ::epoll_wait(fd_.get(), events, batch, static_cast<int>(ms < longest ? ms : longest));
}

MILLRACE_INLINE std::uint32_t watch_table::attach(fd_watch& w) {
  if (free_ == no_slot) {
    MILLRACE_ASSERT(slots_.size() < max_slots, "too many watches");
    slots_.emplace_back();
    free_ = static_cast<std::uint32_t>(slots_.size() - 1);
  }
  const std::uint32_t index = free_;
  free_ = slots_[index].next_free;
  slots_[index].owner = &w;
  ++live_;
  w.slot_ = index;
  return index;
}

MILLRACE_INLINE void watch_table::detach(fd_watch& w) noexcept {
  slot& s = slots_[w.slot_];
  const std::uint32_t generation = s.generation + 1;
  const bool listed = s.listed;
  const bool ending = s.ending;
  s = slot();
  s.generation = generation;
  s.listed = listed;
  s.ending = ending;
  s.next_free = free_;
  free_ = w.slot_;
  --live_;
  w.slot_ = fd_watch::none;
}

MILLRACE_INLINE watch_table::slot* watch_table::find(std::uint64_t tag_of_completion) noexcept {
  const auto index = static_cast<std::uint32_t>(tag_of_completion);
  if (index >= slots_.size()) return nullptr;
  slot& s = slots_[index];
  return s.owner != nullptr && s.generation == static_cast<std::uint32_t>(tag_of_completion >> 32) ? &s : nullptr;
}

}  // namespace millrace::detail
