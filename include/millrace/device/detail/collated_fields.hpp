// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <millrace/device/batch_builder.hpp>
#include <millrace/device/pad_options.hpp>

namespace millrace::detail {

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
    // Of the batch in the making.
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

  /// Whether batches have layouts of their own.
  bool vary() const noexcept;
  /// Forgets the lengths of the batch before.
  void begin_batch() noexcept;
  /// Of the batch that was measured.
  batch_layout layout(std::size_t samples);

  /// Rows are written in their order; said of each when its values are: writes where they end.
  void row_written(const batch_row& row) const;
};

/// The length that all samples are padded to.
std::size_t padded_length(std::size_t longest, const pad_options& how);
/// `n` elements of value `value`. Throws configuration_error, which names `field`, where the type does not have it.
void fill_with(void* to, std::size_t n, dtype type, double value, const std::string& field);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/detail/impl/collated_fields.ipp>
#endif
