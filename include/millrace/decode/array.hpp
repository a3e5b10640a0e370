// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/device/dtype.hpp>
#include <millrace/device/shape.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace {

/// A tensor of a sample: row-major, dense, in memory that it shares, a slice of what was read where that is aligned.
/// Immutable; a copy is another share.
class array {
 public:
  array() = default;
  /// The elements are those of `data`, in the order of this machine. Copies them where they are not aligned. Throws
  /// decode_error where `data` has another size than type and shape say.
  array(const bytes& data, dtype type, const shape& dims, const where& at = where());

  dtype type() const noexcept { return type_; }
  const shape& dims() const noexcept { return dims_; }
  /// Aligned for its type; null where there are no elements.
  const void* data() const noexcept { return data_.data(); }
  const bytes& memory() const noexcept { return data_; }

  /// The elements. Throws configuration_error when T is not their type.
  template <class T>
  std::span<const T> values() const {
    if (dtype_of<T> != type_) {
      throw configuration_error(std::string("an array of ") + name_of(type_) + " was read as " +
                                name_of(dtype_of<T>));
    }
    return {reinterpret_cast<const T*>(data_.data()), data_.size() / sizeof(T)};
  }

  friend std::size_t byte_size(const array& a) noexcept { return a.data_.size(); }
  friend const bytes* slice_of(const array& a) noexcept { return &a.data_; }
  friend array compact(array a) {
    a.data_ = a.data_.compact();
    return a;
  }

 private:
  bytes data_;
  dtype type_ = dtype::u8;
  shape dims_ = shape{0};
};

/// An array of several.
class named_array {
 public:
  named_array(std::string n, array a) : name(std::move(n)), value(std::move(a)) {}
  std::string name;
  array value;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/impl/array.ipp>
#endif
