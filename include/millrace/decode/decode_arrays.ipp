// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/decode/decode_arrays.hpp>
#include <millrace/decode/npz.hpp>
#include <millrace/decode/parse_label.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE const array& array_sample::operator[](std::string_view name) const {
  std::string has;
  for (const named_array& a : arrays) {
    if (a.name == name) return a.value;
    has += (has.empty() ? "" : ", ") + a.name;
  }
  for (const unread_array& u : unread) {
    if (u.name == name) {
      throw decode_error("the array \"" + u.name + "\" was not read: " + u.reason, of.from.at(of.key));
    }
  }
  throw decode_error("the sample has no array \"" + std::string(name) + "\" (it has: " + has + ")", of.from.at(of.key));
}

MILLRACE_INLINE std::size_t byte_size(const array_sample& a) noexcept {
  std::size_t total = byte_size(a.of);
  for (const named_array& one : a.arrays) total += byte_size(one.value);
  return total;
}

MILLRACE_INLINE array_sample compact_slices(array_sample a) {
  a.of = compact_slices(std::move(a.of));
  for (named_array& one : a.arrays) one.value = compact_slices(std::move(one.value));
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

MILLRACE_INLINE array_sample read_arrays(sample s, const std::vector<std::string>& names, std::uint64_t most) {
  array_sample made;
  const where at = s.from.at(s.key);
  const auto wanted = [&](const std::string& name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  };
  // Rows of arrays have type and shape from these.
  const void* const of = s.from.from == nullptr ? nullptr : s.from.from->rows.get();
  const auto* const rows = static_cast<const arrays*>(of);
  const auto whole_of = [&](const std::string& name) { return rows == nullptr ? nullptr : rows->find(name); };
  std::vector<std::string> there;
  const auto add = [&](const std::string& name) {
    if (std::find(there.begin(), there.end(), name) != there.end()) {
      throw decode_error("the sample has two arrays \"" + name + "\"", at);
    }
    there.push_back(name);
  };
  const bool any = std::any_of(s.fields.begin(), s.fields.end(), [&](const field& f) {
    const std::string_view e = f.extension;
    return whole_of(f.extension) != nullptr || e == "npy" || e == "npz" || e.ends_with(".npy") || e.ends_with(".npz");
  });
  if (!any && names.empty()) {
    std::string has;
    for (const field& f : s.fields) has += (has.empty() ? "" : ", ") + f.extension;
    throw decode_error("the sample has no arrays: no field is npy or npz (it has: " + has + ")", at);
  }
  std::vector<field> others;
  for (field& f : s.fields) {
    const bool npy = f.extension == "npy";
    if (const array* const whole = whole_of(f.extension)) {
      if (!wanted(f.extension)) continue;
      add(f.extension);
      made.arrays.emplace_back(f.extension, array(f.data, whole->type(), whole->row_dims(), at));
    } else if (npy || f.extension.ends_with(".npy")) {
      std::string name = npy ? f.extension : f.extension.substr(0, f.extension.size() - 4);
      if (!wanted(name)) continue;
      add(name);
      made.arrays.emplace_back(std::move(name), parse_npy(f.data, at));
    } else if (f.extension == "npz" || f.extension.ends_with(".npz")) {
      npz_arrays archive = detail::read_picked(f.data, names, false, at, most);
      if (names.empty()) detail::say_unread(archive, at);
      for (named_array& one : archive.arrays) {
        add(one.name);
        made.arrays.push_back(std::move(one));
      }
      for (unread_array& one : archive.unread) {
        add(one.name);
        made.unread.push_back(std::move(one));
      }
    } else if (f.extension == "cls") {
      made.label = parse_label(f.data, at);
    } else {
      others.push_back(std::move(f));
    }
  }
  s.fields = std::move(others);
  made.of = std::move(s);
  for (const std::string& name : names) static_cast<void>(made[name]);  // it throws
  return made;
}

MILLRACE_INLINE array_sample array_reader::in_place_of(const epoch_mark& mark) const {
  array_sample made;
  made.of.mark = mark;
  return made;
}

}  // namespace millrace
