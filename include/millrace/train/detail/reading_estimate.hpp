// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/order/sample_order.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The requests of epochs() with so much memory, counted over the pieces of a few tracks: some ten thousand samples,
/// wherever the data set is large. Where the rows are in a store: no numbers.
class reading_estimate {
 public:
  reading_estimate(const index_set& indexes, const sample_order& order, std::uint64_t world, std::size_t memory,
                   std::size_t part, std::size_t gap);

  std::uint64_t piece = 0;  ///< samples of a slice that are read at once, at most
  double requests = 0;      ///< for each sample
  double bytes = 1;         ///< read for each byte of samples
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/train/detail/reading_estimate.ipp>
#endif
