// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arrow/api.h>

#include <millrace/base/error.hpp>
#include <millrace/device/tensor.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The block of what Arrow holds: `keep` is dropped with the last slice, on any thread.
class arrow_block final : public block {
 public:
  arrow_block(std::shared_ptr<const void> pool, std::shared_ptr<const void> array, std::size_t size) noexcept
      : pool_(std::move(pool)), array_(std::move(array)) {
    capacity = size;
    recycle = [](block* self) noexcept { delete static_cast<arrow_block*>(self); };
  }

 private:
  const std::shared_ptr<const void> pool_;  // of the array's memory
  const std::shared_ptr<const void> array_;
};

/// The way in which the elements of a type are read as a field.
enum class arrow_form : unsigned char { none, null, text, fixed, boolean };

/// The bytes of an element's type, or of a fixed-size list of them.
struct arrow_element {
  arrow_form form = arrow_form::none;
  std::optional<dtype> type;
  shape dims;
  std::size_t bytes = 0;  // of a row, where it is fixed
};

inline std::optional<dtype> dtype_of_arrow(const ::arrow::DataType& t) {
  using id = ::arrow::Type;
  switch (t.id()) {
    case id::BOOL:
      return dtype::boolean;
    case id::UINT8:
      return dtype::u8;
    case id::INT8:
      return dtype::i8;
    case id::UINT16:
      return dtype::u16;
    case id::INT16:
      return dtype::i16;
    case id::UINT32:
      return dtype::u32;
    case id::INT32:
    case id::DATE32:
    case id::TIME32:
      return dtype::i32;
    case id::UINT64:
      return dtype::u64;
    case id::INT64:
    case id::DATE64:
    case id::TIME64:
    case id::TIMESTAMP:
    case id::DURATION:
      return dtype::i64;
    case id::HALF_FLOAT:
      return dtype::f16;
    case id::FLOAT:
      return dtype::f32;
    case id::DOUBLE:
      return dtype::f64;
    default:
      return std::nullopt;
  }
}

inline arrow_element element_of(const ::arrow::DataType& t) {
  using id = ::arrow::Type;
  arrow_element made;
  switch (t.id()) {
    case id::EXTENSION:
      return element_of(*static_cast<const ::arrow::ExtensionType&>(t).storage_type());
    case id::DICTIONARY:
      return element_of(*static_cast<const ::arrow::DictionaryType&>(t).value_type());
    case id::NA:
      made.form = arrow_form::null;
      return made;
    case id::STRING:
    case id::BINARY:
    case id::LARGE_STRING:
    case id::LARGE_BINARY:
    case id::STRING_VIEW:
    case id::BINARY_VIEW:
      made.form = arrow_form::text;
      return made;
    case id::BOOL:
      made.form = arrow_form::boolean;
      made.type = dtype::boolean;
      made.bytes = 1;
      return made;
    case id::FIXED_SIZE_BINARY:
    case id::DECIMAL32:
    case id::DECIMAL64:
    case id::DECIMAL128:
    case id::DECIMAL256:
      made.form = arrow_form::fixed;
      made.bytes = static_cast<std::size_t>(static_cast<const ::arrow::FixedWidthType&>(t).bit_width() / 8);
      return made;
    case id::FIXED_SIZE_LIST: {
      const auto& list = static_cast<const ::arrow::FixedSizeListType&>(t);
      arrow_element inner = element_of(*list.value_type());
      const auto length = static_cast<std::size_t>(list.list_size());
      if (inner.form != arrow_form::fixed || inner.dims.rank() == shape::max_rank ||
          list.value_type()->id() == id::DICTIONARY || __builtin_mul_overflow(inner.bytes, length, &inner.bytes)) {
        return made;
      }
      inner.dims = inner.dims.with_outer(list.list_size());
      return inner;
    }
    default:
      made.type = dtype_of_arrow(t);
      if (!made.type) return made;
      made.form = arrow_form::fixed;
      made.bytes = size_of(*made.type);
      return made;
  }
}

/// The elements of an array: of scalars, or of fixed-size lists of numbers.
class arrow_values {
 public:
  arrow_values() = default;
  arrow_values(std::shared_ptr<::arrow::Array> array, const std::shared_ptr<const void>& pool) {
    array = storage_of_extension(std::move(array));
    if (array->type_id() == ::arrow::Type::DICTIONARY) {
      indices_ = std::static_pointer_cast<::arrow::DictionaryArray>(array);
      values_ = storage_of_extension(indices_->dictionary());
    } else {
      values_ = std::move(array);
    }
    what_ = element_of(*values_->type());
    std::int64_t held = 0;
    for (const std::shared_ptr<::arrow::Buffer>& b : values_->data()->buffers) held += b == nullptr ? 0 : b->size();
    if (what_.form == arrow_form::fixed) read_fixed();
    owner_ = bytes(new arrow_block(pool, values_, static_cast<std::size_t>(held)), nullptr, 0);
  }

  const arrow_element& what() const noexcept { return what_; }
  std::int64_t size() const noexcept { return indices_ != nullptr ? indices_->length() : values_->length(); }
  /// Element `i` of 64 bits, which must not be null.
  std::int64_t number(std::int64_t i) const {
    std::int64_t made = 0;
    std::memcpy(&made, at(i).data(), sizeof made);
    return made;
  }
  bool is_null(std::int64_t i) const {
    if (indices_ == nullptr) return what_.form == arrow_form::null || values_->IsNull(i);
    return indices_->IsNull(i) || values_->IsNull(indices_->GetValueIndex(i));
  }
  /// Element `i`, which must not be null; of a fixed-size list its elements must not be either (has_holes()).
  bytes at(std::int64_t i) const {
    if (indices_ != nullptr) i = indices_->GetValueIndex(i);
    switch (what_.form) {
      case arrow_form::text:
        return share(text(i));
      case arrow_form::boolean:
        return bytes::copy(static_cast<const ::arrow::BooleanArray&>(*values_).Value(i) ? std::string_view("\1", 1)
                                                                                        : std::string_view("\0", 1));
      default:
        return share(std::string_view(fixed_ + static_cast<std::size_t>(i) * what_.bytes, what_.bytes));
    }
  }
  /// True if elements of the fixed-size lists [first, first + count) are null.
  bool has_holes(std::int64_t first, std::int64_t count) const {
    if (what_.form != arrow_form::fixed || what_.dims.rank() == 0) return false;
    const ::arrow::Array* of = values_.get();
    std::shared_ptr<::arrow::Array> kept;
    while (of->type_id() == ::arrow::Type::FIXED_SIZE_LIST) {
      const auto& list = static_cast<const ::arrow::FixedSizeListArray&>(*of);
      first = list.value_offset(first);
      count *= list.value_length();
      kept = storage_of_extension(list.values());
      of = kept.get();
      if (of->null_count() == 0) continue;
      for (std::int64_t i = first; i < first + count; ++i) {
        if (of->IsNull(i)) return true;
      }
    }
    return false;
  }
  /// Elements [first, first + count) side by side; none of them null.
  bytes range(std::int64_t first, std::int64_t count) const {
    if (indices_ == nullptr && what_.form == arrow_form::fixed) {
      return share(std::string_view(fixed_ + static_cast<std::size_t>(first) * what_.bytes,
                                    static_cast<std::size_t>(count) * what_.bytes));
    }
    std::string joined;
    for (std::int64_t i = first; i < first + count; ++i) joined += at(i).view();
    return bytes::copy(joined);
  }

  static std::shared_ptr<::arrow::Array> storage_of_extension(std::shared_ptr<::arrow::Array> array) {
    while (array->type_id() == ::arrow::Type::EXTENSION) {
      array = static_cast<const ::arrow::ExtensionArray&>(*array).storage();
    }
    return array;
  }

 private:
  std::string_view text(std::int64_t i) const {
    switch (values_->type_id()) {
      case ::arrow::Type::LARGE_STRING:
      case ::arrow::Type::LARGE_BINARY:
        return static_cast<const ::arrow::LargeBinaryArray&>(*values_).GetView(i);
      case ::arrow::Type::STRING_VIEW:
      case ::arrow::Type::BINARY_VIEW:
        return static_cast<const ::arrow::BinaryViewArray&>(*values_).GetView(i);
      default:
        return static_cast<const ::arrow::BinaryArray&>(*values_).GetView(i);
    }
  }
  /// Finds element 0. Offsets of nested fixed-size lists add up.
  void read_fixed() {
    std::int64_t first = values_->offset();
    std::shared_ptr<::arrow::Array> of = values_;
    while (of->type_id() == ::arrow::Type::FIXED_SIZE_LIST) {
      const auto& list = static_cast<const ::arrow::FixedSizeListArray&>(*of);
      first = list.value_offset(0);
      of = storage_of_extension(list.values());
      first += of->offset();
    }
    const std::shared_ptr<::arrow::Buffer>& data = of->data()->buffers[1];
    const auto width =
        static_cast<std::int64_t>(static_cast<const ::arrow::FixedWidthType&>(*of->type()).bit_width() / 8);
    fixed_ = data == nullptr ? nullptr : reinterpret_cast<const char*>(data->data()) + first * width;
  }
  bytes share(std::string_view of) const {
    auto* const owner = static_cast<block*>(const_cast<void*>(owner_.memory()));
    owner->add_ref();
    return bytes(owner, of.data(), of.size());
  }

  std::shared_ptr<::arrow::DictionaryArray> indices_;  // or null
  std::shared_ptr<::arrow::Array> values_;
  arrow_element what_;
  const char* fixed_ = nullptr;
  bytes owner_;
};

/// A list of an array of them.
struct arrow_list {
  std::int64_t begin = 0;
  std::int64_t length = 0;
};

inline bool is_arrow_list(const ::arrow::DataType& t) {
  return t.id() == ::arrow::Type::LIST || t.id() == ::arrow::Type::LARGE_LIST ||
         t.id() == ::arrow::Type::FIXED_SIZE_LIST;
}
inline arrow_list list_at(const ::arrow::Array& a, std::int64_t i) {
  if (a.type_id() == ::arrow::Type::LARGE_LIST) {
    const auto& list = static_cast<const ::arrow::LargeListArray&>(a);
    return {list.value_offset(i), list.value_length(i)};
  }
  if (a.type_id() == ::arrow::Type::FIXED_SIZE_LIST) {
    const auto& list = static_cast<const ::arrow::FixedSizeListArray&>(a);
    return {list.value_offset(i), list.value_length()};
  }
  const auto& list = static_cast<const ::arrow::ListArray&>(a);
  return {list.value_offset(i), list.value_length(i)};
}
inline std::shared_ptr<::arrow::Array> values_of_list(const ::arrow::Array& a) {
  if (a.type_id() == ::arrow::Type::LARGE_LIST) return static_cast<const ::arrow::LargeListArray&>(a).values();
  if (a.type_id() == ::arrow::Type::FIXED_SIZE_LIST) return static_cast<const ::arrow::FixedSizeListArray&>(a).values();
  return static_cast<const ::arrow::ListArray&>(a).values();
}

/// Some neighbouring rows of a column: its array as Arrow gives it, which may be of lists, and of lists in lists.
class arrow_chunk {
 public:
  arrow_chunk(std::shared_ptr<::arrow::Array> array, std::int64_t first, const std::shared_ptr<const void>& pool)
      : first_(first) {
    for (;;) {
      array = arrow_values::storage_of_extension(std::move(array));
      if (!is_arrow_list(*array->type()) || element_of(*array->type()).form != arrow_form::none) break;
      lists_.push_back(array);
      array = values_of_list(*array);
    }
    values_ = arrow_values(std::move(array), pool);
  }

  std::int64_t first() const noexcept { return first_; }
  const std::vector<std::shared_ptr<::arrow::Array>>& lists() const noexcept { return lists_; }
  const arrow_values& values() const noexcept { return values_; }
  /// The values that are not the nanoseconds of these seconds: they have wrapped.
  void compare_seconds(const arrow_chunk& seconds) {
    const std::int64_t count = values_.size();
    if (seconds.values_.size() != count) throw std::runtime_error("Arrow reads it in other parts a second time");
    for (std::int64_t i = 0; i < count; ++i) {
      if (values_.is_null(i)) continue;
      constexpr std::int64_t second = 1'000'000'000;
      const std::int64_t time = values_.number(i);
      const std::int64_t whole = time / second - (time % second < 0 ? 1 : 0);
      if (whole != seconds.values_.number(i)) wrapped_.push_back(i);
    }
  }
  bool has_wrapped(std::int64_t begin, std::int64_t length) const {
    const auto at = std::lower_bound(wrapped_.begin(), wrapped_.end(), begin);
    return at != wrapped_.end() && *at < begin + length;
  }

 private:
  std::int64_t first_;
  std::vector<std::int64_t> wrapped_;                   // in ascending order
  std::vector<std::shared_ptr<::arrow::Array>> lists_;  // outermost first
  arrow_values values_;
};

/// A column of a group, as a field.
class arrow_column {
 public:
  std::string name;
  bool is_field = true;
  bool is_label = false;
  std::vector<arrow_chunk> chunks;

  /// Refuses times that wrapped in nanoseconds, by comparing them with the same times in seconds.
  void compare_seconds(const arrow_column& seconds) {
    if (seconds.chunks.size() != chunks.size()) throw std::runtime_error("Arrow reads it in other parts a second time");
    for (std::size_t i = 0; i < chunks.size(); ++i) chunks[i].compare_seconds(seconds.chunks[i]);
  }
  void fill(std::int64_t row, std::vector<field>& fields, const where& at) const {
    std::size_t i = 0;
    while (i + 1 < chunks.size() && chunks[i + 1].first() <= row) ++i;
    const arrow_chunk& chunk = chunks[i];
    row -= chunk.first();
    if (!chunk.lists().empty()) return fill_list(chunk, row, fields, at);
    const arrow_values& values = chunk.values();
    if (values.is_null(row)) return;
    if (values.has_holes(row, 1)) refuse_null(at);
    if (chunk.has_wrapped(row, 1)) refuse_time(at);
    bytes data = values.at(row);
    if (is_label) fields.emplace_back("cls", bytes::copy(number(data, *values.what().type)));
    if (is_field) fields.emplace_back(name, std::move(data));
  }

 private:
  [[noreturn]] void refuse_null(const where& at) const {
    throw decode_error("column \"" + name + "\" has a list with a null in it, for which a field has no place", at);
  }
  [[noreturn]] void refuse_time(const where& at) const {
    throw decode_error("column \"" + name +
                           "\" has a time of type INT96 beyond the years 1677 to 2262, which 64 bits of " +
                           "nanoseconds do not hold: leave it out by .columns, or write it as a timestamp",
                       at);
  }
  static std::string number(const bytes& data, dtype type) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, data.data(), std::min(data.size(), sizeof bits));
    switch (type) {
      case dtype::i8:
        return std::to_string(static_cast<std::int8_t>(bits));
      case dtype::i16:
        return std::to_string(static_cast<std::int16_t>(bits));
      case dtype::i32:
        return std::to_string(static_cast<std::int32_t>(bits));
      case dtype::i64:
        return std::to_string(static_cast<std::int64_t>(bits));
      default:
        return std::to_string(bits);
    }
  }
  void fill_list(const arrow_chunk& chunk, std::int64_t row, std::vector<field>& fields, const where& at) const {
    const ::arrow::Array& outer = *chunk.lists().front();
    if (outer.IsNull(row)) return;
    arrow_list of = list_at(outer, row);
    const arrow_values& values = chunk.values();
    if (chunk.lists().size() == 2) {
      const ::arrow::Array& inner = *chunk.lists().back();
      std::string offsets;
      std::int64_t begin = 0;
      std::int64_t length = 0;
      const auto add = [&] { offsets.append(reinterpret_cast<const char*>(&length), sizeof length); };
      add();
      for (std::int64_t i = of.begin; i < of.begin + of.length; ++i) {
        if (inner.IsNull(i)) refuse_null(at);
        const arrow_list one = list_at(inner, i);
        if (length == 0) begin = one.begin;
        // The place of an empty list means nothing; the others follow one another.
        if (one.length != 0 && one.begin != begin + length) refuse_null(at);
        length += one.length;
        add();
      }
      fields.emplace_back(name + ".offsets", bytes::copy(offsets));
      of = {begin, length};
    }
    for (std::int64_t i = of.begin; i < of.begin + of.length; ++i) {
      if (values.is_null(i)) refuse_null(at);
    }
    if (values.has_holes(of.begin, of.length)) refuse_null(at);
    if (chunk.has_wrapped(of.begin, of.length)) refuse_time(at);
    if (values.what().form != arrow_form::text) {
      fields.emplace_back(name, of.length == 0 ? bytes() : values.range(of.begin, of.length));
      return;
    }
    for (std::int64_t i = 0; i < of.length; ++i) {
      fields.emplace_back(i == 0 ? name : name + '#' + std::to_string(i), values.at(of.begin + i));
    }
  }
};

}  // namespace millrace::detail
