// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace millrace {

/// How many exceptions were lost because another one had come first. with_scope() and all_of() throw the first one;
/// others may be thrown until the siblings have been dropped. Adds up over all that it is given to, which it must
/// outlive.
class further_errors {
 public:
  std::size_t count() const noexcept { return count_; }
  void add(std::size_t n = 1) noexcept { count_ += n; }

 private:
  std::size_t count_ = 0;
};

}  // namespace millrace
