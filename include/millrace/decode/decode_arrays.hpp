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
#include <millrace/base/units.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/decode/npz.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/read_whole.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// `Storage` is storage. A template, so that it is not emitted if it is not used.
template <class Storage>
task<array> read_npy_of(std::shared_ptr<const Storage> store, std::string url) {
  const where at{shard(url).shown(), std::nullopt, {}};
  bytes file = co_await whole_object(std::move(store), std::move(url), "read_npy");
  co_return parse_npy(std::move(file), at);
}

}  // namespace detail

/// The array of a .npy object of a store, in memory, for a dataset of `arrays`:
///
///     mill::array x = block_on(*mill::make_event_loop(), mill::read_npy(s3, "s3://corpus/x.npy"));
///
/// `store` is as in fetch(), which reads it by parts, several at a time. Takes the memory of the array and that of
/// fetch(). Dropping the task ends the transfers. Errors: those of fetch(), configuration_error for a URL that the
/// store does not serve, and decode_error, with the URL, as parse_npy().
template <class Store>
task<array> read_npy(const Store& store, std::string url) {
  return detail::read_npy_of(detail::storage_of(store), std::move(url));
}

/// A sample whose arrays are read: made by decode_arrays(). Batches of them have a field for each array, under its
/// name, "label" (i64) if there is a field "cls", keys, and tags<origin>(). Arrays that have one name have one type
/// and shape in all samples.
class array_sample {
 public:
  sample of;
  std::vector<named_array> arrays;
  std::vector<unread_array> unread;  ///< of archives: there is no tensor for them, and batches leave them out
  std::optional<std::int64_t> label;

  /// The array of that name; a decode_error that names the sample if there is none, and why it was not read.
  const array& operator[](std::string_view name) const;

  friend const sample& place_of(const array_sample& a) noexcept { return a.of; }
  friend epoch_mark mark_of(const array_sample& a) noexcept { return a.of.mark; }
  friend void set_mark(array_sample& a, const epoch_mark& mark) noexcept { a.of.mark = mark; }
  friend std::size_t byte_size(const array_sample& a) noexcept;
  friend const bytes* slice_of(const array_sample& a) noexcept {
    return a.arrays.empty() ? slice_of(a.of) : slice_of(a.arrays.front().value);
  }
  friend array_sample compact_slices(array_sample a);
};

/// Lays the arrays out in a row of a batch.
void collate(const array_sample& a, sample_writer& out);

/// The arrays of a sample: decode_arrays() calls it for each. Fields "npy" become the array "npy", "x.npy" become "x",
/// "npz" those of the archive under their names, "cls" the label; all of these leave the sample, other fields stay in
/// it. In a dataset of `arrays`, each field is the array of its name: a row, without a copy. With `names`, those arrays
/// alone: the others are not looked at, and one that is not there is an error. Without, arrays of an archive that there
/// is no tensor for are `unread`, and the log has one line of each.
///
/// Throws decode_error, as parse_npy(), read_npz() and parse_label() do. `most`: bytes of one "npz", unpacked.
array_sample read_arrays(sample s, const std::vector<std::string>& names = {}, std::uint64_t most = GiB);

/// read_arrays() as a function object, for map_concurrent().
class array_reader {
 public:
  explicit array_reader(std::vector<std::string> names = {}) : names_(std::move(names)) {}
  array_sample operator()(sample s) const { return read_arrays(std::move(s), names_, most_); }
  /// For map_concurrent(): read_arrays() in a run of so large a budget, which unpacked arrays may not exceed.
  array_reader within(std::size_t budget) const {
    array_reader bounded(names_);
    bounded.most_ = std::min<std::uint64_t>(most_, budget);
    return bounded;
  }
  /// A sample without arrays, of weight 0.
  array_sample in_place_of(const epoch_mark& mark) const;

 private:
  std::vector<std::string> names_;
  std::uint64_t most_ = GiB;
};

/// A stage from samples to their arrays, read on a pool: `samples | decode_arrays() | batch(256) | to_device(copies)`.
///
/// A sample that is left out by `.failures`, of epochs() with an index or after equal_batches::fill(), is a row of
/// zeros and weight 0 in its place. Everything else is map_concurrent()'s: order, bound, `work`, cancellation, errors.
inline auto decode_arrays(const map_concurrent_options& work = {}) {
  return map_concurrent_stage(array_reader(), work, "decode_arrays");
}
/// Reads the arrays of these names alone: `decode_arrays(std::vector<std::string>{"x", "y"})`.
inline auto decode_arrays(std::vector<std::string> names, const map_concurrent_options& work = {}) {
  return map_concurrent_stage(array_reader(std::move(names)), work, "decode_arrays");
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/decode_arrays.ipp>
#endif
