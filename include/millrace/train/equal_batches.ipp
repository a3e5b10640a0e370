// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/train/equal_batches.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void check_ranks_end(const equal_batches* equal, bool uneven) {
  if (equal != nullptr || uneven) return;
  throw configuration_error(
      "epochs: without an index the ranks have unequally many batches, and a training that waits for all of them in "
      "every step would hang: give .equal (equal_batches), an index, or .uneven = true where no rank waits");
}

}  // namespace millrace::detail
