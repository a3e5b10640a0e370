// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

namespace millrace::detail {

/// Whether nobody else owns the object. What the others did with it before they left is seen then, which use_count()
/// alone does not promise: letting go of a copy is what meets their letting go.
template <class T>
bool only_owner(const std::shared_ptr<T>& object) noexcept {
  if (object.use_count() != 1) return false;
  const std::shared_ptr<T> copy = object;
  return copy.use_count() == 2;
}

}  // namespace millrace::detail
