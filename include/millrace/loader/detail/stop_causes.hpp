// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/io/run_on.hpp>
#include <millrace/loader/run_options.hpp>
#include <millrace/loop/event_loop.hpp>

namespace millrace::inline MILLRACE_ABI {
class rank_words;
}

namespace millrace::inline MILLRACE_ABI::detail {

/// Signals of this process, held for one run: from construction to destruction, see run_options::stop_on. An eventfd
/// becomes readable when one has come.
class held_signals {
 public:
  MILLRACE_INLINE explicit held_signals(stop_signals wanted);
  MILLRACE_INLINE ~held_signals();
  held_signals(const held_signals&) = delete;
  held_signals& operator=(const held_signals&) = delete;

  int fd() const noexcept { return fd_; }
  /// The number of a signal that has come and was not taken before; 0: none. Any thread.
  MILLRACE_INLINE int take() noexcept;
  /// Like take(), but the signal is not taken.
  bool came() const noexcept { return came_->load(std::memory_order_relaxed) != 0; }

 private:
  const stop_signals wanted_;
  int fd_ = -1;
  std::size_t place_ = 0;  // in the process's table
  std::atomic<std::uint64_t>* came_ = nullptr;
};

/// What asks a run to stop, beside its program: signals, and tasks that end (pipeline_run::stop_when()). `ask()` is
/// called when one does, on the loop's thread, and by poll().
class stop_causes final : private fd_watch {
 public:
  explicit stop_causes(callback<void()> ask) noexcept : ask_(ask) {}
  MILLRACE_INLINE ~stop_causes() override;

  // ---- any thread

  /// Once the run has ended, `told` is dropped.
  MILLRACE_COROUTINE void add(task<std::string> told);

  // ---- the training thread

  /// Before the run begins.
  MILLRACE_INLINE void hold(stop_signals wanted, runtime_parts& log);
  /// Looks for a signal itself: the loop may be busy with a function of the program.
  void poll(event_loop& loop) noexcept {
    if (signals_ != nullptr && signals_->came()) signalled(loop);
  }
  /// Signals have their effect of before again. After end().
  void release() noexcept { delete std::exchange(signals_, nullptr); }

  // ---- the loop's thread

  MILLRACE_INLINE void begin(event_loop& loop, run_context& context);
  MILLRACE_INLINE void end() noexcept;

 private:
  MILLRACE_INLINE void ready(unsigned events) noexcept override;
  MILLRACE_INLINE void signalled(event_loop& loop) noexcept;
  MILLRACE_INLINE void take_tasks() noexcept;
  struct cause;
  static void drop(cause* list) noexcept;
  MILLRACE_COROUTINE static task<void> wait_for(stop_causes& self, task<std::string> told);

  const callback<void()> ask_;
  held_signals* signals_ = nullptr;  // its own
  event_loop* loop_ = nullptr;  // once the run has begun; other threads look at `now_` first
  run_context* context_ = nullptr;
  cause* waiting_ = nullptr;

  std::mutex mutex_;
  cause* added_ = nullptr;
  enum class phase : unsigned char { before, on_loop, over };
  phase now_ = phase::before;
  bool posted_ = false;
  message<stop_causes, &stop_causes::take_tasks> take_tasks_{*this};
};

/// The ranks' agreement on the item after which all of them stop.
///
/// By notes (rank_words::notes()) the ranks' loops agree, and no thread that trains is waited for: stop_by_notes(). A
/// rank that is to stop leaves a note, for which all look twice a second. Each then holds its training thread before
/// the next item and notes how many items that has taken; rank 0 notes the largest of these numbers, and all go on to
/// there. A rank whose run ends notes its number, too.
///
/// Without notes the training threads gather who was asked to stop, before some of the items, the same on all ranks.
/// How many items lie between two gatherings follows from what all of them gathered the last time: as many as take half
/// a second, or a hundred times what a gathering takes, if that is more; a second at most, and at most twice as many as
/// before.
class stop_vote {
 public:
  using clock = std::int64_t (*)();
  explicit stop_vote(std::shared_ptr<const rank_words> ranks, clock now = &monotonic_ns)
      : ranks_(std::move(ranks)), now_(now) {}

  const std::shared_ptr<const rank_words>& ranks() const noexcept { return ranks_; }
  MILLRACE_INLINE bool by_notes() const noexcept;

  // ---- the thread that takes the items

  /// Before the next item is taken, after `taken` of them: whether all stop. `asked`: this rank is to. Waits for the
  /// other ranks while is_held(), or where it gathers.
  MILLRACE_INLINE bool over(std::uint64_t taken, bool asked);

  // ---- by notes, any thread

  /// From now on no item is taken. Returns how many were, with one that is being taken.
  MILLRACE_INLINE std::uint64_t hold();
  /// No more than so many are taken; UINT64_MAX: any number.
  MILLRACE_INLINE void go_on(std::uint64_t until);
  MILLRACE_INLINE bool is_held() const;

 private:
  MILLRACE_INLINE bool over_by_notes(std::uint64_t taken);
  MILLRACE_INLINE bool gathered(std::uint64_t taken, bool asked);

  const std::shared_ptr<const rank_words> ranks_;
  const clock now_;
  // By gathering:
  std::uint64_t next_ = 0;   // before which item they gather
  std::uint64_t last_ = 0;   // before which they did
  std::int64_t ended_ = 0;   // when
  std::uint64_t cost_ = 0;   // nanoseconds
  // By notes:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  std::uint64_t passed_ = 0;
  std::uint64_t until_ = UINT64_MAX;
};

/// On the run's loop: ends once all ranks have agreed on the last item, and returns who asked for that; `asked`: this
/// rank is to stop. An error where the others do not answer in time, or notes fail then: the run goes on.
MILLRACE_COROUTINE task<std::string> stop_by_notes(stop_vote& vote, const std::atomic<bool>& asked);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/detail/stop_causes.ipp>
#endif
