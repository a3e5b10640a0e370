// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/rank.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Short texts that the processes of a training leave for each other, by name, without waiting: the key-value service
/// of the engine that started them. A run of several ranks asks it about twice a second, on its loop, whether a rank is
/// to stop: so a call takes a round trip, and never waits for another process. c10d_ranks() (<millrace/c10d.hpp>) makes
/// one of a c10d::Store. Names are below 200 bytes, of letters, digits, "." and "-".
class rank_notes {
 public:
  virtual ~rank_notes() = default;
  /// Also in place of one.
  virtual task<void> put(std::string name, std::string text) const = 0;
  /// Empty if there is none.
  virtual task<std::string> get(std::string name) const = 0;
  /// Does nothing if there is none.
  virtual task<void> remove(std::string name) const = 0;
};

/// The ranks that train together, as far as a run needs them: see stream::of_ranks(). A rank_group is one.
class rank_words {
 public:
  virtual ~rank_words() = default;
  /// Collective: the words of all ranks, one rank's after the other's. All give equally many. Waits on the calling
  /// thread, which is the one that takes the run's items.
  virtual std::vector<std::uint64_t> gather(std::vector<std::uint64_t> mine) const = 0;

  /// Which process this is, of how many.
  virtual const rank& process() const noexcept = 0;
  /// What the ranks agree by on a stop, on the run's loop. Null: they gather() before some of the items.
  virtual const rank_notes* notes() const noexcept { return nullptr; }
  /// Begins the names of the run's notes: the same on all ranks, and no other run's. Empty until the ranks have
  /// compared what they are to train on.
  virtual std::string name() const { return std::string(); }
  /// The name of the run before, of which this rank's last note is still there. Empty: none.
  virtual std::string name_before() const { return std::string(); }
  /// How long a rank waits for the others.
  virtual duration timeout() const noexcept { return std::chrono::minutes(10); }
};

}  // namespace millrace::inline MILLRACE_ABI
