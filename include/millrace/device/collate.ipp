// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/device/collate.hpp>
#include <millrace/device/tensor.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

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

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE void sample_writer::write(const char* name, const tensor_view& t) {
  const tensor_view place = field(name, t.type(), t.dims());
  if (place.data() != nullptr && place.bytes() != 0) std::memcpy(place.data(), t.data(), place.bytes());
}

MILLRACE_INLINE void sample_writer::padded(const char* name, const tensor_view& t, const pad_options& how) {
  column& c = next_length(name, t, detail::field_form::padded, how);
  const auto length = static_cast<std::size_t>(t.dims()[0]);
  if (row_ == nullptr) {
    c.longest = std::max(c.longest, length);
    return;
  }
  check_room(c, length <= c.longest);
  if (t.bytes() != 0) std::memcpy(row_->field(c.first).data(), t.data(), t.bytes());
  pad(c, length);
}

MILLRACE_INLINE void sample_writer::pad(const column& c, std::size_t length) const {
  const tensor_view all = row_->field(c.first);
  const auto common = static_cast<std::size_t>(all.dims()[0]);
  detail::fill_with(static_cast<char*>(all.data()) + length * c.element_bytes(), (common - length) * c.dims.elements(),
                    c.type, c.pad.value, c.name);
  row_->field(c.first + 1).as<std::int64_t>()[0] = static_cast<std::int64_t>(length);
  if (!c.pad.mask) return;
  const std::span<std::uint8_t> mask = row_->field(c.first + 2).values<std::uint8_t>();
  std::fill(mask.begin(), mask.end(), std::uint8_t(0));
  std::fill_n(mask.begin(), length, std::uint8_t(1));
}

MILLRACE_INLINE void sample_writer::ragged(const char* name, const tensor_view& t) {
  column& c = next_length(name, t, detail::field_form::ragged, {});
  const auto length = static_cast<std::size_t>(t.dims()[0]);
  if (row_ == nullptr) {
    c.values += length;
    return;
  }
  check_room(c, length <= c.values - c.written);
  char* const to = static_cast<char*>(row_->whole(c.first).data()) + c.written * c.element_bytes();
  if (t.bytes() != 0) std::memcpy(to, t.data(), t.bytes());
  c.written += length;
}

MILLRACE_INLINE void sample_writer::room_on_device(const char* name, std::size_t n) {
  column& c = next_column(name, dtype::u8, detail::field_form::on_device, shape(), {});
  if (row_ == nullptr) {
    c.values += n;
    return;
  }
  check_room(c, n <= c.values - c.written);
  c.written += n;
}

MILLRACE_INLINE sample_writer::nested_place sample_writer::nested(const char* name, dtype type, std::size_t items,
                                                                  std::size_t values) {
  column& c = next_column(name, type, detail::field_form::nested, shape(), {});
  nested_place at;
  if (row_ == nullptr) {
    c.values += values;
    c.items += items;
    return at;
  }
  check_room(c, values <= c.values - c.written && items <= c.items - c.items_written);
  at.values = static_cast<char*>(row_->whole(c.first).data()) + c.written * c.element_bytes();
  at.offsets = row_->whole(c.first + 2).as<std::int64_t>() + c.items_written + 1;
  at.begin = static_cast<std::int64_t>(c.written);
  c.written += values;
  c.items_written += items;
  return at;
}

MILLRACE_INLINE void sample_writer::finish() {
  if (!fields_.known) {
    fields_.known = true;
  } else if (next_ != fields_.columns.size()) {
    throw decode_error("field " + fields_.columns[next_].name + " is missing", from_.at(key_));
  }
  if (row_ != nullptr) row_done();
}

MILLRACE_INLINE void sample_writer::fill_up() {
  row_->fill_up();
  for (const column& c : fields_.columns) {
    if (c.form == detail::field_form::padded) pad(c, 0);
  }
  row_done();
}

MILLRACE_INLINE void sample_writer::row_done() const {
  fields_.row_written(*row_);
  row_->done();
}

MILLRACE_INLINE sample_writer::column& sample_writer::next_length(const char* name, const tensor_view& t,
                                                                  detail::field_form form, const pad_options& pad) {
  if (t.dims().rank() == 0) {
    throw configuration_error(std::string("field ") + name + " is a number and has no length: write() it");
  }
  shape inner;
  for (std::size_t i = 1; i < t.dims().rank(); ++i) inner.push_back(t.dims()[i]);
  return next_column(name, t.type(), form, inner, pad);
}

MILLRACE_INLINE sample_writer::column& sample_writer::next_column(const char* name, dtype type, detail::field_form form,
                                                                  const shape& dims, const pad_options& pad) {
  const auto text_of = [&] { return column{name, type, dims, form, pad}.text(); };
  if (next_ == fields_.columns.size()) {
    if (fields_.known) {
      throw decode_error(std::string("field ") + name + " is not a field of the first sample", from_.at(key_));
    }
    // Refuses a value that the type does not have before there is anything to fill.
    if (form == detail::field_form::padded) detail::fill_with(nullptr, 0, type, pad.value, name);
    fields_.columns.push_back(column{name, type, dims, form, pad});
  }
  column& c = fields_.columns[next_++];
  if (c.name != name || c.type != type || c.form != form || c.dims != dims) {
    const bool length = c.name == name && c.type == type && c.form == form && form == detail::field_form::fixed &&
                        c.dims.rank() == dims.rank() && dims.rank() > 0;
    throw decode_error("field " + text_of() + " where the first sample had " + c.text() +
                           (length ? ": what differs in length is written by padded() or ragged()" : ""),
                       from_.at(key_));
  }
  return c;
}

MILLRACE_INLINE tensor_view sample_writer::field(const char* name, dtype type, const shape& dims) {
  const column& c = next_column(name, type, detail::field_form::fixed, dims, {});
  return row_ == nullptr ? tensor_view() : row_->field(c.first);
}

MILLRACE_INLINE void sample_writer::check_room(const column& c, bool fits) const {
  if (fits) return;
  throw decode_error("field " + c.name + " is longer than when it was measured: collate() must do the same twice",
                     from_.at(key_));
}

}  // namespace millrace
