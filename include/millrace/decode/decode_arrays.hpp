// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/decode/array.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace {

/// A sample whose arrays are read: what decode_arrays() makes. Batches of them have a field for each array, under its
/// name, "label" (i64) where there is a field "cls", keys, and tags<origin>(). Arrays that have one name have one type
/// and shape in all samples.
class array_sample {
 public:
  sample of;
  std::vector<named_array> arrays;
  std::optional<std::int64_t> label;

  /// The array of that name; a decode_error that names the sample where there is none.
  const array& operator[](std::string_view name) const;

  friend const sample& place_of(const array_sample& a) noexcept { return a.of; }
  friend epoch_mark mark_of(const array_sample& a) noexcept { return a.of.mark; }
  friend std::size_t byte_size(const array_sample& a) noexcept;
  friend const bytes* slice_of(const array_sample& a) noexcept {
    return a.arrays.empty() ? slice_of(a.of) : slice_of(a.arrays.front().value);
  }
  friend array_sample compact(array_sample a);
};

/// Lays the arrays out in a row of a batch.
void collate(const array_sample& a, sample_writer& out);

/// The arrays of a sample: what decode_arrays() does for each. Fields "npy" become the array "npy", "x.npy" become "x",
/// "npz" those of the archive under their names, "cls" the label; all of these leave the sample, other fields stay in
/// it. Throws decode_error, as parse_npy(), parse_npz() and parse_label() do.
array_sample read_arrays(sample s);

/// read_arrays() as a function object, for map_concurrent().
class array_reader {
 public:
  array_sample operator()(sample s) const { return read_arrays(std::move(s)); }
  /// A sample without arrays, of weight 0.
  array_sample in_place_of(const epoch_mark& mark) const;
};

/// A stage from samples to their arrays, read on a pool: `samples | decode_arrays() | batch(256) | to_device(copies)`.
///
/// A sample that is left out by `.failures`, of epochs() with an index or behind equal_batches::fill(), is a row of
/// zeros and weight 0 in its place. Everything else is map_concurrent()'s: order, bound, `work`, cancellation, errors.
inline auto decode_arrays(const map_concurrent_options& work = {}) { return map_concurrent(array_reader(), work); }

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/impl/decode_arrays.ipp>
#endif
