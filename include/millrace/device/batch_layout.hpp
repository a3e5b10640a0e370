// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/device/tensor_view.hpp>

namespace millrace {

/// One tensor of a batch, as one sample's part of it: `{"image", dtype::u8, {224, 224, 3}}`, `{"label", dtype::i64}`.
class batch_field {
 public:
  batch_field(std::string name, dtype type, const shape& dims = shape())
      : name_(std::move(name)), type_(type), dims_(dims) {}

  /// One that is no tensor of rows: of shape `dims` whatever the number of samples, such as the values of all samples
  /// one behind the other, and the offsets that tell whose they are.
  static batch_field of_batch(std::string name, dtype type, const shape& dims) {
    batch_field made(std::move(name), type, dims);
    made.has_rows_ = false;
    return made;
  }

  /// One of those that the host has no memory for: to_device() makes it there, out of what travels beside the batch
  /// (see undecoded_image).
  static batch_field of_device(std::string name, dtype type, const shape& dims) {
    batch_field made = of_batch(std::move(name), type, dims);
    made.on_host_ = false;
    return made;
  }

  const std::string& name() const noexcept { return name_; }
  dtype type() const noexcept { return type_; }
  /// The extents of one sample's part; where the tensor has no rows, of all of it.
  const shape& dims() const noexcept { return dims_; }
  /// Whether each sample has a part of its own in the tensor.
  bool has_rows() const noexcept { return has_rows_; }
  /// Whether the host has it, and not the device alone.
  bool on_host() const noexcept { return on_host_; }
  /// Bytes of one sample's part; where the tensor has no rows, of all of it.
  std::size_t row_bytes() const;
  /// Bytes of the tensor of `n` samples.
  std::size_t bytes_for(std::size_t n) const { return has_rows_ ? row_bytes() * n : row_bytes(); }
  /// "image u8 224x224x3".
  std::string text() const { return name_ + " " + name_of(type_) + " " + dims_.text(); }
  friend bool operator==(const batch_field&, const batch_field&) = default;

 private:
  std::string name_;
  dtype type_;
  shape dims_;
  bool has_rows_ = true;
  bool on_host_ = true;
};

/// Where the tensors of a batch lie in its one piece of memory: field behind field, each for all samples, each at a
/// multiple of `alignment`; those that the host does not have behind all others. Immutable; a copy is the same layout.
class batch_layout {
 public:
  /// Bytes; what cudaMalloc aligns to, and enough for vector loads and the tensor copy engines.
  static constexpr std::size_t alignment = 256;

  /// No fields, no samples.
  batch_layout() : batch_layout(0, std::vector<batch_field>()) {}

  /// `samples` is the most a batch holds. Throws configuration_error for two fields of one name or a size that does
  /// not fit.
  batch_layout(std::size_t samples, std::vector<batch_field> fields);

  /// The most samples of a batch.
  std::size_t samples() const noexcept { return state_->samples; }
  const std::vector<batch_field>& fields() const noexcept { return state_->fields; }
  /// Bytes of a full batch, on the host.
  std::size_t bytes() const noexcept { return state_->bytes; }
  /// On the device: with the fields that the host does not have.
  std::size_t device_bytes() const noexcept { return state_->device_bytes; }
  /// Bytes up to the end of what `n` samples use: what has to be copied for them.
  std::size_t bytes_for(std::size_t n) const {
    if (n == 0 || state_->bytes == 0) return 0;
    return state_->offsets[state_->last] + fields()[state_->last].bytes_for(n);
  }
  /// Where field `i` begins, in bytes.
  std::size_t offset(std::size_t i) const noexcept { return state_->offsets[i]; }

  /// The number of the field named `name`. Throws configuration_error that lists the fields there are.
  std::size_t find(std::string_view name) const;

  /// Field `i` of the first `n` samples of a batch that begins at `base`: the outermost extent is `n`, where it has
  /// rows.
  tensor_view tensor(void* base, std::size_t i, std::size_t n) const {
    const batch_field& f = fields()[i];
    return tensor_view(static_cast<char*>(base) + offset(i), f.type(),
                       f.has_rows() ? f.dims().with_outer(static_cast<std::int64_t>(n)) : f.dims());
  }
  /// Field `i` of sample `row`. usage_error where it has no rows.
  tensor_view row(void* base, std::size_t i, std::size_t row) const {
    if (!fields()[i].has_rows()) detail::misused("a field of a batch that is not made of rows was asked for one");
    return tensor_view(static_cast<char*>(base) + offset(i) + fields()[i].row_bytes() * row, fields()[i].type(),
                       fields()[i].dims());
  }

  friend bool operator==(const batch_layout& a, const batch_layout& b) {
    return a.state_ == b.state_ || (a.samples() == b.samples() && a.fields() == b.fields());
  }

 private:
  static constexpr std::size_t largest = static_cast<std::size_t>(-1) / 4;
  struct state {
    std::size_t samples = 0, bytes = 0, device_bytes = 0;
    std::size_t last = 0;  // of the fields that the host has
    std::vector<batch_field> fields;
    std::vector<std::size_t> offsets;
  };
  std::shared_ptr<const state> state_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/impl/batch_layout.ipp>
#endif
