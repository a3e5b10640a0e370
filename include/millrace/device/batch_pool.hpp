// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/device/batch.hpp>
#include <millrace/device/detail/slot_device.hpp>
#include <millrace/device/device.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

/// One sample's row of a batch that is being filled. Keeps the batch's memory alive, so a job on another thread may
/// continue writing after all other owners have dropped it.
///
/// Rows of different samples may be written at once from different threads; one row by one thread at a time.
class batch_row {
 public:
  batch_row() noexcept = default;
  batch_row(std::shared_ptr<detail::batch_parts> parts, std::size_t index) noexcept
      : parts_(std::move(parts)), index_(index) {}

  std::size_t index() const noexcept { return index_; }
  const batch_layout& layout() const noexcept { return parts_->layout; }

  /// The memory of this sample's part of a field. Write all of it before done(): the rest keeps its former contents,
  /// unless the row was cleared. fill_batches() clears rows.
  tensor_view field(std::size_t i) const { return layout().row(parts_->memory.data(), i, index_); }
  tensor_view field(std::string_view name) const { return field(layout().find(name)); }
  /// The elements of field(name). Throws configuration_error when T is not the field's type.
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
  /// Makes all its fields zeros.
  void clear() const;
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

  /// Makes zeros of the fields that have no rows (batch_field::of_batch).
  void clear_whole();

  /// Adds one more sample, with its `mark`. For the thread that begins and seals batches.
  void join(const epoch_mark& mark) noexcept {
    parts_->mark.join(mark);
    ++parts_->joined;
  }
  /// Sets the mark of the batch, in place of the joined marks of its samples.
  void stand(const epoch_mark& mark) noexcept { parts_->mark = mark; }
  /// True if join() was called as often as there are rows.
  bool complete() const noexcept { return parts_->joined == capacity(); }

  /// The batch of the rows that are done(), in their order. The others are left out, and the rows after them move up: a
  /// sample that could not be decoded leaves no gap. If samples have positions in an epoch's order
  /// (epoch_mark::placed), each of the first `rows` rows that a sample joined stays: one that is not done() becomes a
  /// padding row, so that batches keep their size. No row may be written any more, and earlier writes of other threads
  /// must happen before this call.
  host_batch seal(std::size_t rows = static_cast<std::size_t>(-1)) &&;

 private:
  void move_row(std::size_t from, std::size_t to);

  std::shared_ptr<detail::batch_parts> parts_;
};

namespace detail {

/// The device of a device (itself) or of a stream (what as_device() makes of it).
template <class Target>
auto device_of(const Target& target) {
  if constexpr (device<Target>) {
    return target;
  } else if constexpr (requires { as_device(target); }) {
    return as_device(target);
  } else {
    static_assert(
        never_v<Target>,
        "this is neither a device nor a stream: pass a millrace::host_device, a millrace::cuda::stream, or a type that "
        "satisfies millrace::device");
    return refused();
  }
}

}  // namespace detail

/// Recycled memory for batches of one layout. A copy is the same pool; thread-safe.
///
///     mill::batch_layout layout(256, {{"image", mill::dtype::u8, {224, 224, 3}}, {"label", mill::dtype::i64}});
///     mill::batch_pool pool(layout, copies);    // page-locked, for the device of that stream
///
/// The program makes it once, for all epochs: its memory is freed with its last copy and last batch, and freeing
/// page-locked memory may wait for the device. start() never waits. The stages that hold batches bound their number;
/// pool.peak() tells how many there were.
class batch_pool {
 public:
  /// Ordinary memory: for host_device, or for batches that never go to a device.
  explicit batch_pool(const batch_layout& layout) : layout_(layout), slabs_(slab_size(layout)) {}

  /// Memory of a device, or of a stream's device: page-locked, unless any memory is as good to that device. (A GPU
  /// could not copy directly from memory of a host_device: to_device() moves such batches to page-locked memory.)
  template <class Target>
  batch_pool(const batch_layout& layout, const Target& target)
      : layout_(layout), slabs_(slab_size(layout), source_for(detail::device_of(target))),
        pinned_(!detail::copies_any_memory<decltype(detail::device_of(target))>) {}

  /// Slabs of another pool, of slab_size(layout) bytes at least.
  batch_pool(const batch_layout& layout, slab_pool slabs, bool page_locked)
      : layout_(layout), slabs_(std::move(slabs)), pinned_(page_locked) {}

  const batch_layout& layout() const noexcept { return layout_; }

  /// An empty batch to fill. Throws the exceptions of the allocation.
  batch_builder start();

  /// Batches that exist now, and the most that did at once.
  std::size_t live() const { return slabs_.live(); }
  std::size_t peak() const { return slabs_.peak(); }

  /// The memory of one batch, in bytes.
  static std::size_t slab_size(const batch_layout& layout) noexcept {
    return layout.bytes() == 0 ? batch_layout::alignment : layout.bytes();
  }

 private:
  template <class D>
  static std::shared_ptr<slab_source> source_for(const D& on) {
    if constexpr (std::is_same_v<D, detail::refused>) {
      return nullptr;
    } else {
      return std::make_shared<detail::slot_device_on<D>>(on);
    }
  }

  batch_layout layout_;
  slab_pool slabs_;
  bool pinned_ = false;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/batch_pool.ipp>
#endif
