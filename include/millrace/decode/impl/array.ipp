// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/array.hpp>

namespace millrace {

MILLRACE_INLINE array::array(const bytes& data, dtype type, const shape& dims, const where& at)
    : data_(data), type_(type), dims_(dims) {
  // Extents of zero are left out: what is around them must fit all the same, as who looks at a shape multiplies it.
  std::size_t wanted = size_of(type);
  bool empty = false;
  for (const std::int64_t extent : dims) {
    if (extent == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(wanted, static_cast<std::size_t>(extent), &wanted)) {
      throw decode_error("an array of " + std::string(name_of(type)) + " " + dims.text() + " is too large", at);
    }
  }
  if (empty) wanted = 0;
  if (data.size() != wanted) {
    throw decode_error("an array of " + std::string(name_of(type)) + " " + dims.text() + " has " +
                           std::to_string(wanted) + " bytes, and " + std::to_string(data.size()) + " are there",
                       at);
  }
  if (reinterpret_cast<std::uintptr_t>(data.data()) % size_of(type) != 0) data_ = bytes::copy(data.view());
}

}  // namespace millrace
