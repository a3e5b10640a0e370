// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/device/host_batch.hpp>

namespace millrace {

/// One sample's places in a batch that is being filled. Keeps the batch's memory alive, so a job on another thread may
/// go on writing after all other owners have let it go.
///
/// Rows of different samples may be written at once from different threads; one row by one thread at a time.
class batch_row {
 public:
  batch_row() noexcept = default;
  batch_row(std::shared_ptr<detail::batch_parts> parts, std::size_t index) noexcept
      : parts_(std::move(parts)), index_(index) {}

  std::size_t index() const noexcept { return index_; }
  const batch_layout& layout() const noexcept { return parts_->layout; }

  /// Where this sample's part of a field goes: not initialised, to be written in full before done().
  tensor_view field(std::size_t i) const { return layout().row(parts_->memory.data(), i, index_); }
  tensor_view field(std::string_view name) const { return field(layout().find(name)); }
  /// The same as elements. Throws configuration_error when T is not the field's type.
  template <class T>
  std::span<T> values(std::string_view name) const {
    return field(name).template values<T>();
  }
  /// For fields of one element.
  template <class T>
  void set(std::string_view name, T value) const {
    const std::span<T> place = values<T>(name);
    if (place.size() != 1) throw configuration_error("field " + std::string(name) + " is not a scalar");
    place[0] = value;
  }

  /// A tensor of the batch that has no rows (batch_field::of_batch): for who writes all rows, on one thread.
  tensor_view whole(std::size_t i) const { return layout().tensor(parts_->memory.data(), i, layout().samples()); }

  void key(std::string text) const { parts_->keys[index_] = std::move(text); }
  template <class T>
  void tag(T value) const {
    parts_->tags.set(index_, std::move(value));
  }

  /// The sample's weight; 1 unless it is set.
  void weight(float w) const noexcept { parts_->weights[index_] = w; }
  /// Makes it a padding row: zeros, of weight 0, without a key.
  void fill_up() const;

  /// The row is complete. A row for which this is never called is left out of the batch.
  void done() const noexcept { parts_->filled[index_] = 1; }

 private:
  std::shared_ptr<detail::batch_parts> parts_;
  std::size_t index_ = 0;
};

/// A batch being filled, row by row, in any order, from any threads: decoders write straight into the memory that will
/// be copied to the device. Made by batch_pool::start().
class batch_builder {
 public:
  batch_builder() noexcept = default;
  explicit batch_builder(std::shared_ptr<detail::batch_parts> parts) noexcept : parts_(std::move(parts)) {}
  batch_builder(batch_builder&&) noexcept = default;
  batch_builder& operator=(batch_builder&&) noexcept = default;

  explicit operator bool() const noexcept { return parts_ != nullptr; }
  const batch_layout& layout() const noexcept { return parts_->layout; }
  /// How many rows there are.
  std::size_t capacity() const noexcept { return parts_ == nullptr ? 0 : parts_->layout.samples(); }

  batch_row row(std::size_t i) const {
    if (i >= capacity()) detail::misused("batch_builder::row beyond the batch");
    return batch_row(parts_, i);
  }

  /// Announces one more sample, whose place in the training is `mark`. For the thread that begins and seals batches.
  void join(const epoch_mark& mark) noexcept {
    parts_->mark.join(mark);
    ++parts_->joined;
  }
  /// Sets where the training stands behind the batch, in place of the marks of its samples.
  void stand(const epoch_mark& mark) noexcept { parts_->mark = mark; }
  /// Whether join() was called as often as there are rows.
  bool complete() const noexcept { return parts_->joined == capacity(); }

  /// The batch of the rows that are done(), in their order. The others are left out, and the rows behind them move up:
  /// a sample that could not be decoded leaves no hole. Where samples have places in an epoch's order
  /// (epoch_mark::placed), each of the first `rows` rows that a sample joined stays: one that is not done() becomes a
  /// padding row, so that batches keep their size. No row may be written any more: whoever wrote one must have handed
  /// over to this thread.
  host_batch seal(std::size_t rows = static_cast<std::size_t>(-1)) &&;

 private:
  void move_row(std::size_t from, std::size_t to);

  std::shared_ptr<detail::batch_parts> parts_;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/impl/batch_builder.ipp>
#endif
