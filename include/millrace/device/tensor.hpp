// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The element type of a tensor.
enum class dtype : std::uint8_t { boolean, u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64 };

/// Bytes of one element.
constexpr std::size_t size_of(dtype type) noexcept {
  switch (type) {
    case dtype::boolean:
    case dtype::u8:
    case dtype::i8:
      return 1;
    case dtype::u16:
    case dtype::i16:
    case dtype::f16:
    case dtype::bf16:
      return 2;
    case dtype::u32:
    case dtype::i32:
    case dtype::f32:
      return 4;
    case dtype::u64:
    case dtype::i64:
    case dtype::f64:
      return 8;
  }
  return 0;
}

/// "u8", "f32", ...: for messages.
constexpr const char* name_of(dtype type) noexcept {
  constexpr const char* names[] = {"bool", "u8",  "i8",  "u16",  "i16", "u32", "i32",
                                   "u64",  "i64", "f16", "bf16", "f32", "f64"};
  return names[static_cast<std::size_t>(type)];
}

namespace detail {
template <class T>
constexpr dtype arithmetic_dtype() noexcept {
  static_assert(std::is_arithmetic_v<T> || std::is_same_v<T, std::byte>,
                "this is no element type of a tensor; for a type of your own (a half, say) specialise "
                "millrace::dtype_of: template <> inline constexpr millrace::dtype millrace::dtype_of<half> = ...");
  if constexpr (std::is_same_v<T, bool>) {
    return dtype::boolean;
  } else if constexpr (std::is_same_v<T, char> || std::is_same_v<T, std::byte>) {
    return dtype::u8;
  } else if constexpr (std::is_floating_point_v<T>) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "long double has no tensor type");
    return sizeof(T) == 4 ? dtype::f32 : dtype::f64;
  } else {
    constexpr dtype with_sign[] = {dtype::i8, dtype::i16, dtype::i32, dtype::i64};
    constexpr dtype without[] = {dtype::u8, dtype::u16, dtype::u32, dtype::u64};
    constexpr std::size_t power = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? with_sign[power] : without[power];
  }
}
}  // namespace detail

/// The dtype of a C++ type; specialise it for 16-bit floats of other libraries. `char` and `std::byte` are u8.
template <class T>
inline constexpr dtype dtype_of = detail::arithmetic_dtype<T>();

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// The nearest number of 16 bits, ties to even; infinite beyond the largest. IEEE 754 binary16.
MILLRACE_HOST_DEVICE constexpr std::uint16_t to_f16(float value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t size = bits & 0x7fffffff;
  if (size > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00);
  if (size >= 0x477ff000) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (size < 0x33000000) return sign;  // less than half of the smallest
  const auto exponent = static_cast<int>(size >> 23);
  // Above 2^-14 ten bits are left of the fraction, below one less for every power of two.
  const int dropped = exponent >= 113 ? 13 : 126 - exponent;
  const std::uint32_t fraction = (size & 0x7fffff) | 0x800000;
  std::uint32_t kept = fraction >> dropped;
  const std::uint32_t rest = fraction & ((1u << dropped) - 1);
  const std::uint32_t tie = 1u << (dropped - 1);
  if (rest > tie || (rest == tie && (kept & 1) != 0)) ++kept;
  if (exponent >= 113) kept += static_cast<std::uint32_t>(exponent - 113) << 10;
  return static_cast<std::uint16_t>(sign | kept);
}

/// The upper half of a float, rounded to nearest, ties to even.
MILLRACE_HOST_DEVICE constexpr std::uint16_t to_bf16(float value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

/// The extents of a tensor, outermost first: up to eight, kept inline. No extent at all is a scalar.
class shape {
 public:
  static constexpr std::size_t max_rank = 8;

  constexpr shape() noexcept = default;
  /// Throws configuration_error for more than eight extents or a negative one.
  constexpr shape(std::initializer_list<std::int64_t> extents) {
    for (std::int64_t e : extents) push_back(e);
  }

  constexpr std::size_t rank() const noexcept { return rank_; }
  constexpr std::int64_t operator[](std::size_t i) const noexcept { return extents_[i]; }
  constexpr const std::int64_t* begin() const noexcept { return extents_; }
  constexpr const std::int64_t* end() const noexcept { return extents_ + rank_; }

  /// The product of the extents; 1 for a scalar. Throws configuration_error when it does not fit.
  constexpr std::size_t elements() const {
    std::size_t n = 1;
    for (std::int64_t e : *this) {
      if (__builtin_mul_overflow(n, static_cast<std::size_t>(e), &n)) throw configuration_error("a shape is too large");
    }
    return n;
  }

  constexpr void push_back(std::int64_t extent) {
    if (rank_ == max_rank) throw configuration_error("a shape has at most 8 extents");
    if (extent < 0) throw configuration_error("a shape has a negative extent");
    extents_[rank_++] = extent;
  }

  /// This shape with one more extent in front.
  constexpr shape with_outer(std::int64_t extent) const {
    shape result;
    result.push_back(extent);
    for (std::int64_t e : *this) result.push_back(e);
    return result;
  }

  /// "224x224x3", "scalar".
  std::string text() const {
    if (rank_ == 0) return "scalar";
    std::string t;
    for (std::int64_t e : *this) t += (t.empty() ? "" : "x") + std::to_string(e);
    return t;
  }

  friend constexpr bool operator==(const shape& a, const shape& b) noexcept {
    if (a.rank_ != b.rank_) return false;
    for (std::size_t i = 0; i < a.rank_; ++i) {
      if (a.extents_[i] != b.extents_[i]) return false;
    }
    return true;
  }

 private:
  std::int64_t extents_[max_rank] = {};
  std::size_t rank_ = 0;
};

namespace detail {

/// Notes the batches whose fields' addresses were taken. Views are plain values, which may outlive their memory: so
/// they carry a number, and the notes belong to nothing that ends. It is a table of the latest: where two numbers share
/// a place, a look may be forgotten, and none is invented.
class address_looks {
 public:
  /// A number for a batch; never 0.
  static std::uint32_t next() noexcept {
    std::uint32_t n = 0;
    while (n == 0) n = 1 + batches.fetch_add(1, std::memory_order_relaxed);
    return n;
  }
  static void note(std::uint32_t batch) noexcept { at(batch).store(batch, std::memory_order_relaxed); }
  static bool noted(std::uint32_t batch) noexcept { return at(batch).load(std::memory_order_relaxed) == batch; }

 private:
  static constexpr std::size_t places = 1024;
  static std::atomic<std::uint32_t>& at(std::uint32_t batch) noexcept { return looked_at[batch % places]; }
  static inline constinit std::atomic<std::uint32_t> batches{0};
  static inline constinit std::atomic<std::uint32_t> looked_at[places]{};
};

}  // namespace detail

/// A dense row-major tensor in memory that it does not own: on the host or on a device, as the function that returns it
/// says. A plain value.
class tensor_view {
 public:
  tensor_view() noexcept = default;
  tensor_view(void* data, dtype type, const shape& dims) noexcept : data_(data), type_(type), dims_(dims) {}

  void* data() const noexcept {
#ifndef NDEBUG
    if (batch_ != 0) detail::address_looks::note(batch_);
#endif
    return data_;
  }
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
    return static_cast<T*>(data());
  }
  /// The elements as a span. For tensors in host memory.
  template <class T>
  std::span<T> values() const {
    return std::span<T>(as<T>(), elements());
  }

  /// This tensor, of the batch with that number: taking its address is a use of the batch, in debug builds.
  tensor_view of_batch(std::uint32_t number) const noexcept {
    tensor_view made = *this;
    made.batch_ = number;
    return made;
  }

 private:
  void* data_ = nullptr;
  dtype type_ = dtype::u8;
  std::uint32_t batch_ = 0;  // see address_looks; 0: its address may be asked at any time
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
