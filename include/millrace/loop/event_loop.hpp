// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/coro/executor.hpp>
#include <millrace/loop/fd_watch.hpp>
#include <millrace/loop/file_operation.hpp>

namespace millrace {

/// An executor that waits in the kernel: descriptors and files, besides the executor's timers and inbox. Made by
/// make_event_loop(): an io_uring ring where the kernel gives one, else epoll, behind this interface.
///
/// Concurrency: everything is for the thread that runs the loop, except executor::post_remote(). The thread may change
/// between runs while no file operation is under way. Destroying the loop waits for the file operations that the kernel
/// still works on; watches and coroutines must be gone by then.
class event_loop : public executor {
 public:
  /// The loop behind `ex`; throws configuration_error when `ex` is none (a virtual-time loop, say).
  static event_loop& of(executor& ex);

  event_loop* as_event_loop() noexcept final { return this; }

  /// "io_uring" or "epoll".
  virtual const char* backend() const noexcept = 0;

  /// Starts `w`, or changes the events (and the descriptor) of a watch that is on. `fd` is a socket, pipe, eventfd or
  /// the like with one watch of this loop at a time; unwatch before closing it. `poll_events`: POLLIN, POLLOUT, both,
  /// or 0; errors and hang-ups are always reported. A descriptor that cannot be polled is refused with io_error or, at
  /// the back end's choice, reported once as POLLNVAL and then ignored. May throw std::bad_alloc.
  virtual void watch(fd_watch& w, int fd, unsigned poll_events) = 0;

  /// Ends `w`; does nothing when it is not watched. After it returns there is no ready(), also when the descriptor is
  /// closed and its number comes back at once.
  virtual void unwatch(fd_watch& w) noexcept = 0;

  /// Starts a file operation: executor::operations() counts it, and the loop holds `op` until op.complete(), which is
  /// called in a later turn.
  virtual void start(file_operation& op) noexcept = 0;

  /// Asks for the end of an operation that nobody waits for any more. One that has not reached the kernel completes
  /// with -ECANCELED inside this call; any other when the operation itself has ended, not merely its cancellation.
  virtual void cancel(file_operation& op) noexcept = 0;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loop/impl/event_loop.ipp>
#endif
