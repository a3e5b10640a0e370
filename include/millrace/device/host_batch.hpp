// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/data/epoch_mark.hpp>
#include <millrace/device/batch_layout.hpp>
#include <millrace/device/sample_tags.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/memory/writable_bytes.hpp>

namespace millrace {

namespace detail {
/// Where a stage gets the memory for its batches: ordinary memory at first, page-locked memory once a to_device()
/// behind it had to copy a batch. Any thread.
class batch_memory {
 public:
  explicit batch_memory(slab_pool ordinary) : slabs_(std::move(ordinary)) {}

  /// For one batch. Throws what the allocation throws.
  writable_bytes acquire(bool& page_locked);
  /// For the batches that have not begun yet. Slabs that are too small are not taken.
  void become(const slab_pool& page_locked);

 private:
  std::mutex mutex_;
  slab_pool slabs_;
  bool page_locked_ = false;
};

/// What a batch consists of: shared by those that fill it and those that read it.
struct batch_parts {
  batch_parts(const batch_layout& l, writable_bytes m, bool p, std::shared_ptr<batch_memory> of = nullptr);
  batch_layout layout;
  writable_bytes memory;
  bool pinned;
  std::shared_ptr<batch_memory> home;  // of the stage that makes such batches, where it can change
  std::vector<std::string> keys;
  std::vector<unsigned char> filled;  // bytes, so that rows may be marked by different threads
  sample_tags tags;
  std::vector<float> weights;
  epoch_mark mark;         // of all samples that joined
  std::size_t joined = 0;  // samples that have a row, written or not
  std::size_t size = 0;
};
}  // namespace detail

/// Samples laid out side by side in one piece of host memory: named tensors, and beside them a key and tags for each
/// sample. One owner, complete: nobody writes into it any more. Made by batch_builder or collate_batch().
///
/// The memory goes back to its pool when the batch is dropped; to_device() keeps the batch until the copy from it is
/// done.
class host_batch {
 public:
  host_batch() noexcept = default;
  explicit host_batch(std::shared_ptr<detail::batch_parts> parts) noexcept : parts_(std::move(parts)) {}
  host_batch(host_batch&&) noexcept = default;
  host_batch& operator=(host_batch&&) noexcept = default;

  explicit operator bool() const noexcept { return parts_ != nullptr; }
  /// How many samples there are; at most layout().samples().
  std::size_t size() const noexcept { return parts_ == nullptr ? 0 : parts_->size; }
  const batch_layout& layout() const noexcept { return parts_->layout; }
  /// Whether the memory is page-locked, so that a device copies from it directly.
  bool pinned() const noexcept { return parts_ != nullptr && parts_->pinned; }
  /// Copies the samples to page-locked memory, which must be large enough, and gives the memory so far back.
  void move_to(writable_bytes page_locked);
  /// Asks the stage that makes such batches to make the next ones in such memory. Called by a stage that had to copy
  /// this one.
  void prefer(const slab_pool& page_locked) {
    if (parts_->home != nullptr) parts_->home->become(page_locked);
  }
  /// The begin of the memory, and how much of it the samples use.
  void* data() const noexcept { return parts_->memory.data(); }
  std::size_t bytes() const { return parts_ == nullptr ? 0 : layout().bytes_for(size()); }

  /// The tensor of all samples: its outermost extent is size(). Throws configuration_error for one that only the device
  /// has.
  tensor_view field(std::size_t i) const;
  tensor_view field(std::string_view name) const { return field(layout().find(name)); }
  /// The keys of the samples, in order; empty strings where none was given.
  template <class Text = std::string>
  std::span<const Text> keys() const noexcept {
    return {parts_->keys.data(), parts_->size};
  }
  /// The tags of type T, one a sample in order; empty when no sample has one.
  template <class T>
  std::span<const T> tags() const {
    return parts_->tags.get<T>(parts_->size);
  }
  /// The samples' weights: 1, or 0 for padding rows, whose tensors are zeros.
  template <class Weight = float>
  std::span<const Weight> weights() const noexcept {
    return {parts_->weights.data(), parts_->size};
  }
  /// Where the training stands behind this batch: its epoch, and whether it is the epoch's last one. Not known for
  /// samples that do not come from epochs().
  epoch_mark mark() const noexcept { return parts_ == nullptr ? epoch_mark() : parts_->mark; }

 private:
  std::shared_ptr<detail::batch_parts> parts_;
};

/// For the bytes column of the stage table.
inline std::size_t byte_size(const host_batch& b) { return b.bytes(); }
inline std::size_t sample_count(const host_batch& b) noexcept { return b.size(); }
inline epoch_mark mark_of(const host_batch& b) noexcept { return b.mark(); }

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/impl/host_batch.ipp>
#endif
