// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/train/detail/dataset_mix.hpp>
#include <millrace/train/epochs_options.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {
/// The maximum of default_bytes(), for default_tracks() or for others.
constexpr std::size_t most_bytes(bool default_tracks) noexcept { return default_tracks ? 256 * MiB : 1 * GiB; }
}  // namespace detail

/// The order_options::slice that epochs() takes where none is given: index_set::slice(), and of small data less, down
/// to 64 KiB, so that 24 tracks on each rank (960 on all, or 8 on each) have 18 slices each. A pure function of the
/// index and the number of ranks.
std::uint64_t default_slice(const index_set& indexes, std::uint64_t world);

/// The number of tracks that epochs() takes where none is given: a pure function of the index, the slice and the number
/// of ranks. On each rank as many as 48 MiB hold open slices of (96 MiB where a slice takes less than 1 MiB; but 8),
/// each of 18 slices at least, and not more than 960 on all ranks together or 8 on each; of these the largest divisor
/// of 960, times the number of ranks. Two slices are enough where a rank has 1 GB and more, and where the parts of a
/// slice are not read with the rest of it: slices of one sample, groups, frames, rows, objects.
std::uint64_t default_tracks(const index_set& indexes, std::uint64_t slice, std::uint64_t world);

/// The bytes that epochs() takes where none are given: those of a rank's open slices, and as many to read ahead; 128 to
/// 256 MiB, up to 1 GiB where the tracks are not default_tracks(), or slices are groups.
std::size_t default_bytes(const index_set& indexes, const order_options& order, std::uint64_t world);

namespace detail {
/// Puts numbers in place of .tracks, .bytes and `slice` that are 0, as epochs() does: from the state, if one is given
/// (not null) and of this index. Returns a sentence that says what was chosen, and why; empty where all was given.
std::string choose_reading(const index_set& indexes, epochs_options& options, std::uint64_t& slice,
                           const epoch_state* saved);
std::string choose_reading(const dataset_mix& mix, epochs_options& options, std::uint64_t slice);
}  // namespace detail

/// A sentence where default_tracks() are fewer than the samples of a step of `batch` on each rank, so that several
/// neighbours of a slice come in one: how many tracks would do, and the bytes that they take or read again. Empty for
/// other tracks, where the data are too few for more (two slices each), and where all is well.
std::string default_tracks_advice(const index_set& indexes, const order_options& order, std::uint64_t world,
                                  std::uint64_t batch);

/// A sentence where a data set is so small for its tracks that a request brings less than a quarter of a slice, down to
/// single samples, with the number of tracks that would fit; empty where all is well.
std::string tracks_advice(std::uint64_t samples, const order_options& order, std::uint64_t world);

/// A sentence if epochs_options::bytes of memory hold so little of the slices that a rank has open that it makes more
/// than twice the requests that whole slices take, or reads more than 1.25 times the bytes: the cost, the bytes that
/// would hold them, and a number of tracks that would fit. Empty where all is well.
std::string bytes_advice(const index_set& indexes, const order_options& order, std::uint64_t world,
                         const epochs_options& reading);

/// The first of these two that has something to say.
std::string reading_advice(const index_set& indexes, const order_options& order, std::uint64_t world,
                           const epochs_options& reading);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/tracks_advice.ipp>
#endif
