// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/index/index_set.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/train/detail/dataset_mix.hpp>
#include <millrace/train/detail/epoch_walk.hpp>
#include <millrace/train/epochs_options.hpp>

namespace millrace::inline MILLRACE_ABI {
class executor;
}

namespace millrace::inline MILLRACE_ABI::detail {

class equal_state;

/// Bytes of samples that a disk cache has.
struct samples_on_disk {
  std::uint64_t bytes = 0;
  std::uint64_t of = 0;  ///< all of them; 0: that is not known
};

/// A training: made and checked once from a dataset, options and a state, and never changed. It says what is read, in
/// which order, by which rank, and from where on; epochs() and its state, the comparison of ranks, dataset::plan() and
/// the advice in the log read it.
///
/// epochs() makes it from the facts that are known at the call (`asked`). Once the indexes are known, a second one is
/// made of that and them, and is complete (known()). Without an index the list of shards completes it (window_plan).
class training_plan {
 public:
  class dataset {
   public:
    std::shared_ptr<const index_set> indexes;
    std::string prefix;
    std::uint64_t first = 0;  // how many shards the data sets before it have
    std::shared_ptr<const shard_format> format;
  };

  /// The training as it is asked for. `order` has what the dataset says of the order: the slice, or, without an index,
  /// `streamed`. Throws configuration_error for options that contradict each other or the dataset, and for a text that
  /// is no state of such a training.
  training_plan(const epochs_options& training, epoch_state order, std::string_view state);
  /// That training with the indexes of a dataset, or of the members of a mix. `listed` are the shards' URLs, in the
  /// order of the indexes, if these have other names; else empty. Throws, before anything is read, what epochs()
  /// throws.
  training_plan(const training_plan& asked, dataset_mix::member data, std::shared_ptr<const storage> from,
                std::vector<std::string> listed = {});
  training_plan(const training_plan& asked, dataset_mix data, std::shared_ptr<const storage> from,
                std::vector<std::string> listed = {});

  /// True once the indexes are known.
  bool known() const noexcept { return !sets.empty(); }
  /// The state before the first sample. While the indexes are not known: the one that was given, or the beginning of an
  /// epoch, where they may be any.
  std::string beginning() const { return known() || !saved ? begin.text() : saved->text(); }
  /// A window as a state names it: by its number, and how steps are dealt. Never 0.
  std::uint64_t window_number(std::uint32_t window) const noexcept;
  /// Throws configuration_error where the state that was given is inside a window that is not this one; 0: there is
  /// none.
  void check_window(std::uint32_t window) const;
  /// Throws configuration_error for a shard that the store does not serve.
  void check_store() const;
  /// An epoch's costs and results, in lines for people.
  std::string text() const;

  /// The number of the data set that a shard is of. Shards are counted through all of them.
  std::size_t dataset_of(std::uint64_t shard) const noexcept {
    std::size_t d = sets.size() - 1;
    while (sets[d].first > shard) --d;
    return d;
  }
  const shard_index& index(std::uint64_t shard) const noexcept {
    const dataset& d = sets[dataset_of(shard)];
    return (*d.indexes)[static_cast<std::size_t>(shard - d.first)];
  }
  std::string url(std::uint64_t shard) const {
    return urls.empty() ? sets[dataset_of(shard)].prefix + index(shard).name() : urls[static_cast<std::size_t>(shard)];
  }
  /// Its URL in messages.
  std::string shown(std::uint64_t shard) const;
  std::uint64_t shards() const noexcept { return sets.back().first + sets.back().indexes->size(); }
  /// Sentences about options that do not fit the data; one a line, empty where all is well.
  std::string advice() const;
  /// True if any index has checksums of its samples.
  bool summed() const noexcept {
    return std::any_of(sets.begin(), sets.end(), [](const dataset& d) { return d.indexes->has_checksums(); });
  }

  // The training that is asked for:
  /// The given ones, but .ranks is empty, .rank that of the group, and .batch not 0; with the indexes, neither .tracks
  /// nor .bytes is 0.
  epochs_options options;
  bool compared = false;             // with the other ranks' plans, by a group
  std::optional<epoch_state> saved;  // the state that was given
  epoch_state begin;                 // the beginning; with the indexes, that after the resume
  // With the indexes:
  std::vector<dataset> sets;               // one at least
  std::shared_ptr<const dataset_mix> mix;  // null: there is one
  std::shared_ptr<const storage> store;
  std::vector<std::string> urls;
  epoch_walk::plan walk;
  std::string chosen;           // a sentence about what was left to epochs(); empty where nothing was
  bool other_contents = false;  // the arrays of the state contained something else
  std::uint64_t cached = 0;     // storage::caches_on_disk()
  samples_on_disk held;         // not of a mix

 private:
  void begin_walk();
  void add(std::shared_ptr<const index_set> indexes, std::string prefix, std::uint64_t seed,
           std::shared_ptr<const shard_format> its_format);
  void finish(std::uint64_t samples);
  std::uint64_t contents() const;
  void resume(std::uint64_t samples);
};

/// How much of the samples a disk cache has now. `urls`: see training_plan. Exact up to 1024 shards and 4096 blocks of
/// 1 MiB; of more, every second, third, ... is looked at, and the rest is taken to be alike.
samples_on_disk look_on_disk(const storage& store, const index_set& indexes, std::string_view prefix,
                             const std::vector<std::string>& urls);

/// One line in the log, once in a process, where several ranks train together and do not compare their settings.
void log_unchecked_ranks(const executor& ex, const training_plan& plan);

/// Begins with .equal; null where there is none. With an index it is needed only where a stage makes unequally many
/// items of samples.
std::shared_ptr<equal_state> begin_equal(const training_plan& asked);

/// How messages name a data set of a mix: its number, and where it lies.
std::string dataset_name(std::size_t number, const std::string& prefix);
/// The part of epochs_options::bytes that a data set with so many of the tracks has.
std::size_t share_of_bytes(std::size_t bytes, std::uint64_t tracks, std::uint64_t of) noexcept;

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/training_plan.ipp>
#endif
