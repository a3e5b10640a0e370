// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/runtime_counts.hpp>
#include <millrace/coro/stage_record.hpp>
#include <millrace/coro/tracer.hpp>
#include <millrace/retry/detail/read_controller.hpp>
#include <millrace/retry/host_stats.hpp>

/// \file
/// How the readers of one store share its requests. A reader has a `host_share`, by which it decides when it begins the
/// next ranged read and how long that is:
///
///     host_share share(here, "https://store.example:9000", {.bytes = 128 * MiB, .longest = 8 * MiB, .requests = 64});
///     ...
///     if (share.may_begin(consumer_waits)) {
///       host_share::request one = share.begin();
///       ...                                      // a read of share.part() bytes at most
///       one.finished(now, {.bytes = n, .first = first_byte, .total = took});
///     }

namespace millrace::inline MILLRACE_ABI::detail {

class host_share;

/// A store's host: measurements, and the reads in flight of all of its readers. Any thread.
class store_host {
 public:
  explicit store_host(std::string name) : name_(std::move(name)), controller_(read_controller::bounds()) { show(); }
  store_host(const store_host&) = delete;
  store_host& operator=(const store_host&) = delete;

  /// "https://store.example:9000"; empty: of one reader alone.
  const std::string& name() const noexcept { return name_; }
  /// The number of reads that all readers together may have in flight, and how long the next one is at most.
  std::size_t requests() const noexcept { return requests_.load(std::memory_order_relaxed); }
  std::size_t part() const noexcept { return part_.load(std::memory_order_relaxed); }
  bool has_measured() const noexcept { return measured_.load(std::memory_order_relaxed); }
  /// True if the readers' memory limits requests().
  bool at_bytes() const noexcept { return at_bytes_.load(std::memory_order_relaxed); }
  std::size_t in_flight() const noexcept { return in_flight_.load(std::memory_order_relaxed); }
  /// Seconds to the first byte, and bytes in a second of one connection; 0: not measured.
  double first_byte() const noexcept { return first_byte_.load(std::memory_order_relaxed); }
  double connection_rate() const noexcept { return connection_rate_.load(std::memory_order_relaxed); }
  /// True if more reads at a time would not raise the rate.
  bool link_is_full() const noexcept { return link_is_full_.load(std::memory_order_relaxed); }
  std::size_t readers() const;
  host_stats stats() const;

 private:
  friend host_share;
  friend class store_hosts;

  void join(host_share& reader);
  void leave(host_share& reader) noexcept;
  /// The bounds of all readers together.
  void bound() noexcept;
  void show() noexcept;
  void finished(time_point now, std::size_t bytes, duration first, duration total, bool whole) noexcept;
  void held_back(time_point now) noexcept;

  const std::string name_;
  mutable std::mutex mutex_;
  read_controller controller_;
  host_share* readers_ = nullptr;  // the first of a list
  // Read and written without the mutex: a number that is out of date by one read does no harm.
  std::atomic<std::size_t> requests_{0};
  std::atomic<std::size_t> part_{0};
  std::atomic<bool> measured_{false};
  std::atomic<bool> at_bytes_{false};
  std::atomic<bool> link_is_full_{false};
  std::atomic<double> first_byte_{0}, connection_rate_{0};
  std::atomic<std::size_t> in_flight_{0};
  std::atomic<std::size_t> active_{0};  // readers that have reads in flight
  std::atomic<std::size_t> hungry_{0};  // readers whose consumer waits, and that were refused one more
  std::shared_ptr<store_host> next_;    // of store_hosts, under its mutex
};

/// The stores of a runtime, by name: runtime_parts::hosts(). Any thread.
class store_hosts {
 public:
  store_hosts() = default;
  store_hosts(const store_hosts&) = delete;
  store_hosts& operator=(const store_hosts&) = delete;

  /// The host of this name; one without readers may be forgotten when there are many.
  std::shared_ptr<store_host> of(const std::string& name);
  /// The hosts that were read from, by name.
  std::vector<host_stats> stats() const;

  /// The counts of all requests of the runtime, and its trace.
  runtime_counts counts;
  tracer events;

 private:
  static constexpr std::size_t many = 256;
  mutable std::mutex mutex_;
  std::shared_ptr<store_host> first_;
  std::size_t count_ = 0;
};

/// One reader's share of the reads that a store's host has in flight.
///
/// The host's number is that of its read_controller, which sees the reads of all readers. Each reader that reads may
/// have its share of the number in flight, and at least one read. The unused rest is for the reader whose consumer
/// waits, then for any. A reader that is refused asks again when one of its own reads has finished.
///
/// For one thread; other readers of the host may be on other threads. Outlives its requests.
class host_share {
 public:
  using bounds = read_controller::bounds;

  /// Takes part in the host of that name in the runtime of `here`. With an empty name, or on a loop of no runtime, the
  /// host is the reader's own, and its measurements are lost with the reader.
  host_share(const coroutine_context& here, const std::string& name, const bounds& b);
  host_share(const host_share&) = delete;
  host_share& operator=(const host_share&) = delete;
  ~host_share() {
    satisfied();
    host_->leave(*this);
  }

  /// Returns true if one more read may begin now. `consumer_waits`: the consumer waits for this reader's data.
  bool may_begin(bool consumer_waits) noexcept;
  /// There is nothing more to read for the moment.
  void satisfied() noexcept {
    if (std::exchange(hungry_, false)) host_->hungry_.fetch_sub(1, std::memory_order_relaxed);
  }

  /// The measurements of a read.
  struct result {
    std::size_t bytes = 0;
    duration first{0};       ///< to the first byte
    duration total{0};       ///< to the last one
    duration held{0};        ///< of that, while the store asked for fewer requests
    bool whole = false;      ///< no part() could have made it longer
    bool waits = false;      ///< the reader's consumer waits
    bool full = false;       ///< its room, and nothing else, keeps it from beginning more
    /// The counter, in the record of the stage, of being full; null: none.
    stage_record::counter stage_record::*full_by = nullptr;
  };
  /// A read in flight, until it is destroyed.
  class request {
   public:
    request() noexcept = default;  // none
    request(request&& other) noexcept : share_(std::exchange(other.share_, nullptr)) {}
    request& operator=(request&&) = delete;
    ~request() { end(); }
    /// It has come, at `now`. Ends it.
    void finished(time_point now, const result& r) noexcept {
      if (share_ != nullptr) share_->finished(now, r);
      end();
    }

    /// It has failed, or has come and says nothing of the store.
    void end() noexcept {
      if (host_share* const share = std::exchange(share_, nullptr)) share->ended();
    }

   private:
    friend host_share;
    explicit request(host_share& s) noexcept : share_(&s) {}
    host_share* share_ = nullptr;
  };
  /// Begins one, whether or not may_begin() allows it.
  request begin() noexcept;

  /// How many reads this reader would have in flight if it were the only one.
  std::size_t requests() const noexcept { return std::min(host_->requests(), bounds_.requests); }
  /// How long the next read is at most: bounds::longest, or a half, a quarter, an eighth, ... of it.
  std::size_t part() const noexcept;
  /// True if part() is more than a guess.
  bool has_measured() const noexcept { return host_->has_measured(); }
  /// True if reads are known to be so quick that reading ahead may begin small and double: nothing is lost, and the
  /// first reads do not share the link and the loop with later ones.
  bool is_quick() const noexcept;
  /// Bytes of all reads that may be in flight, for reading ahead to begin with, if none is longer than `longest`; 0
  /// if they are quick or not measured.
  std::size_t ahead(std::size_t longest = SIZE_MAX) const noexcept;
  /// This reader's reads.
  std::size_t in_flight() const noexcept { return in_flight_; }
  const store_host& host() const noexcept { return *host_; }
  /// The name given to the constructor; that of host() is empty on a loop of no runtime.
  const std::string& name() const noexcept { return name_; }

 private:
  friend store_host;
  void ended() noexcept;
  void finished(time_point now, const result& r) noexcept;
  /// For the stage's record: what was chosen, and what keeps it from more.
  void note(const result& r) noexcept;
  /// True if requests() keeps it from beginning more.
  bool at_number() const noexcept {
    return in_flight_ >= bounds_.requests || host_->in_flight() >= host_->requests();
  }

  const bounds bounds_;
  const std::string name_;
  stage_record* const stage_;
  const std::shared_ptr<store_host> host_;
  std::size_t in_flight_ = 0;
  bool hungry_ = false;         // counted by the host
  host_share* next_ = nullptr;  // of the host's readers, under its mutex
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/retry/detail/store_host.ipp>
#endif
