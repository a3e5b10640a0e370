// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace millrace {

/// `co_yield give(x);` hands a named object over by move. Works for every type under every supported compiler; in a
/// template that nvcc compiles, x must be of a type that depends on a parameter (`class Item = sample` does).
template <class T>
class given {
 public:
  explicit given(T& object) noexcept : object_(&object) {}
  T& get() const noexcept { return *object_; }

 private:
  T* object_;
};
template <class T>
given<T> give(T& object) noexcept {
  return given<T>(object);
}

}  // namespace millrace
