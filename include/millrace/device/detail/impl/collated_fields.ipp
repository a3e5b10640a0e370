// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/device/detail/collated_fields.hpp>
#include <millrace/device/detail/narrow_float.hpp>

namespace millrace::detail {

MILLRACE_INLINE std::string collated_fields::column::text() const {
  constexpr const char* forms[] = {"", "padded", "ragged", "nested", "on the device"};
  std::string t = name + " " + name_of(type) + " ";
  if (form == field_form::fixed) return t + dims.text();
  t += forms[static_cast<std::size_t>(form)];
  return dims.rank() == 0 ? t : t + " " + dims.text();
}

MILLRACE_INLINE collated_fields::collated_fields(const batch_layout& layout) : known(true) {
  for (const batch_field& f : layout.fields()) {
    column& c = columns.emplace_back(column{f.name(), f.type(), f.dims(), field_form::fixed, {}});
    c.first = columns.size() - 1;
  }
}

MILLRACE_INLINE bool collated_fields::vary() const noexcept {
  return std::any_of(columns.begin(), columns.end(), [](const column& c) { return c.form != field_form::fixed; });
}

MILLRACE_INLINE void collated_fields::begin_batch() noexcept {
  for (column& c : columns) c.longest = c.values = c.items = c.written = c.items_written = 0;
}

MILLRACE_INLINE batch_layout collated_fields::layout(std::size_t samples) {
  std::vector<batch_field> fields;
  const auto count = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  for (column& c : columns) {
    c.first = fields.size();
    switch (c.form) {
      case field_form::fixed:
        fields.emplace_back(c.name, c.type, c.dims);
        break;
      case field_form::padded: {
        const std::int64_t length = count(padded_length(c.longest, c.pad));
        fields.emplace_back(c.name, c.type, c.dims.with_outer(length));
        fields.emplace_back(c.name + "_lengths", dtype::i64);
        if (c.pad.mask) fields.emplace_back(c.name + "_mask", dtype::u8, shape{length});
        break;
      }
      case field_form::on_device:
        fields.push_back(batch_field::of_device(c.name, c.type, c.dims.with_outer(count(c.values))));
        fields.push_back(batch_field::of_batch(c.name + "_offsets", dtype::i64, {count(samples + 1)}));
        break;
      case field_form::ragged:
      case field_form::nested:
        fields.push_back(batch_field::of_batch(c.name, c.type, c.dims.with_outer(count(c.values))));
        fields.push_back(batch_field::of_batch(c.name + "_offsets", dtype::i64, {count(samples + 1)}));
        if (c.form == field_form::nested) {
          fields.push_back(batch_field::of_batch(c.name + "_item_offsets", dtype::i64, {count(c.items + 1)}));
        }
        break;
    }
  }
  return batch_layout(samples, std::move(fields));
}

MILLRACE_INLINE void collated_fields::row_written(const batch_row& row) const {
  for (const column& c : columns) {
    const bool nested = c.form == field_form::nested;
    if (c.form != field_form::ragged && c.form != field_form::on_device && !nested) continue;
    auto* const offsets = row.whole(c.first + 1).as<std::int64_t>();
    if (row.index() == 0) {
      offsets[0] = 0;
      if (nested) row.whole(c.first + 2).as<std::int64_t>()[0] = 0;
    }
    offsets[row.index() + 1] = static_cast<std::int64_t>(nested ? c.items_written : c.written);
  }
}

MILLRACE_INLINE std::size_t padded_length(std::size_t longest, const pad_options& how) {
  const std::size_t bucket = how.edges.bucket_of(longest);
  const std::size_t wanted = bucket < how.edges.size() ? how.edges[bucket] : longest;
  const std::size_t multiple = how.multiple == 0 ? 1 : how.multiple;
  return (wanted + multiple - 1) / multiple * multiple;
}

template <class T>
void fill_elements(void* to, std::size_t n, double value, dtype type, const std::string& field) {
  if constexpr (std::is_integral_v<T>) {
    constexpr double beyond = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2;
    const bool fits = value >= static_cast<double>(std::numeric_limits<T>::min()) && value < beyond;
    if (!fits || static_cast<double>(static_cast<T>(value)) != value) {
      throw configuration_error("field " + field + " is padded with " + std::to_string(value) + ", which is no " +
                                name_of(type));
    }
  }
  std::fill_n(static_cast<T*>(to), n, static_cast<T>(value));
}

MILLRACE_INLINE void fill_with(void* to, std::size_t n, dtype type, double value, const std::string& field) {
  switch (type) {
    case dtype::boolean:
    case dtype::u8:
      return fill_elements<std::uint8_t>(to, n, value, type, field);
    case dtype::i8:
      return fill_elements<std::int8_t>(to, n, value, type, field);
    case dtype::u16:
      return fill_elements<std::uint16_t>(to, n, value, type, field);
    case dtype::i16:
      return fill_elements<std::int16_t>(to, n, value, type, field);
    case dtype::u32:
      return fill_elements<std::uint32_t>(to, n, value, type, field);
    case dtype::i32:
      return fill_elements<std::int32_t>(to, n, value, type, field);
    case dtype::u64:
      return fill_elements<std::uint64_t>(to, n, value, type, field);
    case dtype::i64:
      return fill_elements<std::int64_t>(to, n, value, type, field);
    case dtype::f16:
      std::fill_n(static_cast<std::uint16_t*>(to), n, to_f16(static_cast<float>(value)));
      return;
    case dtype::bf16:
      std::fill_n(static_cast<std::uint16_t*>(to), n, to_bf16(static_cast<float>(value)));
      return;
    case dtype::f32:
      return fill_elements<float>(to, n, value, type, field);
    case dtype::f64:
      return fill_elements<double>(to, n, value, type, field);
  }
}

}  // namespace millrace::detail
