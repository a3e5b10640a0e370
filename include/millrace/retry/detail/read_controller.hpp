// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/retry/host_stats.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Decides how many ranged reads of a store are in flight and how long each is, from the times of finished reads.
///
/// A read takes the time to its first byte and then its length over the rate of its connection: a few reads at the
/// start tell both. From then on the rate of all is measured in intervals. If the total rate equals the rate of one
/// read times the number of reads, only their number limits them, and it grows threefold until memory or `requests`
/// bounds it; if it is less, the link or the store is the limit, and there are `slack` times as many as fill it. (Far
/// away it must be less in two intervals: a stalled machine looks the same in a single one.) Growth that does not raise
/// the rate is undone, and not tried again for a while: then the loop that receives is the limit. Every few intervals a
/// few more, or a few fewer, are tried in turn: more are kept if the rate follows, fewer if it does not fall. If the
/// rate falls, more are tried at once, which tells a slower link from reads that take longer. (As BBR does for bytes in
/// flight: Cardwell et al., ACM Queue 14(5), 2016; here the unit is a request, and only the times of requests are
/// seen.)
///
/// Reads are as long as possible, as long as the memory holds the number wanted and 64 or more finish in a second: long
/// ones cost less CPU. The cost of a request counts as time in which a loop receives nothing. Not for several threads.
class read_controller {
 public:
  struct bounds {
    std::size_t bytes = 128 * MiB;   ///< of reads in flight, and finished ones that wait for their turn
    std::size_t longest = 8 * MiB;   ///< of one read
    std::size_t shortest = 1 * MiB;  ///< of one read, unless `longest` is less
    std::size_t requests = 128;      ///< in flight, at most
    std::size_t start = 6;           ///< in flight before anything is known of the store
    std::size_t loops = 1;           ///< that receive them, in turn: four for each of them are in flight at least
  };

  explicit read_controller(const bounds& b) noexcept;

  /// Changes the bounds; measurements remain.
  void set_bounds(const bounds& b) noexcept;

  /// How many reads may be in flight.
  std::size_t requests() const noexcept { return requests_; }
  /// How long the next one is, at most: `longest` or a half, a quarter, an eighth, ... of it.
  std::size_t part() const noexcept { return part_; }
  /// True if `bytes` limits the number of requests.
  bool at_bytes() const noexcept;
  /// The latest limit seen.
  read_limit limit() const noexcept;
  /// Seconds to the first byte, and bytes in a second of one connection, if nothing else limits a read; bytes in a
  /// second of all, as they were seen last.
  double first_byte() const noexcept { return first_; }
  double connection_rate() const noexcept { return rate_; }
  double rate() const noexcept { return seen_; }
  /// True if more reads did not raise the rate when it was last measured.
  bool link_is_full() const noexcept { return full_; }
  /// True if enough reads have finished, not too long ago, for requests() and part() to be more than a guess.
  bool has_measured() const noexcept { return state_ != state::learning; }

  /// A read has finished that waited because the store asked for fewer requests: from now on they are fewer and of the
  /// greatest length. Shorter ones come back slowly.
  void held_back(time_point now) noexcept;

  /// A read of `bytes` has finished at `now`, its first byte `first` and its last `total` after its beginning. It was
  /// one of `in_flight`. `whole`: of a whole object; no part() could have made it longer. For reads of which there
  /// could have been more, if requests() had been larger: a reader that asks for fewer says nothing about the store.
  /// After a pause the interval begins anew. After a pause of minutes, the measurements are only a place to start from.
  void finished(time_point now, std::size_t bytes, duration first, duration total, std::size_t in_flight,
                bool whole = false) noexcept;

 private:
  /// Age at which measurements expire.
  static constexpr duration old = std::chrono::minutes(2);
  /// Initial number of requests when the measurements have expired.
  static constexpr double careful = 16;
  /// So long after held_back() reads may be half as long again.
  static constexpr duration patient = std::chrono::seconds(10);

  // The rate of an interval scatters by a tenth where latencies do: what these tell apart differs by more, or is judged
  // in several intervals. The 500 stores of tests/retry/read_controller_test.cpp hold them.
  /// Below this share of what is expected something limits reads, or has changed; so much of a number is most of it.
  static constexpr double limited_below = 0.75;
  /// From this share on nothing limits them. Between both their number is near what fills the link.
  static constexpr double free_above = 0.85;
  /// Growth has brought something where the rate is so many times what it was.
  static constexpr double brought_more = 1.1;
  /// The next numbers to try. More are kept where the rate grows by half as much as they do, taken for `least_growth`
  /// at least; fewer where it loses no more than an interval is uncertain by.
  static constexpr double more_when_held = 1.25;
  static constexpr double more_when_fallen = 1.5;
  static constexpr double fewer_when_held = 0.85;
  static constexpr double least_growth = 0.05;
  static constexpr double all_but_noise = 0.97;

  enum class state { learning, growing, holding, trying_more, trying_fewer };

  /// How long reads are at least: `longest` after held_back(), a half when that is `patient` ago, then a quarter, ...
  std::size_t shortest() const noexcept;
  /// Takes the mean size of objects, if nearly all reads of the interval were of whole ones. Returns whether that is
  /// so now and was not before, or the reverse.
  bool learn_size() noexcept;
  /// Bytes in a second that one read of this length brings if nothing limits it.
  double alone(double bytes) const noexcept { return bytes / (first_ + bytes / rate_); }
  /// Mean rate of one connection in the interval, in bytes per second after the first byte.
  double body_rate() const noexcept { return bytes_ / (bodies_ < 1e-6 ? 1e-6 : bodies_); }
  /// How long reads are if parts are of this length: objects may be shorter.
  double length(std::size_t part) const noexcept;
  /// The most reads with parts of this length.
  double most(std::size_t part) const noexcept;
  bool at_bound() const noexcept;
  /// Reads that fill the sockets while a loop has no core: each holds a part of a read.
  double fewest() const noexcept { return 4 * static_cast<double>(bounds_.loops); }
  /// Chooses length and number for so many bytes in a second.
  void aim(double rate) noexcept;
  void set_requests(double n) noexcept;
  /// True if the values of a connection come from short reads alone, or from the first three as they came in one go,
  /// and differ from those seen now.
  bool known_by_too_little() const noexcept;
  /// Reads that finish until those begun before have ended belong to the former state.
  void enter(state s, time_point now) noexcept;
  void learn() noexcept;
  void grow(double rate, double flying, time_point now) noexcept;
  void hold(double rate, double flying, time_point now) noexcept;
  void judge(double rate, double flying, time_point now) noexcept;

  bounds bounds_;
  double wanted_ = 0;  // requests, if there were no bounds
  std::size_t requests_;
  std::size_t part_;
  state state_ = state::learning;
  double first_ = 0;     // seconds to the first byte, of reads that nothing limited
  double rate_ = 1;      // bytes in a second of one connection, of the same
  bool guessed_ = true;  // both are of the first three reads
  double together_ = 0;  // likewise, of all connections in flight then
  double length_ = 0;    // the mean length of the reads that told both
  bool measured_ = false;
  double object_ = 0;    // the mean size of objects, if most reads are of whole ones; 0: longer than any part
  time_point latest_{};  // read that finished
  bool scarce_ = false;  // requests have been held back
  time_point held_back_{};
  // The interval.
  bool begun_ = false;
  time_point settled_{};
  time_point began_{};
  double count_ = 0;
  double wholes_ = 0;
  double bytes_ = 0;
  double waits_ = 0;   // for first bytes, in seconds
  double bodies_ = 0;  // from first to last bytes
  double flying_ = 0;
  double seen_ = 0;    // rate of all, in the latest one
  bool full_ = false;  // the link, likewise
  // The point that is held.
  double held_rate_ = 0;
  double held_flying_ = 0;
  double wanted_before_ = 0;
  int intervals_ = 0;
  struct choice {
    double wanted;
    std::size_t part;
    double first;
    double rate;
    bool guessed;
  } before_{};               // the latest growth
  double grown_from_ = 0;    // rate before it; 0: it was the first one
  double doubted_rate_ = 0;  // after it, if it brought too little and is measured once more; 0: not yet
  int useless_growth_ = 0;   // intervals without another one, since growth brought less
  bool more_next_ = false;
  bool blocked_ = false;  // memory is full of reads that wait for their turn
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/retry/detail/read_controller.ipp>
#endif
