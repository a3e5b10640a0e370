// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/device/collate.hpp>

namespace millrace {

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
    throw decode_error("field " + text_of() + " where the first sample had " + c.text(), from_.at(key_));
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
