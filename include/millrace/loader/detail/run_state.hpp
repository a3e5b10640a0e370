// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/item_bytes.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/stage_record.hpp>
#include <millrace/flow/detail/compactor.hpp>
#include <millrace/flow/detail/read_ahead.hpp>
#include <millrace/io/detail/numa.hpp>
#include <millrace/io/run_on.hpp>
#include <millrace/loader/detail/run_trace.hpp>
#include <millrace/loader/detail/stop_causes.hpp>
#include <millrace/loader/run_options.hpp>
#include <millrace/loader/run_stats.hpp>
#include <millrace/loop/event_loop.hpp>
#include <millrace/sync/event.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Durations in buckets of about 6 % width, for quantiles without keeping the values. One writer, any readers.
class latency_histogram {
 public:
  void add(std::int64_t ns) noexcept {
    auto& bucket = buckets_[index(ns)];
    bucket.store(bucket.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (ns > max_.load(std::memory_order_relaxed)) max_.store(ns, std::memory_order_relaxed);
  }
  std::uint64_t count() const noexcept {
    std::uint64_t n = 0;
    for (const auto& b : buckets_) n += b.load(std::memory_order_relaxed);
    return n;
  }
  std::int64_t max() const noexcept { return max_.load(std::memory_order_relaxed); }

  /// The value below which the share `q` of the durations lies, up to the width of a bucket; 0 when there are none.
  std::int64_t quantile(double q) const noexcept {
    const auto rank = static_cast<std::uint64_t>(q * static_cast<double>(count()));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i].load(std::memory_order_relaxed);
      if (seen > rank) return upper(i) < max() ? upper(i) : max();
    }
    return max();
  }

 private:
  static constexpr std::size_t per_octave = 16;

  static std::size_t index(std::int64_t ns) noexcept {
    const auto v = static_cast<std::uint64_t>(ns < 0 ? 0 : ns);
    if (v < per_octave) return static_cast<std::size_t>(v);
    const int octave = 63 - __builtin_clzll(v);
    const auto fraction = static_cast<std::size_t>((v >> (octave - 4)) & (per_octave - 1));
    return static_cast<std::size_t>(octave - 3) * per_octave + fraction;
  }
  static std::int64_t upper(std::size_t i) noexcept {
    if (i < per_octave) return static_cast<std::int64_t>(i);
    const std::size_t octave = i / per_octave + 3;
    const std::uint64_t base = std::uint64_t(1) << octave;
    return static_cast<std::int64_t>(base + (i % per_octave + 1) * (base / per_octave) - 1);
  }

  std::array<std::atomic<std::uint64_t>, 61 * per_octave> buckets_{};
  std::atomic<std::int64_t> max_{0};
};

/// The metrics of one run: the stages' records and the training thread's waits. snapshot() is for any thread.
class run_metrics {
 public:
  stage_recorder& recorder() noexcept { return recorder_; }
  stage_record* sink() {
    if (sink_ == nullptr) sink_ = recorder_.find_or_add("(training loop)", nullptr);
    return sink_;
  }

  /// Sets the placement of the runtime's threads: before the run begins.
  void placed_by(std::shared_ptr<const thread_placer> placer) noexcept { placer_ = std::move(placer); }
  void begin(std::int64_t now = monotonic_ns()) {
    static_cast<void>(sink());
    began_ = now;
  }
  void end(std::int64_t now = monotonic_ns()) noexcept { ended_ = now; }
  /// The training thread asked for an item at `asked` and got it at `now`, with so many samples; 0: not known.
  void got_item(std::int64_t asked, std::int64_t now, std::int64_t samples) noexcept;
  /// How far the training is after that item.
  void at(const training_place& place) noexcept {
    if (first_placed_ == 0) first_placed_ = place.taken() + 1;
    epoch_.store(place.epoch, std::memory_order_relaxed);
    epochs_.store(place.epochs, std::memory_order_relaxed);
    batch_.store(place.batch, std::memory_order_relaxed);
    batches_.store(place.batches, std::memory_order_relaxed);
    placed_.store(place.batches == 0 ? 0 : place.taken() + 1 - first_placed_, std::memory_order_relaxed);
  }
  /// It got the end, or an error.
  void got_none(std::int64_t asked, std::int64_t now) noexcept;

  /// Sets the objects that the run shares with others of its runtime; call before it begins. `loops`: how many, and
  /// whether the runtime has chosen that.
  void share(std::shared_ptr<const store_hosts> hosts, std::shared_ptr<const http::detail::addresses> addresses,
             std::size_t loops, bool loops_by_cores) noexcept {
    hosts_ = std::move(hosts);
    addresses_ = std::move(addresses);
    loops_ = loops;
    loops_by_cores_ = loops_by_cores;
  }

  /// The training thread asks for the next item: when.
  std::int64_t asks() noexcept;
  void step_ended(std::int64_t asked) noexcept;
  /// Reports the training thread's steps and waits to `events`, in a lane of this number, and to `ranges`; null: not.
  /// Before the run begins, and on the training thread when it has ended.
  void trace_to(tracer* events, std::uint32_t run, const profiler_ranges* ranges) noexcept;

  run_stats snapshot(std::int64_t now = monotonic_ns()) const;
  /// The name of that stage in snapshot().
  std::string name_of(const stage_record& stage) const;

 private:
  /// Waits that had begun before, or end after, are counted whole.
  static double share_of(std::int64_t counted, std::int64_t ns) noexcept {
    return counted <= 0 || ns <= 0 ? 0
                                   : static_cast<double>(ns < counted ? ns : counted) / static_cast<double>(counted);
  }
  /// Adds the lines of the stages before `r`, then its own. Returns the bytes that came into this part of the pipeline:
  /// those read from stores, or else those of the first stages whose items have a size. `records`: of the lines.
  static std::int64_t list(std::vector<stage_stats>& lines, const std::vector<const stage_record*>& all,
                           const stage_record& r, std::int64_t counted,
                           std::vector<const stage_record*>* records = nullptr);
  /// The number after a name that several lines have, from the second on.
  static std::string number_of(const std::vector<stage_stats>& lines, const std::string& name);

  std::shared_ptr<const thread_placer> placer_;
  stage_recorder recorder_;
  stage_record* sink_ = nullptr;  // made before the loop's thread
  std::shared_ptr<const store_hosts> hosts_;
  std::shared_ptr<const http::detail::addresses> addresses_;
  std::size_t loops_ = 0;
  bool loops_by_cores_ = false;
  latency_histogram waits_;
  duration_histogram steps_, wait_times_;
  /// The training thread's range ends, and one of that name begins; null: none.
  void range(const char* name) noexcept;

  tracer* trace_ = nullptr;
  std::uint32_t run_ = 0;
  const profiler_ranges* ranges_ = nullptr;
  bool in_range_ = false;
  std::int64_t got_ns_ = 0;  // the training thread's: when it got the latest item
  std::atomic<std::int64_t> began_{0};
  std::atomic<std::int64_t> ended_{0};
  std::atomic<std::int64_t> first_{0};  // when the first item was taken
  stage_record::counter waited_{0};     // since then
  stage_record::counter taken_{0};
  stage_record::counter samples_{0};
  std::uint64_t first_placed_ = 0;  // the training thread's: where the first item was, and 1
  std::atomic<std::uint64_t> epoch_{0}, epochs_{0}, batch_{0}, batches_{0}, placed_{0};
};

/// Progress: a timer of the loop that logs a line, and the stage table at the end. And run_options::report.
class progress_line final : private timer_node {
 public:
  /// `rank`: the index of the process whose run it is. `options` and `metrics` must outlive it.
  progress_line(executor& ex, const run_metrics& metrics, const run_options& options, std::uint32_t rank);
  MILLRACE_INLINE ~progress_line() override;

 private:
  MILLRACE_INLINE void fire() noexcept override;
  static constexpr duration between_reports = std::chrono::seconds(1);
  /// The first lines come soon, the later ones seldom: they are lines like those of the program, and stay.
  static constexpr duration first_line = std::chrono::seconds(1), between_lines = std::chrono::seconds(30);
  void arm() noexcept;
  void write() noexcept;
  void report() noexcept;

  executor& executor_;
  const run_metrics& metrics_;
  const run_options& options_;
  const time_point began_;
  bool shown_ = false;
  time_point line_due_{}, report_due_{};
};

/// run_options::prefetch where it is automatic: how many items there may be; of small ones, in how many bytes.
inline constexpr std::size_t prefetch_few = 2;
inline constexpr std::size_t prefetch_small = 1024, prefetch_small_bytes = 1 * MiB, small_item = 32 * KiB;
inline constexpr std::size_t prefetch_larger_bytes = 256 * KiB;  // of larger ones, where that is more than prefetch_few
/// For types whose bytes are counted, and are memory that the items hold themselves.
template <class T>
inline constexpr bool prefetches_small_v = counts_bytes_v<T> && !declared_before_v<T>;
template <class T>
std::size_t prefetch_items(std::size_t prefetch) noexcept {
  return prefetch != 0 ? prefetch : prefetches_small_v<T> ? prefetch_small : prefetch_few;
}

/// A bounded queue from coroutines of one executor to one thread, which blocks while it is empty.
///
/// Two threads that pass on item by item sleep and wake for each, which takes longer than a small item does. With
/// capacity 0, if items are of 32 KiB at most, either side therefore wakes the other for several: the thread when
/// it has taken half of them; the executor when it is full, or goes on to something else. A thread that waits wakes by
/// itself after 0.2 ms, takes what there is, and where there is nothing is woken for the next one: so an item is late
/// by that time at most, whatever the executor does meanwhile.
template <class T>
class blocking_queue {
 public:
  /// `capacity`: 0: prefetch_few items, or as many as prefetch_small says. `bytes`: the bound of all items together;
  /// one item is always let in. 0: no bound.
  explicit blocking_queue(std::size_t capacity, std::size_t bytes = 0)
      : window_(prefetch_items<T>(capacity), bytes == 0 ? SIZE_MAX : bytes),
        several_(capacity == 0 && prefetches_small_v<T>) {}

  // ---- the executor's side

  /// False if the queue is full; room() is then notified once there is room.
  bool reserve() {
    bool told = false;
    bool room = false;
    {
      const std::lock_guard lock(mutex_);
      room = has_room();
      if (!room) told = wait_for_room();
    }
    if (told) filled_.notify_one();
    return room;
  }
  notifier& room() noexcept { return room_; }
  /// Returns what reserve() would return for the next one.
  bool push(T&& item) {
    bool told = false;
    bool room = false;
    {
      const std::lock_guard lock(mutex_);
      const std::size_t bytes = item_bytes(item);
      items_.push_back(std::move(item));
      window_.add(bytes);
      largest_ = bytes > largest_ ? bytes : largest_;
      ++pushed_;
      room = has_room();
      if (!room) {
        told = wait_for_room();
      } else if (waits_ == waiting::for_several && are_small() && executor_ != nullptr) {
        if (!std::exchange(flush_sent_, true)) executor_->post_remote(flush_);
      } else {
        told = tell();
      }
    }
    if (told) filled_.notify_one();
    return room;
  }
  void finish(std::exception_ptr error) {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
      error_ = std::move(error);
    }
    filled_.notify_one();
  }
  /// After finish(): whether the thread has taken everything. If not, room() is notified when to ask again.
  bool drained() {
    std::lock_guard lock(mutex_);
    if (items_.empty()) return true;
    producer_waits_ = true;
    full_at_ = 0;
    return false;
  }
  /// Drops all items, after the consumer has left.
  void clear() {
    for (;;) {                   // one by one: making an empty deque would allocate, and may throw
      std::optional<T> dropped;  // destroyed after the lock is gone
      std::lock_guard lock(mutex_);
      if (items_.empty()) return;
      window_.remove(item_bytes(items_.front()));
      dropped.emplace(std::move(items_.front()));
      items_.pop_front();
    }
  }
  /// The executor that fills the queue; null before it runs and after it has ended.
  void attach(executor* ex) {
    {
      std::lock_guard lock(mutex_);
      executor_ = ex;
      // A thread that has left before the loop was there.
      if (ex != nullptr && stop_ != nullptr) ex->post_remote(*std::exchange(stop_, nullptr));
    }
    filled_.notify_one();
  }

  // ---- the thread's side

  /// Blocks until there is an item; nullopt at the end, where limit() was reached, and once `longest` has passed, which
  /// `why` then says; duration::max() never does. Throws the other side's failure, once. `taken(item, waited)` is
  /// called before the other side can see that the item was taken.
  template <class Taken>
  std::optional<T> pop(Taken&& taken, duration longest, run_outcome& why) {
    std::unique_lock lock(mutex_);
    const bool waited = items_.empty();
    const bool for_ever = longest.count() > INT64_MAX / 2;
    const std::int64_t due = for_ever || longest.count() < 0 ? 0 : monotonic_ns() + longest.count();
    if (several_ && are_small() && has_to_wait() && longest > most_late) {
      waits_ = waiting::for_several;
      filled_.wait_for(lock, most_late);
    }
    bool late = false;
    while (has_to_wait() && !late) {
      waits_ = waiting::for_one;
      if (for_ever) {
        filled_.wait(lock);
      } else {
        const std::int64_t left = due - monotonic_ns();
        late = left <= 0;
        if (!late) filled_.wait_for(lock, duration(left));
      }
    }
    waits_ = waiting::no;
    reach_limit();
    why = stopped_ ? run_outcome::stopped : late ? run_outcome::timed_out : run_outcome::ended;
    if (stopped_ || late) return std::nullopt;
    if (items_.empty()) {
      if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
      return std::nullopt;
    }
    why = run_outcome::item;
    const std::size_t bytes = item_bytes(items_.front());
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    ++taken_;
    window_.remove(bytes);
    taken(std::as_const(*item), waited);
    if (producer_waits_ && executor_ != nullptr && (!several_ || !are_small() || 2 * items_.size() <= full_at_)) {
      producer_waits_ = false;
      executor_->post_remote(wake_);
    }
    return item;
  }

  // ---- any thread

  /// From now on pop() gives items until it has given `items` in all, then the end; of several limits the lowest
  /// counts. Returns true if it gives no more.
  bool limit(std::uint64_t items) noexcept {
    {
      std::lock_guard lock(mutex_);
      if (items < limit_) limit_ = items;
      reach_limit();
      if (!stopped_) return false;
    }
    filled_.notify_all();
    return true;
  }
  /// True if items that were there, or might have come, are not given because of a limit.
  bool stopped() const noexcept {
    std::lock_guard lock(mutex_);
    return stopped_;
  }
  /// How many items pop() has given.
  std::uint64_t taken() const noexcept {
    std::lock_guard lock(mutex_);
    return taken_;
  }

  /// Posts `stop` to the executor: now, or as soon as it runs; not if it has ended. The first call does.
  void send(remote_node& stop) {
    std::lock_guard lock(mutex_);
    if (std::exchange(sent_, true)) return;
    if (executor_ != nullptr) {
      executor_->post_remote(stop);
    } else {
      stop_ = &stop;
    }
  }

 private:
  // Posted only while the producer waits, which waits again only after this has run: one node is enough.
  class wake_producer final : public remote_node {
   public:
    explicit wake_producer(blocking_queue& q) noexcept : queue_(q) {}

   protected:
    void run() noexcept override { queue_.room_.notify(); }

   private:
    blocking_queue& queue_;
  };
  // Posted by the executor itself: comes when the coroutine that pushes has suspended. One at a time.
  class wake_consumer final : public remote_node {
   public:
    explicit wake_consumer(blocking_queue& q) noexcept : queue_(q) {}

   protected:
    void run() noexcept override { queue_.flush(); }

   private:
    blocking_queue& queue_;
  };
  void flush() noexcept {
    {
      const std::lock_guard lock(mutex_);
      flush_sent_ = false;
      if (waits_ == waiting::for_several && executor_ != nullptr && pushed_ != std::exchange(seen_, pushed_)) {
        // The executor came by with more at hand: a turn ends after executor::inline_budget of them as well.
        flush_sent_ = true;
        executor_->post_remote(flush_);
        return;
      }
      if (items_.empty() || !tell()) return;
    }
    filled_.notify_one();
  }

  /// With the lock: whether the thread waits and is to be woken, which it is once.
  bool tell() noexcept { return std::exchange(waits_, waiting::no) != waiting::no; }
  /// With the lock, where there is no room. Returns tell().
  bool wait_for_room() noexcept {
    producer_waits_ = true;
    full_at_ = items_.size();
    return tell();
  }
  /// With the lock.
  bool has_to_wait() const noexcept { return items_.empty() && !ended_ && taken_ < limit_; }
  /// With the lock.
  bool has_room() const noexcept {
    if (!window_.room()) return false;
    if (!several_ || window_.items() < prefetch_few) return true;
    return window_.bytes() + largest_ <= (are_small() ? prefetch_small_bytes : prefetch_larger_bytes);
  }

  /// With the lock: whether waking a thread for each takes as long as making it.
  bool are_small() const noexcept { return largest_ <= small_item; }

  /// With the lock. Not after all that there was has been given: that is the end of the pipeline itself.
  void reach_limit() noexcept {
    if (taken_ >= limit_ && !(ended_ && items_.empty())) stopped_ = true;
  }

  /// The thing that the thread waits for: nothing, several items, the next item.
  enum class waiting : unsigned char { no, for_several, for_one };
  static constexpr duration most_late = duration(200'000);

  mutable std::mutex mutex_;
  window window_;
  const bool several_;
  std::size_t largest_ = 0;  // of the items so far, in bytes
  std::size_t full_at_ = 0;  // how many items there were when the producer began to wait
  waiting waits_ = waiting::no;
  bool flush_sent_ = false;
  std::uint64_t pushed_ = 0;
  std::uint64_t seen_ = 0;  // of those, when flush() ran
  std::condition_variable filled_;
  std::deque<T> items_;
  bool ended_ = false;
  bool producer_waits_ = false;
  std::exception_ptr error_;
  executor* executor_ = nullptr;
  remote_node* stop_ = nullptr;  // waits for the executor
  bool sent_ = false;
  std::uint64_t taken_ = 0;
  std::uint64_t limit_ = UINT64_MAX;
  bool stopped_ = false;
  notifier room_;  // the executor's thread only
  wake_producer wake_{*this};
  wake_consumer flush_{*this};
};

/// The half of a run that is on a loop of the runtime, and what both halves share.
///
/// On the loop's thread: begin(), then end() when the pipeline is over, when the training thread has sent a stop, or
/// when the loop fails. end() destroys the pipeline, waits, by messages, for the work that other threads still do for
/// it, and the last message wakes the training thread. The loop keeps the state until that one has run, and with it
/// every message sent before.
template <class T>
class run_state {
 public:
  /// `spare`: what the budget leaves beyond the declared bounds: see check_budget().
  run_state(async_generator<T>&& pipeline, const run_options& o, std::size_t spare, std::uint32_t rank)
      : options(o),
        context(spare, o.budget == 0 ? run_budget::unlimited : o.budget),
        queue(o.prefetch, o.prefetch_bytes),
        stops(callback<void()>::to<&run_state::ask_to_stop>(*this)),
        pipeline_(std::move(pipeline)),
        rank_(rank) {
    context.set_consumer_waits_since(run_context::not_waiting);
    context.tell_skipped(o.skipped);
  }

  // ---- the training thread's side

  static void start(const std::shared_ptr<run_state>& self, event_loop& loop) {
    self->self_ = self;
    self->loop_ = &loop;
    loop.post_remote(self->begin_);
  }
  /// Asks the loop to end the pipeline. Any thread.
  void stop() noexcept { queue.send(stop_); }
  /// Ends it now, or, where ranks agree on the step, notes that it is to end. Any thread.
  void ask_to_stop() noexcept {
    wanted.store(true, std::memory_order_release);
    if (!agreed) stop_after(0);
  }
  /// The training thread gets no more than `items` items in all. Any thread.
  void stop_after(std::uint64_t items) noexcept {
    if (queue.limit(items)) stop();
  }
  /// Blocks until nothing of the pipeline is left on any thread.
  void wait() noexcept {
    std::unique_lock lock(mutex_);
    while (!over_) changed_.wait(lock);
  }

  const own_process process;
  const run_options options;
  run_context context;
  run_metrics metrics;
  run_trace trace;
  blocking_queue<T> queue;
  stop_causes stops;
  bool agreed = false;  // set before the run begins: all ranks stop after the same step
  std::atomic<bool> wanted{false};   // a stop was asked for
  std::atomic<bool> stopped{false};  // the training thread was given the end because of one
  std::atomic<bool> in_next{false};  // a thread is in next(), or in a step of a loop

 private:

  class loop_failure_listener final : public failure_listener {
   public:
    explicit loop_failure_listener(run_state& s) noexcept : state_(s) {}
    void loop_failed(const std::exception_ptr& failure) noexcept override { state_.end(failure); }

   private:
    run_state& state_;
  };
  class abandoned_listener final : public wait_group::listener {
   public:
    explicit abandoned_listener(run_state& s) noexcept : state_(s) {}
    void all_done() noexcept override { state_.leave_when_idle(); }

   private:
    run_state& state_;
  };

  void begin() noexcept {
    try {
      failure_listeners& listeners = loop_->service<failure_listeners>();
      if (listeners.failure()) std::rethrow_exception(listeners.failure());
      line_.emplace(*loop_, metrics, options, rank_);
      pump_ = spawned<void>(coroutine_context(*loop_, context, metrics.sink()), fill(*this));
      listeners.add(loop_failure_listener_);
      stops.begin(*loop_, context);
      queue.attach(loop_);
    } catch (...) {
      end(std::current_exception());
    }
  }

  static task<void> fill(run_state& self) {
    blocking_queue<T>& queue = self.queue;
    compactor<T> kept;
    try {
      for (bool room = queue.reserve();;) {
        for (; !room; room = queue.reserve()) co_await queue.room().wait();
        std::optional<T> item = co_await self.pipeline_.next();
        if (!item) break;
        kept(*item);
        room = queue.push(std::move(*item));
      }
      queue.finish(nullptr);
    } catch (...) {
      self.log_stage_of(std::current_exception());
      queue.finish(std::current_exception());
    }
    // The pipeline stays until the training thread has taken the items in the queue, since they may need it.
    while (!queue.drained()) co_await queue.room().wait();
    self.loop_->post_remote(self.filled_);  // a coroutine cannot end itself
  }

  /// Exceptions that are not the library's have no place: logs the stage that threw them.
  void log_stage_of(const std::exception_ptr& failure) noexcept {
    try {
      const stage_record* const stage = metrics.recorder().stage_of(failure);
      metrics.recorder().forget_failure();
      if (stage != nullptr) log_foreign_exception(*loop_, metrics.name_of(*stage), failure);
    } catch (...) {  // no memory for the line
    }
  }

  void filled() noexcept { end(nullptr); }
  void stop_came() noexcept { end(nullptr); }

  void end(std::exception_ptr failure) noexcept {
    if (ended_) return;
    ended_ = true;
    loop_failure_listener_.unlink();
    stops.end();
    queue.attach(nullptr);  // from now on the training thread must not post
    queue.clear();          // before the pipeline: items may refer to what its stages own
    metrics.end();
    pump_ = spawned<void>();
    pipeline_ = async_generator<T>();
    line_.reset();
    if (failure) queue.finish(std::move(failure));
    leave_when_idle();
  }
  void leave_when_idle() noexcept {
    for (const run_context* each : {&context, &loop_->own_run()}) {
      if (!each->abandoned()->empty()) return each->abandoned()->notify_when_empty(abandoned_listener_);
    }
    loop_->post_remote(leave_);  // after all that the training thread and the pump have sent
  }
  void leave() noexcept {
    const std::shared_ptr<run_state> last = std::move(self_);
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_one();
  }

  std::shared_ptr<run_state> self_;  // the loop's, while a message may come
  event_loop* loop_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;

  // the loop's thread
  async_generator<T> pipeline_;
  const std::uint32_t rank_;
  std::optional<progress_line> line_;
  bool ended_ = false;
  loop_failure_listener loop_failure_listener_{*this};
  abandoned_listener abandoned_listener_{*this};
  message<run_state, &run_state::begin> begin_{*this};
  message<run_state, &run_state::filled> filled_{*this};
  message<run_state, &run_state::stop_came> stop_{*this};
  message<run_state, &run_state::leave> leave_{*this};
  spawned<void> pump_;  // declared last: it refers to the rest
};

/// The state of a run of `pipeline`; see run_state's constructor.
template <class T>
std::shared_ptr<run_state<T>> make_run_state(async_generator<T> pipeline, const run_options& o, std::size_t spare,
                                             std::uint32_t rank) {
  return std::make_shared<run_state<T>>(std::move(pipeline), o, spare, rank);
}

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/detail/run_state.ipp>
#endif
