// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/data/origin.hpp>
#include <millrace/device/batch_pool.hpp>

namespace millrace {

/// Takes the parts of one sample apart, into the tensors of a batch. Given to the one function that says how a type of
/// yours becomes a row, found beside the type (by argument-dependent lookup):
///
///     void collate(const decoded& d, mill::sample_writer& out) {
///       out.key(d.key);
///       out.tag(d.from);
///       out.write("image", d.pixels.data(), {224, 224, 3});
///       out.write("label", d.label);
///     }
///
/// The same fields in the same order for every sample; names, types and shapes of the first sample make the layout of
/// the batches, so the function is called for it twice. A later sample that differs throws decode_error.
class sample_writer {
 public:
  /// Copies a contiguous tensor of shape `dims`.
  template <class T>
  void write(const char* name, const T* data, const shape& dims) {
    const tensor_view place = field(name, dtype_of<T>, dims);
    if (place.data() != nullptr && place.bytes() != 0) std::memcpy(place.data(), data, place.bytes());
  }
  /// Copies one dimension.
  template <class T>
  void write(const char* name, std::span<const T> data) {
    write(name, data.data(), shape{static_cast<std::int64_t>(data.size())});
  }
  template <class T>
  void write(const char* name, const std::vector<T>& data) {
    write(name, std::span<const T>(data));
  }
  /// A number.
  template <class T>
    requires std::is_arithmetic_v<T>
  void write(const char* name, T value) {
    write(name, &value, shape());
  }

  /// Where a tensor goes, to be filled in place, in full.
  template <class T>
  std::span<T> place(const char* name, const shape& dims) {
    const tensor_view there = field(name, dtype_of<T>, dims);
    if (there.data() != nullptr) return there.template values<T>();
    static_assert(alignof(T) <= alignof(std::max_align_t));
    // Memory of its own: the places of a sample are all valid until its end.
    scratch_.emplace_back(fields_.back().row_bytes());
    return std::span<T>(reinterpret_cast<T*>(scratch_.back().data()), dims.elements());
  }

  /// The sample's key: kept on the host, and named by errors.
  void key(std::string text) {
    key_ = text;
    if (row_ != nullptr) row_->key(std::move(text));
  }
  /// A value of any type that stays on the host beside the batch; see sample_tags. An `origin` is also what errors
  /// about the fields that follow name.
  template <class T>
  void tag(T value) {
    if constexpr (std::is_same_v<T, origin>) from_ = value;
    if (row_ != nullptr) row_->tag(std::move(value));
  }

  /// Notes the fields instead of writing. For collate_batch().
  sample_writer() = default;
  /// Writes into `row`, which must outlive the writer.
  explicit sample_writer(const batch_row& row) : row_(&row) {}
  std::vector<batch_field> take_fields() { return std::move(fields_); }
  /// Marks the row as complete. Throws decode_error when fields are missing.
  void finish();

 private:
  tensor_view field(const char* name, dtype type, const shape& dims);

  const batch_row* row_ = nullptr;
  std::size_t next_ = 0;
  std::string key_;
  origin from_;
  std::vector<batch_field> fields_;
  std::vector<std::vector<std::uint8_t>> scratch_;
};

namespace detail {

/// The user's collate(), found beside the item's type.
class collate_found {
 public:
  template <class T>
  void operator()(const T& item, sample_writer& out) const {
    if constexpr (requires { collate(item, out); }) {
      collate(item, out);
    } else {
      static_assert(never_v<T>,
                    "items of this type cannot be laid out in a batch: declare void collate(const item&, "
                    "millrace::sample_writer&) "
                    "beside the type, or pass such a function to the stage");
    }
  }
};

}  // namespace detail

/// The layout of batches of up to `samples` items like `item`.
template <class T, class Collate = detail::collate_found>
batch_layout layout_of(const T& item, std::size_t samples, const Collate& how = Collate()) {
  sample_writer notes;
  how(item, notes);
  return batch_layout(samples, notes.take_fields());
}

/// Lays items out in a batch of `pool`; at most pool.layout().samples() of them. Copies on the calling thread. Padding
/// of epochs() becomes rows of zeros, of weight 0; the batch has the marks of its items.
template <class T, class Collate = detail::collate_found>
host_batch collate_batch(const std::vector<T>& items, batch_pool& pool, const Collate& how = Collate()) {
  if (items.size() > pool.layout().samples()) {
    throw configuration_error("a batch of " + std::to_string(items.size()) + " samples came where the largest has " +
                              std::to_string(pool.layout().samples()));
  }
  batch_builder builder = pool.start();
  for (std::size_t i = 0; i < items.size(); ++i) {
    const batch_row row = builder.row(i);
    const epoch_mark mark = detail::mark_of_item(items[i]);
    builder.join(mark);
    if (mark.padding) {
      row.fill_up();
      row.done();
      continue;
    }
    sample_writer out(row);
    how(items[i], out);
    out.finish();
  }
  return std::move(builder).seal();
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/impl/collate.ipp>
#endif
