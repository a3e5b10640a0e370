// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/compiler.hpp>

namespace millrace {

namespace detail {
class watch_table;
}

/// Interest in one descriptor of an event loop: derive from it, start it by event_loop::watch().
///
/// ready() is called on the loop's thread, between coroutines, with the poll(2) events that are there (POLLIN, POLLOUT,
/// POLLERR, POLLHUP), once per turn for as long as they are: level-triggered. It may watch and unwatch anything, also
/// this object, destroy itself after unwatching, add timers and post coroutines; it never resumes one. Dropping: a
/// watch must be unwatched before it is destroyed; after event_loop::unwatch() returns no call comes, although the
/// kernel may hold the poll a little longer.
class fd_watch {
 public:
  fd_watch() noexcept = default;
  fd_watch(const fd_watch&) = delete;
  fd_watch& operator=(const fd_watch&) = delete;

  bool watched() const noexcept { return slot_ != none; }

 protected:
  virtual ~fd_watch() { MILLRACE_ASSERT(!watched(), "an fd_watch was destroyed while it was watched"); }
  virtual void ready(unsigned poll_events) noexcept = 0;

 private:
  friend class detail::watch_table;
  static constexpr std::uint32_t none = ~std::uint32_t(0);
  std::uint32_t slot_ = none;  // in the loop's table
};

}  // namespace millrace
