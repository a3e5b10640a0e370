// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/device/tensor.hpp>
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

namespace detail {
/// A .npy that is sound as far as it was looked at, and of a kind that no array is made of.
class no_tensor : public decode_error {
 public:
  using decode_error::decode_error;
};
}  // namespace detail

/// What np.save() writes (NumPy's format 1.0, 2.0 and 3.0), without a copy where the data are aligned, as NumPy aligns
/// them: booleans, whole numbers and floating-point numbers of 16, 32 and 64 bits.
///
/// Throws decode_error, with the place `at`, for what is no .npy, is cut short or longer than it says, and for what
/// there is no tensor for: big-endian elements, Fortran's order (but for arrays that have the same order in both),
/// Python objects, text, structures, complex numbers, more than eight extents. A header of more than 64 KiB is refused.
array parse_npy(const bytes& file, const where& at = where());

/// Elements without a header, little-endian, one after the other, as ndarray.tofile() writes them: one dimension, as
/// long as there are. array's own constructor gives them a shape. Throws decode_error for a part of an element.
array parse_raw(const bytes& data, dtype type, const where& at = where());

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/array.ipp>
#endif
