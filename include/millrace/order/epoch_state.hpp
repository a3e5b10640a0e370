// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/data/hash128.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The order of a training without an index, and the place of a rank in its shards: see epoch_state::streamed.
struct streamed_order {
  std::uint64_t shards = 0;  ///< dataset_options::shards
  std::uint64_t window = 0;  ///< dataset_options::window
  std::uint64_t window_bytes = 0;
  hash128 list;  ///< of the shards
  /// The open shards with the offset of what comes next in each, and the places of the samples in the window, slot by
  /// slot, in words of its own; 7 to 10 bytes a sample, none of theirs. Empty at an epoch's beginning.
  std::string place;

  friend bool operator==(const streamed_order&, const streamed_order&) = default;
};

/// The state of a training: the place that it has reached in the epoch, and what determines the order, so that another
/// order is refused. Written by pipeline_run::state(), read by epochs(). With an index the place is one number, the
/// position that all ranks together have reached: the state does not depend on ranks and batches, and any number of
/// ranks can resume from it, unless `world_size` is not 0. Without an index it is of one rank (`streamed`).
class epoch_state {
 public:
  /// The version of a text with `hosts`. Texts with `steps` have version 3 and others 2, which earlier programs read.
  static constexpr std::uint64_t version = 4;

  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< samples of the epoch that have been taken, by all ranks; of `streamed` by this one
  std::uint64_t tracks = 0;
  std::uint64_t slice = 0;
  std::uint64_t hosts = 1;  ///< order_options::hosts; left out of the text if it is 1
  /// order_options::former_homes: of a text with `hosts` of an earlier version.
  bool former_homes = false;
  hash128 index;  ///< index_set::digest()
  /// For arrays: a hash of their contents (arrays::contents()). A training goes on with others, and the log says so.
  /// Left out of the text if there are none.
  std::uint64_t contents = 0;
  /// For a mix of data sets: its parts and weights, as a text. Left out of the text if there is one data set.
  std::string mix;
  /// Without an index, in place of the six members above. The text has `"order":"window"` then.
  std::optional<streamed_order> streamed;
  /// Batches that were taken of the window of bucket_by_length() that begins here, or tokens of the documents that
  /// pack() had from here, and the number that identifies that window. Left out of the text if there are none.
  std::uint64_t taken = 0;
  std::uint64_t window = 0;
  /// The rank that this state is for, without an index and with several ranks after pack(). Left out if it is for all.
  std::uint64_t rank = 0;
  std::uint64_t world_size = 0;
  /// The steps of the epoch that all ranks have taken in such a state (epoch_mark::steps), so that ranks can compare
  /// them. 0: not known, and left out of the text.
  std::uint64_t steps = 0;
  /// Samples before this position that could not be read by the rank that wrote the state, by the numbers of their
  /// shards: of those that lost most. Left out of the text if there are none.
  std::map<std::uint64_t, std::uint64_t> holes;
  std::uint64_t other_holes = 0;  ///< of all other shards

  /// JSON, about 170 bytes: `{"millrace":"epochs","version":2,"seed":7,"epoch":3,"position":40960,"tracks":960,
  /// "slice":32,"index":"9c..","check":"5d.."}`. The last member is a check word over all others.
  std::string text() const;
  /// Parses the result of text(), also with other spaces and another order of its members, and a text of version 1,
  /// which has no check word. configuration_error, which names the fault, for anything else: a changed digit, another
  /// version.
  static epoch_state parse(std::string_view text);

  /// Throws configuration_error, which names what differs, where a training with `now` as its beginning would not go on
  /// with the order of this state; both are `streamed`, or none. At the beginning of an epoch only the seed must be the
  /// same; of a mix, whose data sets run on from epoch to epoch, everything.
  void check(const epoch_state& now) const;

  friend bool operator==(const epoch_state&, const epoch_state&) = default;

 private:
  std::string unchecked_text() const;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/order/epoch_state.ipp>
#endif
