// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/data/length_edges.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/device/batch_pool.hpp>
#include <millrace/flow/failure_policy.hpp>

namespace millrace::inline MILLRACE_ABI {

/// See sample_writer::padded(). A batch's common length is that of its longest sample, or a larger one by `edges` and
/// `multiple`.
struct pad_options {
  double value = 0;          ///< fills up a sample's part; the tensor's type must have it
  std::size_t multiple = 1;  ///< the common length is a multiple of this
  length_edges edges = {};   ///< the common length is the smallest of these that holds the longest, if one does
  bool mask = false;         ///< one more field, NAME_mask (u8): 1 where a sample has data, 0 after it
};

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// How a field's parts of several samples are put together.
enum class field_form : unsigned char { fixed, padded, ragged, nested, on_device };

/// The fields that collate() writes: named by the first sample, measured anew for each batch where lengths differ.
class collated_fields {
 public:
  struct column {
    std::string name;
    dtype type;
    shape dims;  // of a sample's part; where lengths differ, without that extent
    field_form form;
    pad_options pad;
    // State of the batch in the making.
    std::size_t longest = 0;                     // padded: before multiples and edges
    std::size_t values = 0, items = 0;           // ragged, nested, on_device: of all samples
    std::size_t written = 0, items_written = 0;  // of those, up to the row that is written now
    std::size_t first = 0;                       // its first tensor in the layout

    std::size_t element_bytes() const { return dims.elements() * size_of(type); }
    /// "waves f32 padded", "image u8 224x224x3".
    std::string text() const;
  };

  collated_fields() = default;
  /// The fields of batches that have one layout.
  explicit collated_fields(const batch_layout& layout);

  std::vector<column> columns;
  bool known = false;  ///< all of them: by the first sample

  /// True if batches have layouts of their own.
  bool vary() const noexcept;
  /// Forgets the lengths of the batch before.
  void begin_batch() noexcept;
  /// The layout of the batch that was measured.
  batch_layout layout(std::size_t samples);

  /// Rows are written in their order; said of each when its values are: writes where they end.
  void row_written(const batch_row& row) const;
};

/// The length that all samples are padded to.
std::size_t padded_length(std::size_t longest, const pad_options& how);
/// `n` elements of value `value`. Throws configuration_error, which names `field`, where the type does not have it.
void fill_with(void* to, std::size_t n, dtype type, double value, const std::string& field);

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

namespace detail {
/// Contiguous ranges: vectors, spans, strings, arrays of numbers.
template <class R>
concept values_in_a_row = requires(const R& r) {
  { std::size(r) } -> std::convertible_to<std::size_t>;
  requires !std::is_void_v<std::remove_pointer_t<decltype(std::data(r))>>;
};
template <class R>
using value_of = std::remove_cvref_t<decltype(*std::data(std::declval<const R&>()))>;
/// A list of numbers.
template <class R>
concept value_list = values_in_a_row<R> && !values_in_a_row<value_of<R>>;
/// A list of such lists: `std::vector<std::string>`.
template <class R>
concept list_of_lists = values_in_a_row<R> && value_list<value_of<R>>;
}  // namespace detail

/// Writes one sample into the tensors of a batch. The argument of the one function that says how your type becomes part
/// of a batch, found beside the type (argument-dependent lookup):
///
///     void collate(const clip& c, mill::sample_writer& out) {
///       out.key(c.key);
///       out.tag(c.from);
///       out.write("speaker", c.speaker);                       // of one shape in all samples
///       out.padded("waves", c.waves, {.multiple = 16});        // to the longest of the batch
///       out.ragged("words", c.words);                          // one after the other, with offsets
///     }
///
/// Fields are equal in name and order for every sample, as the first one named them. A later sample that differs throws
/// decode_error. If all fields have one shape, the function is called twice for the first sample; if there are padded
/// or ragged ones, twice for every sample: to measure, and to write. It must do the same both times.
class sample_writer {
 public:
  /// A tensor of one shape in all samples of all batches; it is copied.
  void write(const char* name, const tensor_view& t);
  template <class T>
  void write(const char* name, const T* data, const shape& dims) {
    write(name, view(data, dims));
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
  void write(const char* name, T value) { write(name, &value, shape()); }

  /// The place of a tensor of one shape, to be filled: zeros so far.
  template <class T>
  std::span<T> place(const char* name, const shape& dims) {
    const tensor_view there = field(name, dtype_of<T>, dims);
    if (there.data() != nullptr) {
      if (there.bytes() != 0) std::memset(there.data(), 0, there.bytes());
      return there.template values<T>();
    }
    static_assert(alignof(T) <= alignof(std::max_align_t));
    // Memory of its own: the places of a sample are all valid until its end.
    scratch_.emplace_back(batch_field(name, dtype_of<T>, dims).row_bytes());
    return std::span<T>(reinterpret_cast<T*>(scratch_.back().data()), dims.elements());
  }

  /// A tensor whose outermost extent, the length, differs from sample to sample. The batch has `name`, of samples x
  /// common length x the other extents, and `name`_lengths (i64); with pad_options::mask also `name`_mask (u8, samples
  /// x common length). Padding rows are of length 0.
  void padded(const char* name, const tensor_view& t, const pad_options& how = {});
  template <class T>
  void padded(const char* name, const T* data, const shape& dims, const pad_options& how = {}) {
    padded(name, view(data, dims), how);
  }
  /// One dimension: a vector, a span, a string.
  template <detail::value_list R>
  void padded(const char* name, const R& values, const pad_options& how = {}) {
    padded(name, view(std::data(values), shape{static_cast<std::int64_t>(std::size(values))}), how);
  }

  /// A tensor of differing length, without padding. The batch has `name`, the values of all samples one after the
  /// other, and `name`_offsets (i64, samples + 1): those of sample i are from offsets[i] to offsets[i + 1].
  void ragged(const char* name, const tensor_view& t);
  template <class T>
  void ragged(const char* name, const T* data, const shape& dims) {
    ragged(name, view(data, dims));
  }
  /// One dimension: a vector, a span, a text (its bytes are u8).
  template <detail::value_list R>
  void ragged(const char* name, const R& values) {
    ragged(name, view(std::data(values), shape{static_cast<std::int64_t>(std::size(values))}));
  }
  /// A list of lists, such as several texts. `name`_offsets then counts lists, and `name`_item_offsets (i64, all lists
  /// + 1) tells which values a list has.
  template <detail::list_of_lists R>
  void ragged(const char* name, const R& lists) {
    using value = detail::value_of<detail::value_of<R>>;
    std::size_t all = 0;
    for (const auto& each : lists) all += std::size(each);
    const nested_place at = nested(name, dtype_of<value>, std::size(lists), all);
    if (at.offsets == nullptr) return;
    value* to = static_cast<value*>(at.values);
    std::int64_t* offset = at.offsets;
    std::int64_t end = at.begin;
    for (const auto& each : lists) {
      const std::size_t n = std::size(each);
      if (n != 0) std::memcpy(to, std::data(each), n * sizeof(value));
      to += n;
      *offset++ = end += static_cast<std::int64_t>(n);
    }
  }

  /// Room for `n` bytes on the device alone, which to_device() fills from an undecoded_image that is the sample's tag.
  /// The batch has `name` (u8), those of all samples one after the other, and `name`_offsets as a ragged field. For
  /// write_image().
  void room_on_device(const char* name, std::size_t n);

  /// The sample's key: kept on the host, and named by errors.
  void key(std::string text) {
    key_ = text;
    if (row_ != nullptr) row_->key(std::move(text));
  }
  /// A value of any type that stays on the host beside the batch; see sample_tags. Errors about the fields that follow
  /// an `origin` name it.
  template <class T>
  void tag(T value) {
    if constexpr (std::is_same_v<T, origin>) from_ = value;
    if (row_ != nullptr) row_->tag(std::move(value));
  }

  /// Measures instead of writing. This and what follows is for collate_batch().
  explicit sample_writer(detail::collated_fields& fields) : fields_(fields) {}
  /// Writes into `row`, which must outlive the writer. Rows are written in their order.
  sample_writer(detail::collated_fields& fields, const batch_row& row) : fields_(fields), row_(&row) {}
  sample_writer(const sample_writer&) = delete;
  sample_writer& operator=(const sample_writer&) = delete;
  /// Marks the row as complete. Throws decode_error when fields are missing.
  void finish();
  /// Makes it a padding row: zeros, padding, nothing ragged.
  void fill_up();
  /// The origin and the key that have been written.
  void tell(detail::item_place& place) const { place.note(from_, key_); }

 private:
  struct nested_place {
    void* values = nullptr;
    std::int64_t* offsets = nullptr;  // null while it is measured
    std::int64_t begin = 0;
  };
  using column = detail::collated_fields::column;

  template <class T>
  static tensor_view view(const T* data, const shape& dims) noexcept {
    return tensor_view(const_cast<T*>(data), dtype_of<T>, dims);  // which only reads it
  }
  column& next_column(const char* name, dtype type, detail::field_form form, const shape& dims, const pad_options& pad);
  column& next_length(const char* name, const tensor_view& t, detail::field_form form, const pad_options& pad);
  tensor_view field(const char* name, dtype type, const shape& dims);
  void pad(const column& c, std::size_t length) const;
  nested_place nested(const char* name, dtype type, std::size_t items, std::size_t values);
  void check_room(const column& c, bool fits) const;
  void row_done() const;

  detail::collated_fields& fields_;
  const batch_row* row_ = nullptr;
  std::size_t next_ = 0;
  std::string key_;
  origin from_;
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

namespace detail {

inline void check_samples(std::size_t n, const batch_layout& layout) {
  if (n <= layout.samples()) return;
  throw configuration_error("a batch of " + std::to_string(n) + " samples came where the largest has " +
                            std::to_string(layout.samples()));
}

/// An exception of the function gets the place of the item, or the one that the function has written.
template <class T, class Collate>
void lay_out(const T& item, const Collate& how, sample_writer& out) {
  try {
    how(item, out);
    out.finish();
  } catch (...) {
    item_place place;
    if constexpr (has_place<T>) {
      place.note(item);
    } else {
      out.tell(place);
    }
    std::rethrow_exception(place.completed());
  }
}

template <class T, class Collate>
void measure(const T& item, const Collate& how, collated_fields& fields) {
  sample_writer notes(fields);
  detail::lay_out(item, how, notes);
}

/// Names the fields by the first item that is no padding, unless they are known.
template <class T, class Collate>
void learn_fields(const std::vector<T>& items, const Collate& how, collated_fields& fields) {
  for (std::size_t i = 0; i < items.size() && !fields.known; ++i) {
    if (!detail::mark_of_item(items[i]).padding) detail::measure(items[i], how, fields);
  }
}

/// The layout of this batch alone.
template <class T, class Collate>
batch_layout layout_of_batch(const std::vector<T>& items, const Collate& how, collated_fields& fields) {
  fields.begin_batch();
  for (const T& item : items) {
    if (!detail::mark_of_item(item).padding) detail::measure(item, how, fields);
  }
  return fields.layout(items.size());
}

template <class T, class Collate>
host_batch write_rows(const std::vector<T>& items, const Collate& how, collated_fields& fields, batch_builder builder,
                      const epoch_mark* of_all = nullptr) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const batch_row row = builder.row(i);
    const epoch_mark mark = detail::mark_of_item(items[i]);
    builder.join(mark);
    sample_writer out(fields, row);
    if (mark.padding) {
      out.fill_up();
    } else {
      detail::lay_out(items[i], how, out);
    }
  }
  if (of_all != nullptr) builder.stand(*of_all);
  return std::move(builder).seal();
}

}  // namespace detail

/// The layout of batches of up to `samples` items like `item`. Throws configuration_error if it has padded or ragged
/// fields: then each batch has a layout of its own.
template <class T, class Collate = detail::collate_found>
batch_layout layout_of(const T& item, std::size_t samples, const Collate& how = Collate()) {
  detail::collated_fields fields;
  detail::measure(item, how, fields);
  if (fields.vary()) throw configuration_error("batches with padded or ragged fields have no layout in common");
  return fields.layout(samples);
}

/// Lays items out in a batch of `pool`; at most pool.layout().samples() of them. Copies on the calling thread. Padding
/// of epochs() becomes rows of zeros, of weight 0; the batch has the marks of its items.
template <class T, class Collate = detail::collate_found>
host_batch collate_batch(const std::vector<T>& items, batch_pool& pool, const Collate& how = Collate()) {
  detail::check_samples(items.size(), pool.layout());
  detail::collated_fields fields(pool.layout());
  return detail::write_rows(items, how, fields, pool.start());
}

/// Collates in ordinary memory of the batch's own, in the layout that its items need: for batches that go to no device,
/// and for tests.
template <class T, class Collate = detail::collate_found>
requires std::is_invocable_v<const Collate&, const T&, sample_writer&> host_batch
collate_batch(const std::vector<T>& items, const Collate& how = Collate()) {
  detail::collated_fields fields;
  const batch_layout layout = detail::layout_of_batch(items, how, fields);
  return detail::write_rows(items, how, fields, batch_pool(layout).start());
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/collate.ipp>
#endif
