// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include <millrace/device/dtype.hpp>
#include <millrace/device/shape.hpp>

namespace millrace {

/// A dense row-major tensor in memory that it does not own: on the host or on a device, as the function that returns it
/// says. A plain value.
class tensor_view {
 public:
  tensor_view() noexcept = default;
  tensor_view(void* data, dtype type, const shape& dims) noexcept : data_(data), type_(type), dims_(dims) {}

  void* data() const noexcept { return data_; }
  dtype type() const noexcept { return type_; }
  const shape& dims() const noexcept { return dims_; }
  /// How many elements lie from one index to the next, for each extent: the last one's is 1.
  shape strides() const;
  std::size_t elements() const { return dims_.elements(); }
  std::size_t bytes() const { return elements() * size_of(type_); }

  /// The data as elements of type T (a device pointer when the tensor is on a device). Throws configuration_error when
  /// T is not the tensor's type.
  template <class T>
  T* as() const {
    constexpr dtype wanted = dtype_of<std::remove_cv_t<T>>;
    if (wanted != type_) {
      throw configuration_error(std::string("a tensor of ") + name_of(type_) + " was read as " + name_of(wanted));
    }
    return static_cast<T*>(data_);
  }
  /// The same with its length. For tensors in host memory.
  template <class T>
  std::span<T> values() const {
    return std::span<T>(as<T>(), elements());
  }

 private:
  void* data_ = nullptr;
  dtype type_ = dtype::u8;
  shape dims_;
};

inline shape tensor_view::strides() const {
  std::int64_t next[shape::max_rank] = {};
  std::int64_t dense = 1;
  for (std::size_t i = dims_.rank(); i-- > 0;) {
    next[i] = dense;
    dense *= dims_[i];
  }
  shape result;
  for (std::size_t i = 0; i < dims_.rank(); ++i) result.push_back(next[i]);
  return result;
}

}  // namespace millrace
