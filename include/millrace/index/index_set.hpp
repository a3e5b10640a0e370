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
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/order/shard_counts.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The indexes of a dataset's shards, in the order of their names' bytes, which is the order in which the canonical
/// order of samples counts them. Equal sets have equal numbers.
class index_set {
 public:
  /// In any order. index_error where two shards have one name, or are of different formats.
  explicit index_set(std::vector<shard_index> indexes);
  /// A part of another one, whose rows both share: `entries` are those of each shard in an epoch (of what is drawn,
  /// about), `bytes` of them all.
  index_set(const index_set& of, std::shared_ptr<const sample_selection> selection,
            const std::vector<std::uint64_t>& entries, std::uint64_t bytes);

  std::size_t size() const noexcept { return indexes_->size(); }
  const shard_index& operator[](std::size_t shard) const noexcept { return (*indexes_)[shard]; }
  auto begin() const noexcept { return indexes_->begin(); }
  auto end() const noexcept { return indexes_->end(); }
  /// The number of the shard with this name.
  std::optional<std::size_t> find(std::string_view name) const noexcept;

  /// Samples of each shard, chosen or not.
  const std::shared_ptr<const shard_counts>& counts() const noexcept { return counts_; }
  /// Entries of each shard in an epoch: the same without a selection.
  const std::shared_ptr<const shard_counts>& entries() const noexcept { return entries_; }
  /// Which samples an epoch has; null: all, once each.
  const std::shared_ptr<const sample_selection>& selection() const noexcept { return selection_; }
  /// The canonical order of an epoch.
  sample_order order(std::uint64_t seed, std::uint64_t epoch, order_options options) const {
    return sample_order(counts_, seed, epoch, options, selection_);
  }
  /// Samples of an epoch.
  std::uint64_t samples() const noexcept { return entries_->samples(); }
  /// Bytes of the samples of an epoch, from their first headers to their last bytes.
  std::uint64_t sample_bytes() const noexcept { return sample_bytes_; }
  /// The order_options::slice that fits these samples; see slice_for().
  std::uint64_t slice(std::uint64_t most_bytes = 2 * MiB) const noexcept {
    // An object is a request, whichever is read next; of rows in memory nothing is read.
    if (of_objects() || in_memory()) return 1;
    const std::uint64_t fits = slice_for(samples(), sample_bytes_, most_bytes);
    // Samples that are unpacked together are best used together.
    return by_groups() ? std::min<std::uint64_t>(largest_group_, 1 << 24)
           : counts_->groups().empty()
               ? fits
               : std::clamp<std::uint64_t>(counts_->samples() / (counts_->groups().size() - 1), fits, 1 << 24);
  }
  /// True if the slices of an order are groups of samples that are unpacked together, unless another length is asked
  /// for: if all shards have them, and nothing was selected. slice() is then the length of the longest.
  bool by_groups() const noexcept { return !counts_->groups().empty() && selection_ == nullptr; }
  /// The options of order(): `slice` 0 means slice(), or by groups.
  order_options options_of(std::uint64_t tracks, std::uint64_t slice, std::uint64_t hosts = 1) const noexcept {
    order_options made;
    made.tracks = tracks;
    made.hosts = hosts;
    made.slice = slice != 0 ? slice : this->slice();
    made.groups = slice == 0 && by_groups();
    return made;
  }
  /// Bytes of slices whose length no state says: those of a mix, and beside groups.
  static constexpr std::uint64_t slice_bytes_unsaid = 4 * MiB;
  /// Samples in a slice of a mix that was asked for slices of `asked`; 0: the default.
  std::uint64_t slice_in_mix(std::uint64_t asked) const noexcept {
    return asked != 0 ? asked : slice(slice_bytes_unsaid);
  }
  /// True if objects are the samples, or parts of them.
  bool of_objects() const noexcept { return !indexes_->empty() && indexes_->front().of_objects(); }
  /// True if the samples are rows of arrays.
  bool of_arrays() const noexcept { return !indexes_->empty() && indexes_->front().row_arrays() != nullptr; }

  /// Whether the rows of any are in an object of a store (shard_index::in_store()).
  bool rows_in_store() const noexcept { return rows_in_store_; }
  /// Whether any of them has checksums of its samples.
  bool has_checksums() const noexcept {
    return std::any_of(begin(), end(), [](const shard_index& index) { return index.has_checksums(); });
  }
  /// True if the samples are rows of arrays in memory, of which nothing is read.
  bool in_memory() const noexcept { return of_arrays() && !indexes_->front().has_mapped_rows(); }

  /// 128 bits of all indexes, and of the selection: whether two runs, or two ranks, have the same data. See
  /// shard_index::digest().
  hash128 digest() const noexcept { return digest_; }

 private:
  std::shared_ptr<const std::vector<shard_index>> indexes_;
  std::shared_ptr<const shard_counts> counts_;
  std::shared_ptr<const shard_counts> entries_;
  std::shared_ptr<const sample_selection> selection_;
  /// Adds the lengths of the index's groups; where it has none, slices of `slice` samples.
  static void add_groups(const shard_index& index, std::uint64_t slice, std::vector<std::uint64_t>& groups);

  std::uint64_t sample_bytes_ = 0;
  std::uint64_t largest_group_ = 0;
  bool rows_in_store_ = false;
  hash128 digest_;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline index_set::index_set(std::vector<shard_index> indexes) {
  std::sort(indexes.begin(), indexes.end(),
            [](const shard_index& a, const shard_index& b) { return a.name() < b.name(); });
  hasher128 digest;
  std::vector<std::uint64_t> counts;
  for (std::size_t i = 0; i < indexes.size(); ++i) {
    const shard_index& index = indexes[i];
    if (i > 0 && indexes[i - 1].name() == index.name()) {
      throw index_error("two indexes are of one shard", where{index.name(), std::nullopt, {}});
    }
    if (!index.is_of(indexes.front().format(), indexes.front().settings())) {
      throw index_error("an index is of " + index.shown_format() + ", and that of " + indexes.front().name() + " of " +
                            indexes.front().shown_format(),
                        where{index.name(), std::nullopt, {}});
    }
    counts.push_back(index.samples());
    digest.add(index.digest());
    sample_bytes_ += index.sample_bytes();
    rows_in_store_ = rows_in_store_ || index.in_store();
  }
  std::vector<std::uint64_t> groups;
  // Some shards may be compressed by large frames and others not: those are read by slices of theirs.
  const bool grouped = std::any_of(indexes.begin(), indexes.end(), [](const shard_index& i) { return i.has_groups(); });
  std::uint64_t samples = 0;
  for (const std::uint64_t n : counts) samples += n;
  for (const shard_index& index : indexes) {
    if (grouped) add_groups(index, slice_for(samples, sample_bytes_, slice_bytes_unsaid), groups);
  }
  for (const std::uint64_t n : groups) largest_group_ = std::max(largest_group_, n);
  indexes_ = std::make_shared<const std::vector<shard_index>>(std::move(indexes));
  counts_ = entries_ = std::make_shared<const shard_counts>(counts, groups);
  digest_ = digest.value();
}

inline index_set::index_set(const index_set& of, std::shared_ptr<const sample_selection> selection,
                            const std::vector<std::uint64_t>& entries, std::uint64_t bytes)
    : indexes_(of.indexes_),
      counts_(of.counts_),
      entries_(std::make_shared<const shard_counts>(entries)),
      selection_(std::move(selection)),
      sample_bytes_(bytes) {
  hasher128 digest;
  digest.add(of.digest_);
  digest.add(selection_->digest());
  digest_ = digest.value();
}

/// The first sample of a group begins where the group's text does. Groups are mostly as long as the one before.
inline void index_set::add_groups(const shard_index& index, std::uint64_t slice, std::vector<std::uint64_t>& groups) {
  const std::uint64_t samples = index.samples();
  std::uint64_t first = 0;
  for (; !index.has_groups() && first < samples; first += slice) groups.push_back(std::min(slice, samples - first));
  std::uint64_t length = index.groups() == 0 ? 0 : samples / index.groups();
  for (std::size_t g = 0; index.has_groups() && g < index.groups(); ++g) {
    const std::uint64_t end = index.group_text_end(g);
    const bool last = g + 1 == index.groups();
    std::uint64_t next = last ? samples : first + length;
    if (!last && (next >= samples || index.offset(static_cast<std::size_t>(next)) != end)) {
      std::uint64_t high = samples;
      for (next = first; next < high;) {
        const std::uint64_t middle = next + (high - next) / 2;
        if (index.offset(static_cast<std::size_t>(middle)) < end) {
          next = middle + 1;
        } else {
          high = middle;
        }
      }
    }
    if (next <= first) {
      throw index_error("group " + std::to_string(g) + " has no samples", where{index.name(), std::nullopt, {}});
    }
    length = next - first;
    groups.push_back(length);
    first = next;
  }
}

inline std::optional<std::size_t> index_set::find(std::string_view name) const noexcept {
  const auto at = std::lower_bound(begin(), end(), name,
                                   [](const shard_index& i, std::string_view n) { return i.name() < n; });
  if (at == end() || at->name() != name) return std::nullopt;
  return static_cast<std::size_t>(at - begin());
}

}  // namespace millrace
