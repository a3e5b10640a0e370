// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace millrace {

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

/// The dtype of a C++ type; specialise it for 16-bit floats of a library of yours. `char` and `std::byte` are u8.
template <class T>
inline constexpr dtype dtype_of = detail::arithmetic_dtype<T>();

}  // namespace millrace
