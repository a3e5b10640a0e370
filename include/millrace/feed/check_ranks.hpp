// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <millrace/data/rank.hpp>
#include <millrace/feed/epochs_options.hpp>

namespace millrace {

class dataset;

/// The only communication between ranks that the library needs: a function that replaces each of the numbers by the sum
/// over all ranks, modulo 2^64. Every rank calls it equally often, with equally many numbers; it returns when all have.
/// `MPI_Allreduce` with `MPI_SUM` is one (mpi_sum, <millrace/mpi.hpp>), and so is the all-reduce of any process group
/// for integers of 64 bits.
using sum_over_ranks = std::function<void(std::span<std::uint64_t>)>;

/// A number that must be equal on all ranks, and its name for the error if it is not.
class rank_setting {
 public:
  std::string name;
  std::uint64_t value = 0;
};

/// Called by all ranks at the start: compares their settings, so that a mistake is an error on each of them instead of
/// repeated samples, or a training that hangs. Throws configuration_error on all ranks or on none:
///
/// - where `mine.world_size` is not the number of processes that take part (a rank that does not know its launcher
///   believes that it is alone), or two processes have one index;
/// - where a setting is not on all ranks what it is on rank 0: seeds, lists, options. All must use the same names.
///
/// Four sums, of as many numbers as there are ranks or settings. Where groups of processes see the same samples and so
/// give the same rank, `sum` is over one process of each.
void check_ranks(const sum_over_ranks& sum, const rank& mine, std::span<const rank_setting> settings);

/// The same for what epochs() is given: the dataset (by its indexes where the program has them, else by its prefix, and
/// how it is read), the options that decide the order and the batches, and the state. Texts that differ where they may,
/// the path of an index file and what the store lists, are not compared. In feed/dataset.hpp.
void check_ranks(const sum_over_ranks& sum, const dataset& data, const epochs_options& options,
                 std::string_view state = {});

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/feed/impl/check_ranks.ipp>
#endif
