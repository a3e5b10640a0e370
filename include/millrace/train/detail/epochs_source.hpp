// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/index/index_set.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/order/sample_mix.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/train/detail/dataset_mix.hpp>
#include <millrace/train/detail/epoch_losses.hpp>
#include <millrace/train/detail/epoch_walk.hpp>
#include <millrace/train/detail/epochs_request.hpp>

namespace millrace::inline MILLRACE_ABI {
class executor;
}

namespace millrace::inline MILLRACE_ABI::detail {

/// Throws configuration_error for .hosts that cannot be.
void check_hosts(const epochs_request& options);
/// Throws configuration_error for options that contradict each other.
void check_epochs_options(const epochs_request& options);

/// One line in the log, once in a process, where several ranks train together and do not compare their settings.
void log_unchecked_ranks(const executor& ex, const epochs_request& options);

/// What a state says of the window that it is in: its number, and how steps are dealt. Never 0.
std::uint64_t state_window(std::uint32_t window, std::uint64_t batch, std::uint64_t world) noexcept;
/// Throws configuration_error where `saved` is inside a window that is not one of those, or 0 for none.
void check_state_window(const epoch_state& saved, std::uint32_t window, std::uint64_t batch, std::uint64_t world);

/// What epochs() reads, when it has been checked.
class epochs_source {
 public:
  class dataset {
   public:
    std::shared_ptr<const index_set> indexes;
    std::string prefix;
    std::uint64_t first = 0;  // how many shards the data sets before it have
    std::shared_ptr<const shard_format> format;
  };

  /// Throws, before anything is read, what epochs() throws. `listed` are the shards' URLs, in the order of the indexes,
  /// where these have other names; else empty.
  epochs_source(std::shared_ptr<const index_set> of, std::shared_ptr<const storage> from, const epochs_request& how,
                std::vector<std::string> listed = {});
  epochs_source(const dataset_mix& several, std::shared_ptr<const storage> from, const epochs_request& how,
                std::vector<std::string> listed = {});

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
  /// As messages show it.
  std::string shown(std::uint64_t shard) const;
  std::uint64_t shards() const noexcept { return sets.back().first + sets.back().indexes->size(); }
  /// Sentences about options that do not fit the data; one a line, empty where all is well.
  std::string advice() const;
  /// Whether any index has checksums of its samples.
  bool summed() const noexcept {
    return std::any_of(sets.begin(), sets.end(), [](const dataset& d) { return d.indexes->has_checksums(); });
  }

  std::vector<dataset> sets;  // one at least
  std::shared_ptr<const dataset_mix> mix;  // null: there is one
  std::shared_ptr<const storage> store;
  std::vector<std::string> urls;
  epoch_walk::plan walk;
  epochs_request options;  // without the texts; what was left to epochs() is chosen
  std::string chosen;      // a sentence about that; empty where nothing was
  bool other_contents = false;  // the arrays of the state contained something else
  epoch_state begin;
  std::shared_ptr<epoch_losses> losses = std::make_shared<epoch_losses>();

 private:
  epochs_source(std::shared_ptr<const storage> from, const epochs_request& how);
  void begin_with(const epochs_request& how);
  void add(std::shared_ptr<const index_set> indexes, std::string prefix, std::uint64_t seed,
           std::shared_ptr<const shard_format> its_format);
  void finish(std::uint64_t samples, std::string_view resume);
  std::uint64_t contents() const;
  void resume_at(const epoch_state& saved, std::uint64_t samples);
};

/// Notes in `training` how much of the samples a disk cache has now. `urls`: see epochs_source. Exact up to 1024 shards
/// and 4096 blocks of 1 MiB; of more, every second, third, ... is looked at, and the rest is taken to be alike.
void note_held(epochs_request& training, const storage& store, const index_set& indexes, std::string_view prefix,
               const std::vector<std::string>& urls);

class equal_state;
/// Of .equal, which an index needs only where a stage makes unequally many items of samples; null where there is none.
std::shared_ptr<equal_state> begin_equal(const epochs_request& options, const epoch_state& from);
/// Steps are filled up by equal_batches::fill(), and not by the source.
void fill_later(epochs_source& source, equal_state* equal);

/// How messages name a data set of a mix: its number, and where it lies.
std::string dataset_name(std::size_t number, const std::string& prefix);
/// Throws configuration_error, which names the data set, for a mix that cannot be.
sample_mix order_of(const dataset_mix& mix, const epochs_request& how);
/// The part of epochs_options::bytes that a data set with so many of the tracks has.
std::size_t share_of_bytes(std::size_t bytes, std::uint64_t tracks, std::uint64_t of) noexcept;

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/epochs_source.ipp>
#endif
