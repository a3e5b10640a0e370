// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/array.hpp>

namespace millrace {

MILLRACE_INLINE array::array(const bytes& data, dtype type, const shape& dims, const where& at)
    : data_(data), type_(type), dims_(dims) {
  // Extents of zero are left out: the others must fit all the same, as callers multiply the extents of a shape.
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

namespace detail {

static_assert(std::endian::native == std::endian::little, "arrays are read as they lie in the file");

/// Reads the header of a .npy: a dictionary of Python, which NumPy reads by ast.literal_eval(): {'descr': '<f4',
/// 'fortran_order': False, 'shape': (3, 4), }, of these three keys in any order.
class npy_header {
 public:
  explicit npy_header(std::string_view text) : left_(text) {
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !type) {
        read_type();
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        fortran = take_word("True");
        if (!fortran && !take_word("False")) refuse();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        read_shape();
      } else {
        refuse();
      }
      if (!take(',') && !sees('}')) refuse();
    }
    skip_blanks();
    if (!left_.empty() || !type || !has_order || !has_shape) refuse();
  }

  std::optional<dtype> type;
  bool fortran = false;
  shape dims;

 private:
  [[noreturn]] static void refuse() { throw decode_error("the header of the .npy is damaged"); }

  void skip_blanks() {
    const std::size_t n = left_.find_first_not_of(" \t\r\n\f");
    left_.remove_prefix(n == std::string_view::npos ? left_.size() : n);
  }
  bool sees(char c) {
    skip_blanks();
    return left_.starts_with(c);
  }
  bool take(char c) {
    const bool there = sees(c);
    if (there) left_.remove_prefix(1);
    return there;
  }
  void expect(char c) {
    if (!take(c)) refuse();
  }
  bool take_word(std::string_view word) {
    skip_blanks();
    const bool there = left_.starts_with(word);
    if (there) left_.remove_prefix(word.size());
    return there;
  }
  std::string_view quoted() {
    skip_blanks();
    if (left_.find_first_of("uUrR") == 0) left_.remove_prefix(1);  // of a string of Python
    const char quote = left_.empty() ? '\0' : left_.front();
    if (quote != '\'' && quote != '"') refuse();
    const std::size_t end = left_.find(quote, 1);
    if (end == std::string_view::npos) refuse();
    const std::string_view text = left_.substr(1, end - 1);
    left_.remove_prefix(end + 1);
    return text;
  }

  void read_type() {
    if (sees('[') || sees('(')) {
      throw no_tensor("the elements of the .npy are structures, for which there is no tensor");
    }
    const std::string_view text = quoted();
    constexpr struct {
      std::string_view names;  // of numpy.dtype(), each between blanks; that which np.save() writes first
      dtype type;
    } known[] = {{" b1 ? bool ", dtype::boolean},
                 {" u1 B uint8 ", dtype::u8},
                 {" i1 b int8 ", dtype::i8},
                 {" u2 H uint16 ", dtype::u16},
                 {" i2 h int16 ", dtype::i16},
                 {" u4 I uint32 ", dtype::u32},
                 {" i4 i int32 ", dtype::i32},
                 {" u8 L Q uint64 uint ", dtype::u64},
                 {" i8 l q int64 int ", dtype::i64},
                 {" f2 e float16 half ", dtype::f16},
                 {" f4 f float32 single ", dtype::f32},
                 {" f8 d float64 float double ", dtype::f64}};
    const bool ordered = text.find_first_of("<>=|") == 0;
    const std::string_view name = text.substr(ordered ? 1 : 0);
    const std::string word = " " + std::string(name) + " ";
    std::string_view saved;
    for (const auto& k : known) {
      if (name.empty() || name.find(' ') != std::string_view::npos) break;
      if (k.names.find(word) == std::string_view::npos) continue;
      type = k.type;
      saved = k.names.substr(1, 2);
    }
    if (type && (text.front() != '>' || size_of(*type) == 1)) return;
    const std::string shown(text.substr(0, 40));
    if (type) {
      throw no_tensor("the elements of the .npy are big-endian (" + shown + "): save it with .astype(\"<" +
                      std::string(saved) + "\")");
    }
    throw no_tensor("the elements of the .npy are of type \"" + shown + "\", for which there is no tensor");
  }

  void read_shape() {
    expect('(');
    while (!take(')')) {
      skip_blanks();
      std::int64_t extent = 0;
      std::size_t digits = 0;
      for (; digits < left_.size() && left_[digits] >= '0' && left_[digits] <= '9'; ++digits) {
        const int digit = left_[digits] - '0';
        if (__builtin_mul_overflow(extent, 10, &extent) || __builtin_add_overflow(extent, digit, &extent)) refuse();
      }
      if (digits == 0) refuse();
      left_.remove_prefix(digits);
      take('L');  // of Python 2
      if (dims.rank() == shape::max_rank) {
        throw no_tensor("the .npy has more than " + std::to_string(shape::max_rank) + " extents");
      }
      dims.push_back(extent);
      if (!take(',') && !sees(')')) refuse();
    }
  }

  std::string_view left_;
};

inline array npy_of(const bytes& file) {
  const std::string_view text = file.view();
  if (!text.starts_with("\x93NUMPY")) throw no_tensor("not a .npy: it begins otherwise");
  if (text.size() < 12) throw decode_error("the .npy is cut short");
  const auto byte = [text](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(text[i])); };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3) {
    throw no_tensor("the .npy is of version " + std::to_string(version) + ", and known are 1 to 3");
  }
  const std::size_t begin = version == 1 ? 10 : 12;
  std::size_t size = byte(8) | byte(9) << 8;
  if (version > 1) size |= byte(10) << 16 | byte(11) << 24;
  constexpr std::size_t largest = 1 << 16;
  if (size > largest) throw decode_error("the .npy has a header of " + std::to_string(size) + " bytes");
  if (size > text.size() - begin) throw decode_error("the .npy is cut short in its header");
  const npy_header header(text.substr(begin, size));
  std::size_t longer = 0;
  bool empty = false;
  for (const std::int64_t extent : header.dims) {
    longer += extent != 1;
    empty |= extent == 0;
  }
  if (header.fortran && longer > 1 && !empty) {
    throw no_tensor("the .npy is in Fortran's order: save numpy.ascontiguousarray() of it");
  }
  const std::size_t data = begin + size;
  return array(file.slice(data, file.size() - data), *header.type, header.dims);
}

}  // namespace detail

MILLRACE_INLINE array parse_npy(const bytes& file, const where& at) {
  try {
    return detail::npy_of(file);
  } catch (error& e) {
    e.add_place(at);
    throw;
  }
}

MILLRACE_INLINE array parse_raw(const bytes& data, dtype type, const where& at) {
  if (data.size() % size_of(type) != 0) {
    throw decode_error(std::to_string(data.size()) + " bytes are no whole number of elements of " + name_of(type), at);
  }
  return array(data, type, shape{static_cast<std::int64_t>(data.size() / size_of(type))}, at);
}

}  // namespace millrace
