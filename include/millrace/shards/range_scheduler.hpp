// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/coro/stage_record.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/retry/detail/store_host.hpp>
#include <millrace/shards/range_reader.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// How many bytes a reader holds ahead at the moment: little at first, more as long as that spares its consumer
/// waiting.
///
/// A round is the time in which a window of bytes is delivered. After a round in which the consumer waited, the
/// window doubles. That has paid when the consumer waits less for each byte of the round that follows. Where it does
/// not, because the link, the store or this machine is the limit, the window rests for `rest` rounds: the memory that
/// is added then is a fifth of what has been read. The first half of a window counts for nothing: connections are new,
/// and no window shortens the wait for the first byte.
class read_window {
 public:
  static constexpr int rest = 4;
  /// Waiting is what takes more than this share of a round.
  static constexpr double noticed = 1.0 / 64;
  /// A doubling has paid when the consumer waits at most this share of what it waited before. Half would be ideal.
  static constexpr double paid = 0.7;
  /// Where doublings are undone, a round lasts at least so long: what other programs take of this machine must not look
  /// like a doubling that paid.
  static constexpr duration least_round = std::chrono::milliseconds(50);

  /// From `least` bytes towards `most`.
  read_window(std::size_t least, std::size_t most) noexcept : bytes_(std::min(least, most)), most_(most) {}
  /// The same where `kept` of these bytes are no reading ahead, and do not double. A doubling that has not paid is
  /// undone. All of the first window counts for nothing: its memory may be touched for the first time.
  read_window(std::size_t kept, std::size_t least, std::size_t most) noexcept
      : bytes_(std::min(least, most)), most_(most), kept_(std::min(kept, bytes_)), undoes_(true) {}

  std::size_t bytes() const noexcept { return bytes_; }
  /// True if the consumer has hardly waited lately: reads that are longer, and fewer, give it as much.
  bool is_ahead() const noexcept {
    return static_cast<double>(lately_waited_.count()) < noticed * static_cast<double>(lately_.count());
  }

  /// At least so many, as far as the bound allows: what the reads that are worth it take.
  void raise(std::size_t bytes) noexcept {
    bytes_ = std::max(bytes_, std::min(bytes, most_));
    smaller_ = std::max(smaller_, std::min(bytes, most_));
  }

  /// A part was delivered at `now` that had taken `held` bytes of the window. The consumer has waited for it for
  /// `waited`. Where waits are a quarter of its time, the window is raised to `enough`.
  void took(std::size_t held, duration waited, time_point now, std::size_t enough = 0) noexcept;

 private:
  void add_to_round(std::size_t held, duration waited, time_point now) noexcept;
  void judge(duration round) noexcept;

  std::size_t bytes_;
  const std::size_t most_;
  const std::size_t kept_ = 0;
  const bool undoes_ = false;
  // How much of its time the consumer has waited lately. The wait for the first part says nothing of it.
  std::optional<time_point> took_at_;
  duration lately_waited_{0};
  duration lately_{0};
  // The round.
  bool begun_ = false;
  time_point began_{};
  std::size_t held_ = 0;
  duration waited_{0};
  // The latest doubling.
  bool doubled_ = false;     // the round is the first one since
  double before_ = 0;        // waiting for each byte, in ns, in the round before
  std::size_t smaller_ = 0;  // the window then
  int resting_ = 0;          // rounds still to come
};

/// A range of an object that a reader wants, and what has become of it. Readers derive their own from it.
class wanted_range {
 public:
  std::size_t length() const noexcept { return static_cast<std::size_t>(end - begin); }

  std::uint64_t begin = 0;  // bytes of the object, or of its text where that is compressed
  std::uint64_t end = 0;
  bool done = false;
  std::exception_ptr error;  // why it could not be read
  spawned<void> reading;     // empty until its turn has come

 private:
  friend class range_scheduler;
  host_share* share_ = nullptr;
  std::size_t bytes_ = 0;
  bool local_ = false;
  bool first_ = false;
};

/// Decides when a reader's ranges are read: in the order of their deadlines, as many at a time as the host of each
/// gives this reader (host_share), within the bounds of the reader. The reader itself is a policy: it says which ranges
/// are wanted when, and what becomes of the bytes, which it has read by reader().
///
/// Ranges on a local disk (storage::is_local()) are read beside the others, in an order of their own: they are not
/// among the host's requests, and the host learns nothing of them.
///
/// Ranges for the first batch have a privilege: while one of them is under way, others begin only as far as
/// limits::beside_first bytes are, so that they do not take the link, nor the loop, from it; while the store is left to
/// the first batch, none does.
///
/// For one loop. It outlives its turns, and the store's answers to them.
class range_scheduler {
 public:
  struct limits {
    std::size_t bytes = SIZE_MAX;         ///< of ranges under way; one may be longer
    std::size_t later = SIZE_MAX;         ///< ranges under way, where the next one is not for the first batch
    std::size_t beside_first = SIZE_MAX;  ///< bytes under way, likewise, while a range for the first batch is
  };

  range_scheduler(const coroutine_context& here, std::shared_ptr<const storage> store, const host_share::bounds& host,
                  const limits& own)
      : here_(here), reader_(std::move(store)), bounds_(host), limits_(own) {}

  range_reader& reader() noexcept { return reader_; }
  const storage& store() const noexcept { return reader_.store(); }
  /// The reader's share of the host that this URL is read from. The bounds are those of each.
  host_share& share_of(const std::string& url);
  /// Of each host: how many reads this reader would have in flight if it were the only one.
  std::size_t most_requests() const noexcept;

  /// The consumer of this reader begins to wait, or has waited.
  void consumer_waits(bool now) noexcept;
  bool consumer_waits() const noexcept { return waits_; }
  /// Whether the run waits for what this reader reads.
  bool is_waited_for() const noexcept;
  /// How long the consumer has waited since the last call.
  duration waited() noexcept { return std::exchange(waited_, duration(0)); }
  /// Whether room is what keeps the reader from wanting more, and what that is counted as; null: nothing.
  void full(bool now, stage_record::counter stage_record::*by) noexcept {
    full_ = now;
    full_by_ = by;
  }
  /// The first batch has the store for itself until so many items have been taken.
  void leave_to_first(std::uint64_t items) noexcept { alone_ = items; }
  void item_taken() noexcept {
    if (alone_ != 0) --alone_;
  }

  /// A request that is under way, until it ends or is destroyed.
  class turn {
   public:
    turn(turn&& other) noexcept
        : scheduler_(std::exchange(other.scheduler_, nullptr)),
          request_(std::move(other.request_)),
          asked_(other.asked_),
          bytes_(other.bytes_),
          local_(other.local_),
          first_(other.first_) {}
    turn& operator=(turn&&) = delete;
    ~turn() { end(); }

    /// The store is asked now, and not when the turn came.
    void asks() noexcept { asked_ = scheduler_->here_.get_executor().now(); }
    /// It has come: the host learns what it took. `whole`: it could not have been longer. Ends it.
    void finished(const storage::part& p, bool whole) noexcept { finished(p.data.size(), p.first_byte, p.held, whole); }
    void finished(std::size_t bytes, duration first_byte, duration held, bool whole) noexcept;
    /// It has failed, or has come and says nothing of the store.
    void end() noexcept;

   private:
    friend range_scheduler;
    turn(range_scheduler& s, host_share& share, bool local, std::size_t bytes, bool first) noexcept;

    range_scheduler* scheduler_;
    host_share::request request_;
    time_point asked_;
    std::size_t bytes_;
    bool local_;
    bool first_;
  };

  /// So many long ranges of a local disk at a time keep it busy while the loop checks what has come; of shorter ones as
  /// many bytes.
  static constexpr std::size_t most_local = 8;
  std::size_t most_local_bytes() const noexcept { return multiplied(most_local, bounds_.longest); }

  /// Whether a range that takes so many bytes may begin, as far as its host, or the disk, goes.
  bool may_begin(host_share& share, bool local, std::size_t bytes) noexcept {
    if (!local) return share.may_begin(is_waited_for());
    return locals_ < most_local || (locals_ < bounds_.requests && local_bytes_ + bytes <= most_local_bytes());
  }
  /// Begins it, whether or not it may.
  turn begin(host_share& share, bool local, std::size_t bytes) noexcept {
    return turn(*this, share, local, bytes, false);
  }

  /// `range` will be read in its turn, after those that are wanted already; unless it is destroyed before. It takes
  /// `bytes` while it is under way. `first`: it is for the first batch.
  void want(const std::shared_ptr<wanted_range>& range, host_share& share, bool local, std::size_t bytes, bool first);
  /// The next one whose turn has come; null where none has. It is read with begin().
  std::shared_ptr<wanted_range> next() noexcept;
  turn begin(const wanted_range& r) noexcept { return turn(*this, *r.share_, r.local_, r.bytes_, r.first_); }
  /// Begins the ranges whose turn has come. All of them are of type Range. `reader.read(range, turn)` is a task that
  /// reads one; wanted_range::error is what it throws. reader.came(range), which throws nothing, follows in any case,
  /// also if a request cannot be begun, for lack of memory: tasks call start(), too, whose exceptions have no reader.
  template <class Range, class Reader>
  void start(Reader& reader) noexcept {
    while (const std::shared_ptr<wanted_range> wanted = next()) {
      Range& r = static_cast<Range&>(*wanted);
      try {
        r.reading = spawned<void>(here_, take_turn(*this, reader, r, begin(r)));
      } catch (...) {  // the range has failed
        r.error = std::current_exception();
        reader.came(r);
      }
    }
  }
  /// Nothing is wanted any more.
  void clear() noexcept;

 private:
  template <class Range, class Reader>
  static task<void> take_turn(range_scheduler& self, Reader& reader, Range& r, turn its) {
    its.asks();
    try {
      co_await reader.read(r, its);
    } catch (...) {  // the range has failed
      r.error = std::current_exception();
    }
    its.end();
    reader.came(r);
    self.start<Range>(reader);
  }
  bool may_begin(const wanted_range& r) noexcept;
  /// Nothing more is wanted for the moment, of any host.
  void satisfied() noexcept;

  const coroutine_context here_;
  range_reader reader_;
  const host_share::bounds bounds_;
  const limits limits_;
  std::deque<host_share> shares_;  // of one host, usually
  bool waits_ = false;
  time_point waits_since_{};
  duration waited_{0};
  bool full_ = false;
  stage_record::counter stage_record::*full_by_ = nullptr;
  std::uint64_t alone_ = 0;  // items that the first batch lacks, while it has the store for itself
  // Under way.
  std::size_t requests_ = 0;
  std::size_t bytes_ = 0;
  std::size_t firsts_ = 0;  // for the first batch
  std::size_t locals_ = 0;
  std::size_t local_bytes_ = 0;
  // The most urgent first.
  std::deque<std::weak_ptr<wanted_range>> waiting_;
  std::deque<std::weak_ptr<wanted_range>> waiting_local_;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/range_scheduler.ipp>
#endif
