// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/decode_arrays.hpp>
#include <millrace/decode/npy.hpp>
#include <millrace/decode/npz.hpp>
#include <millrace/decode/parse_label.hpp>

namespace millrace {

MILLRACE_INLINE const array& array_sample::operator[](std::string_view name) const {
  std::string has;
  for (const named_array& a : arrays) {
    if (a.name == name) return a.value;
    has += (has.empty() ? "" : ", ") + a.name;
  }
  throw decode_error("the sample has no array \"" + std::string(name) + "\" (it has: " + has + ")", of.from.at(of.key));
}

MILLRACE_INLINE std::size_t byte_size(const array_sample& a) noexcept {
  std::size_t total = byte_size(a.of);
  for (const named_array& one : a.arrays) total += byte_size(one.value);
  return total;
}

MILLRACE_INLINE array_sample compact(array_sample a) {
  a.of = compact(std::move(a.of));
  for (named_array& one : a.arrays) one.value = compact(std::move(one.value));
  return a;
}

MILLRACE_INLINE void collate(const array_sample& a, sample_writer& out) {
  out.key(a.of.key);
  if (a.of.from) out.tag(a.of.from);
  for (const named_array& one : a.arrays) {
    const array& v = one.value;
    out.write(one.name.c_str(), tensor_view(const_cast<void*>(v.data()), v.type(), v.dims()));  // it is read
  }
  if (a.label) out.write("label", *a.label);
}

MILLRACE_INLINE array_sample read_arrays(sample s) {
  array_sample made;
  const where at = s.from.at(s.key);
  const auto add = [&](std::string name, array value) {
    for (const named_array& other : made.arrays) {
      if (other.name == name) throw decode_error("the sample has two arrays \"" + name + "\"", at);
    }
    made.arrays.emplace_back(std::move(name), std::move(value));
  };
  std::vector<field> others;
  for (field& f : s.fields) {
    if (f.extension == "npy") {
      add(f.extension, parse_npy(f.data, at));
    } else if (f.extension.ends_with(".npy")) {
      add(f.extension.substr(0, f.extension.size() - 4), parse_npy(f.data, at));
    } else if (f.extension == "npz" || f.extension.ends_with(".npz")) {
      for (named_array& one : parse_npz(f.data, at)) add(std::move(one.name), std::move(one.value));
    } else if (f.extension == "cls") {
      made.label = parse_label(f.data, at);
    } else {
      others.push_back(std::move(f));
    }
  }
  s.fields = std::move(others);
  made.of = std::move(s);
  return made;
}

MILLRACE_INLINE array_sample array_reader::in_place_of(const epoch_mark& mark) const {
  array_sample made;
  made.of.mark = mark;
  return made;
}

}  // namespace millrace
