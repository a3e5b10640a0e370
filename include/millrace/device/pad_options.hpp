// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/data/length_edges.hpp>

namespace millrace {

/// See sample_writer::padded(). A batch's common length is that of its longest sample, or what `edges` and `multiple`
/// make of it.
struct pad_options {
  double value = 0;          ///< stands behind the end of a sample's part; the tensor's type must have it
  std::size_t multiple = 1;  ///< the common length is a multiple of this
  length_edges edges = {};   ///< the common length is the smallest of these that holds the longest, if one does
  bool mask = false;         ///< one more field, NAME_mask (u8): 1 where a sample has data, 0 behind it
};

}  // namespace millrace
