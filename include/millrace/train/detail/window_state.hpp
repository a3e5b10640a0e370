// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <millrace/data/hash128.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/train/detail/window_order.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The shards that have been read, by their numbers in the list: with the ETag and the size that were found.
using known_shards = std::map<std::uint64_t, shard>;

/// Where one rank of a training without an index stands: what pipeline_run::state() writes there, as JSON. Beside the
/// numbers that fix the order it has one text, `place`: the open shards with the offset of what comes next in each, and
/// the places of the samples in the window, slot by slot; 7 to 10 bytes a sample, none of theirs.
class window_state {
 public:
  static constexpr std::uint64_t version = epoch_state::version;

  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< samples of the epoch that the rank has taken
  std::uint64_t rank = 0;
  std::uint64_t world_size = 1;
  std::uint64_t shards = 0;  ///< epochs_request::shards
  std::uint64_t window = 0;
  std::uint64_t window_bytes = 0;
  hash128 list;
  /// As epoch_state's: batches of the window of bucket_by_length(), or tokens of the document of pack(), that begins
  /// here, and of which one. Left out of the text where there are none.
  std::uint64_t taken = 0;
  std::uint64_t taken_of = 0;
  std::uint64_t steps = 0;  ///< as epoch_state's
  std::string place;   ///< word_writer's; empty at an epoch's beginning
  epoch_state losses;  ///< its holes alone

  /// At the beginning of an epoch.
  window_state() = default;
  window_state(const window_plan& plan, std::uint64_t at_epoch);

  std::string text() const { return with_check_word(unchecked_text()); }
  /// What text() gave, or a text of version 1, which has no check word; configuration_error, which says what is wrong,
  /// for anything else.
  static window_state parse(std::string_view text);

  /// Throws configuration_error, which names what differs, where a training with this plan would not go on with the
  /// order of this state. At the beginning of an epoch only the seed must be the same, if nothing is taken.
  void check(const window_plan& now) const;

  /// Takes the order's place over.
  void stand_at(const window_order& order, const known_shards& known);
  /// The order there, of a plan that was checked. configuration_error for a `place` that is not of this list,
  /// changed_error for a shard that the list says to be another version.
  window_order order(std::shared_ptr<const window_plan> plan, known_shards& known) const;

 private:
  std::string unchecked_text() const;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/window_state.ipp>
#endif
