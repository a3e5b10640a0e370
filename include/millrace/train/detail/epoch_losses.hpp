// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <millrace/coro/executor.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/order/epoch_state.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The samples that a run of epochs() could not have, by shard: the run's list of them, and what a state says of those
/// before it. Any thread.
class epoch_losses {
 public:
  /// Begins with those of a state that the run goes on from; `names`: of the shards that it names, by their numbers.
  void carry(const epoch_state& before, const std::map<std::uint64_t, std::string>& names);
  /// One more, in the order of delivery.
  void add(const epoch_mark& at, std::uint64_t shard, const std::string& name, const std::string& reason);
  /// Puts the losses before its position into a state. Positions of further calls must not be before that one.
  void write(epoch_state& now);

  /// The shards in their order.
  std::vector<lost_shard> list() const;

 private:
  /// A state says so many shards by their numbers, so that it stays small.
  static constexpr std::size_t most_named = 32;

  struct of_shard {
    lost_shard all;
    std::uint64_t passed = 0;  // of them, before the latest state
  };
  struct hole {
    std::uint64_t epoch;
    std::uint64_t position;
    std::uint64_t shard;
  };

  mutable std::mutex mutex_;
  std::map<std::uint64_t, of_shard> shards_;
  std::uint64_t unnamed_ = 0;  // carried, of shards that the state did not name
  std::deque<hole> ahead_;     // of the latest state
};

/// Says the list in the log: the first ten shards, and how many more.
void say_losses(const executor& ex, const std::vector<lost_shard>& lost);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/epoch_losses.ipp>
#endif
