// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/log.hpp>
#include <millrace/coro/executor.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Options of make_event_loop().
struct loop_options {
  /// Uses epoll even where io_uring works.
  bool force_epoll = false;
  /// Called with one line, once per loop (once for a runtime), if io_uring is refused here and epoll is used instead.
  /// By default the line goes to the log of the process, once. Called during make_event_loop().
  log_function log = nullptr;
};

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

struct statx;

namespace millrace::inline MILLRACE_ABI {

namespace detail {
class file_queue;
}

/// A file operation, as the kernel gets it. Memory, path and descriptor must stay valid until the operation completes.
struct file_request {
  enum class kind : std::uint8_t { open, stat, read, write, sync, allocate, close };

  kind what = kind::read;
  int fd = -1;                       ///< all but open
  int flags = 0;                     ///< open: as open(2)
  unsigned mode = 0;                 ///< open: as open(2)
  const char* path = nullptr;        ///< open
  void* data = nullptr;              ///< read: filled; write: the source, not changed
  std::size_t size = 0;              ///< read, write: bytes; the kernel may do less. allocate: all of them
  std::uint64_t offset = 0;          ///< read, write, allocate (fallocate(2), which makes the file longer): in the file
  struct ::statx* status = nullptr;  ///< stat: filled with type, mode and size
};

/// One operation of an event loop on a file. Lives on the heap, because the kernel may need its memory for longer than
/// the coroutine that asked lives: derive from it to own the memory that the request points to. Between
/// event_loop::start() and complete() it belongs to the loop.
class file_operation {
 public:
  explicit file_operation(const file_request& r) noexcept : request_(r) {}
  file_operation(const file_operation&) = delete;
  file_operation& operator=(const file_operation&) = delete;
  const file_request& request() const noexcept { return request_; }

 protected:
  virtual ~file_operation() = default;

  /// Called once, on the loop's thread, when the kernel is done with the operation: bytes, a descriptor, 0, or a
  /// negative errno value. It may delete the operation and post coroutines; it must not resume one.
  virtual void complete(std::int64_t result) noexcept = 0;

 private:
  friend class detail::file_queue;
  enum class place : std::uint8_t { outside, queued, kernel, ending };

  const file_request request_;
  file_operation* prev_ = nullptr;
  file_operation* next_ = nullptr;
  std::int64_t result_ = 0;
  place place_ = place::outside;
  bool cancelled_ = false;
};

/// An executor that waits in the kernel: descriptors and files, besides the executor's timers and inbox. Made by
/// make_event_loop(): an io_uring ring if the kernel provides one, else epoll.
///
/// Concurrency: everything is for the thread that runs the loop, except executor::post_remote(). The thread may change
/// between runs while no file operation is under way. Destroying the loop waits for the file operations that the kernel
/// still works on; watches and coroutines must be gone by then.
class event_loop : public executor {
 public:
  /// `ex` as an event loop; throws configuration_error if it is not one (a virtual-time loop, say).
  static event_loop& of(executor& ex) {
    event_loop* const loop = ex.as_event_loop();
    if (loop == nullptr) {
      throw configuration_error("files and sockets need a real event loop: make one with millrace::make_event_loop()");
    }
    return *loop;
  }

  event_loop* as_event_loop() noexcept final { return this; }

  /// "io_uring" or "epoll".
  virtual const char* backend() const noexcept = 0;

  /// Starts `w`, or changes the events (and the descriptor) of a watch that is on. `fd` is a socket, pipe, eventfd or
  /// the like with one watch of this loop at a time; unwatch before closing it. `poll_events`: POLLIN, POLLOUT, both,
  /// or 0; errors and hang-ups are always reported. A descriptor that cannot be polled is refused with io_error or, at
  /// the back end's choice, reported once as POLLNVAL and then ignored. If a watch's descriptor was closed all the
  /// same, neither changing nor ending the watch affects a watch of another descriptor that has its number now. May
  /// throw std::bad_alloc.
  virtual void watch(fd_watch& w, int fd, unsigned poll_events) = 0;

  /// Ends `w`; does nothing when it is not watched. After it returns there is no ready(), also when the descriptor is
  /// closed and its number comes back at once.
  virtual void unwatch(fd_watch& w) noexcept = 0;

  /// Starts a file operation: executor::operations() counts it, and the loop holds `op` until op.complete(), which is
  /// called in a later turn.
  virtual void start(file_operation& op) noexcept = 0;

  /// Cancels an operation whose waiter is gone. One that has not reached the kernel completes
  /// with -ECANCELED inside this call; any other when the operation itself has ended, not only its cancellation.
  virtual void cancel(file_operation& op) noexcept = 0;
};

}  // namespace millrace
