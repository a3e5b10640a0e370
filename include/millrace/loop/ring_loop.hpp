// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <liburing.h>
#include <poll.h>
#include <pthread.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/loop/detail/descriptors.hpp>
#include <millrace/loop/detail/file_queue.hpp>
#include <millrace/loop/event_loop.hpp>

#if MILLRACE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace millrace::inline MILLRACE_ABI::detail {

/// An io_uring: setting it up as the kernel allows, entering the kernel as seldom as possible.
class ring {
 public:
  /// Ways to set a ring up, best first. `deferred` (Linux 6.1): one thread submits, completions are prepared when it
  /// asks. `cooperative` (5.19): without interrupting the thread. `plain`: 5.11, the oldest with timeouts on waits.
  enum class flavour { deferred, cooperative, plain };

  ring() noexcept = default;
  ring(const ring&) = delete;
  ring& operator=(const ring&) = delete;
  ~ring() { close(); }

  /// 0, or the errno value with which the kernel refuses. A `deferred` ring belongs to the thread that calls enable().
  int open(unsigned entries, unsigned completions, flavour best) noexcept;
  void close() noexcept;

  /// Makes the calling thread the ring's. Once, before the first entry.
  int enable() noexcept {
    if (flavour_ != flavour::deferred) return 0;
    return -io_uring_register(static_cast<unsigned>(ring_.ring_fd), IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  }

  flavour kind() const noexcept { return flavour_; }
  unsigned completions() const noexcept { return *ring_.cq.kring_entries; }
  unsigned completions_ready() const noexcept { return io_uring_cq_ready(&ring_); }
  unsigned overflows() const noexcept { return *ring_.cq.koverflow; }

  /// A free submission entry; null when the kernel takes no more at the moment.
  io_uring_sqe* entry() noexcept;

  /// Submits alone. Entries that the kernel could not take stay: the next wait() or poke() reports why.
  void submit() noexcept { io_uring_submit(&ring_); }

  /// Submits, and lets completions come in. No system call when there is nothing to submit and nothing to fetch.
  int poke() noexcept;

  /// Submits and waits for a completion, at most for `timeout`.
  int wait(std::optional<duration> timeout) noexcept;

  /// Takes one completion, which must be there.
  struct completion {
    std::uint64_t data;
    int result;
  };
  completion take() noexcept;
  /// The ready completion after `n` others; it stays.
  completion at(unsigned n) const noexcept;

 private:
  int open_as(unsigned entries, unsigned completions, flavour f) noexcept;
  /// The errno value with which a filter (seccomp) refuses the calls that come after the set-up; 0: none. Probing
  /// changes nothing.
  int refused_call() const noexcept;

#if MILLRACE_TSAN
  // liburing maps rings by system calls of its own, which the thread sanitizer does not see: it would take a ring for
  // the one of another thread that lay at the same address before.
  static constexpr char addresses_ = 0;
#endif
  io_uring ring_{};
  flavour flavour_ = flavour::plain;
  bool open_ = false;
};

/// The kind of a completion: the low bits of a ring's user data.
enum class ring_tag : std::uint64_t { file = 0, poll = 1, wake = 2, overflow = 3, cancel = 4 };
inline constexpr std::uint64_t ring_tag_mask = 7;
static_assert(alignof(file_operation) > ring_tag_mask, "the low bits of an operation's address carry the tag");

inline std::uint64_t ring_data(ring_tag t) noexcept { return static_cast<std::uint64_t>(t); }
inline std::uint64_t ring_data(const file_operation& op) noexcept { return reinterpret_cast<std::uintptr_t>(&op); }
/// Made of a watch's tag: generation in the upper half, slot (at most 29 bits) in the lower.
inline std::uint64_t ring_data_of_watch(std::uint64_t watch_tag) noexcept {
  return (watch_tag >> 32 << 32) | (watch_tag & 0xffffffffu) << 3 | ring_data(ring_tag::poll);
}
inline std::uint64_t watch_of_ring_data(std::uint64_t data) noexcept {
  return (data >> 32 << 32) | (data & 0xffffffffu) >> 3;
}

/// Fills a submission entry; the kernel moves at most 2 GiB less a page in one operation.
void prepare(io_uring_sqe* e, const file_request& r) noexcept;

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// The event loop on io_uring. See event_loop.
///
/// Once per turn all changes go to the kernel in one call: cancellations, one-shot polls of the watches that are to be
/// armed again, file operations, the wake-up. Reads and writes of files go earlier once they add up to a MiB: the disk
/// works while the other coroutines of the turn compute. A turn takes about as many bytes as it submits to a disk: if
/// many reads complete at once, the first are passed on, and the next ones submitted, before the last are computed
/// with. At most 32 MiB of reads are in the kernel at a time, or one read: waiting reads are submitted as soon as
/// others have arrived, so that a disk that brings all of them at once works while these are computed with. File
/// operations keep their order there.
///
/// Operations under way are counted against the completion ring, which therefore cannot overflow: file operations
/// beyond their share wait in the loop, watches beyond theirs are polled through an epoll set inside the ring, and a
/// share is kept for cancellations, which never wait for anything. The ring belongs to the thread that polls it first;
/// when another thread continues the loop, it is made again.
class ring_loop final : public event_loop {
 public:
  using flavour = detail::ring::flavour;
  /// Submission entries: how much goes to the kernel in one call. Completion entries: how much may be in flight at once
  /// (watches beyond half of it move to an epoll set, file operations beyond a third of it wait in the loop); a power
  /// of two.
  struct entries {
    unsigned submissions = 256;
    unsigned completions = 4096;
  };

  /// Null, with the errno value in `refused`, if the kernel gives no ring. Throws io_error when there are no
  /// descriptors left. `best` is lowered until the kernel agrees.
  static std::unique_ptr<ring_loop> try_make(int& refused, flavour best = flavour::deferred) {
    return try_make(refused, best, entries());
  }
  static std::unique_ptr<ring_loop> try_make(int& refused, flavour best, entries size);
  MILLRACE_INLINE ~ring_loop() override;

  const char* backend() const noexcept override { return "io_uring"; }
  /// How the ring was set up, for reports.
  flavour ring_flavour() const noexcept { return ring_.kind(); }

  MILLRACE_INLINE void watch(fd_watch& w, int fd, unsigned poll_events) override;

  MILLRACE_INLINE void unwatch(fd_watch& w) noexcept override;

  void start(file_operation& op) noexcept override {
    operation_started();
    waiting_.push(op, detail::file_queue::place::queued);
    if (op.request().data == nullptr) return;
    queued_bytes_ += op.request().size;
    if (queued_bytes_ >= early_bytes) submit_early();
  }

  MILLRACE_INLINE void cancel(file_operation& op) noexcept override;

  /// Operations and polls in the kernel whose completion has not been taken, and the most there may be.
  std::size_t under_way() const noexcept { return polls_ + files_in_kernel() + cancelling_ + others_; }
  std::size_t capacity() const noexcept { return capacity_; }
  /// Completions that the kernel had no room for: always 0.
  unsigned overflows() const noexcept { return ring_.overflows(); }

 protected:
  MILLRACE_INLINE void poll(bool block, std::optional<time_point> deadline) override;
  void wake() noexcept override { wake_.wake(); }

 private:
  using slot = detail::watch_table::slot;
  using tag = detail::ring_tag;

  ring_loop(flavour best, entries size) : size_(size), best_(best) {}

  int open() noexcept;

  // ---- the ring and its thread

  void own_ring();

  // The old ring takes its polls with it: everything is armed again in the new one.
  void renew();

  void check(int error);
  [[noreturn]] static void fail(int error, const char* what) {
    throw io_error::of(error, what);
  }

  // ---- shares of the completion ring

  std::size_t poll_share() const noexcept { return capacity_ / 2; }
  std::size_t file_share() const noexcept { return capacity_ / 3; }
  std::size_t cancel_share() const noexcept { return capacity_ - poll_share() - file_share() - 2; }  // wake, epoll set

  // ---- to the kernel

  void list(std::uint32_t index) noexcept;

  void disarm(std::uint32_t index) noexcept;

  void submit_changes();
  /// Hands waiting file operations to the ring.
  void submit_files() noexcept;
  void submit_early() noexcept;

  bool arm_wake() noexcept;

  void arm_overflow() noexcept;

  void submit_cancels() noexcept;
  /// False when the kernel takes no more at the moment.
  bool submit_cancel(std::uint64_t data) noexcept;
  std::size_t files_in_kernel() const noexcept { return in_kernel_.size() + ending_.size(); }

  void arm_watches();

  void move_to_epoll(std::uint32_t index);

  // ---- from the kernel

  /// Takes the completions that have come, at most until files have brought so many bytes.
  void take_completions(std::size_t most_read);
  /// Counts completions that are ready and not counted yet, and submits the reads that waited for them.
  void note_arrived() noexcept;
  static std::size_t read_bytes(const file_operation& op) noexcept;

  void polled(std::uint64_t watch_tag, int result) noexcept;

  void finish(file_operation& op, std::int64_t result) noexcept;

  // Lets the cancelled polls end, so that their descriptors are really closed when the loop is gone.
  void end_polls() noexcept;

  const entries size_;
  const flavour best_;
  detail::wake_event wake_;
  static constexpr std::size_t early_bytes = std::size_t(1) << 20;
  std::size_t queued_bytes_ = 0;  // of file operations, since the last submission
  static constexpr std::size_t most_reading = std::size_t(32) << 20;
  std::size_t reading_ = 0;  // bytes of reads in the kernel
  unsigned arrived_ = 0;     // completions that are ready, of which reading_ counts nothing any more

  detail::ring ring_;
  std::size_t capacity_ = 0;
  pthread_t owner_{};
  bool owned_ = false;

  detail::watch_table watches_;
  // A slot is in each of these once at most, and watch() reserves: ending or listing one never allocates.
  std::vector<std::uint32_t> to_arm_;
  std::vector<std::uint64_t> cancels_;  // tags of polls to be cancelled
  std::optional<detail::epoll_set> overflow_;
  detail::file_queue waiting_;
  detail::file_queue in_kernel_;
  detail::file_queue ending_;  // of those in the kernel, those to be cancelled there
  std::size_t polls_ = 0;
  std::size_t cancelling_ = 0;
  std::size_t others_ = 0;
  bool wake_armed_ = false;
  bool overflow_armed_ = false;
  bool reported_ = false;  // a watch of its refusal, outside take_completions()
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loop/ring_loop.ipp>
#endif
