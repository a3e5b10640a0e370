// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/device/collate.hpp>
#include <millrace/device/detail/kept_slots.hpp>
#include <millrace/flow/marked_batch.hpp>

namespace millrace::detail {

/// Turns items and batches into batches in memory that the device reads directly.
template <device D, class Collate>
class batch_stager {
 public:
  batch_stager(std::shared_ptr<kept_slots<D>> memory, std::size_t samples, Collate how)
      : memory_(std::move(memory)), samples_(samples), how_(std::move(how)) {}

  /// Whether it has to be copied or laid out, which is work for a pool.
  static bool computes(const host_batch& batch) noexcept {
    return !batch.pinned() && batch.bytes() != 0 && !copies_any_memory<D>;
  }
  template <class T>
  static bool computes(const T&) noexcept {
    return true;
  }

  host_batch operator()(host_batch batch) {
    if (!computes(batch)) return batch;
    if (!slabs_ || slabs_->slab_bytes() < batch.bytes()) slabs_.emplace(memory_->pinned(batch.layout().bytes()));
    batch.move_to(slabs_->acquire());
    batch.prefer(*slabs_);
    return batch;
  }
  template <class T>
  host_batch operator()(const std::vector<T>& items, const epoch_mark* of_all = nullptr) {
    learn_fields(items, how_, fields_);
    if (!fields_.known || fields_.vary()) return laid_out_alone(items, of_all);
    if (!pool_ || (samples_ == 0 && pool_->layout().samples() < items.size())) {
      const batch_layout layout = fields_.layout(samples_ == 0 ? items.size() : samples_);
      pool_.emplace(layout, memory_->pinned(batch_pool::slab_size(layout)), true);
    }
    check_samples(items.size(), pool_->layout());
    return write_rows(items, how_, fields_, pool_->start(), of_all);
  }
  template <class T>
  host_batch operator()(const marked_batch<T>& batch) {
    return (*this)(batch.items, &batch.mark);
  }

 private:
  /// A batch whose layout is its own.
  template <class T>
  host_batch laid_out_alone(const std::vector<T>& items, const epoch_mark* of_all) {
    const batch_layout layout = layout_of_batch(items, how_, fields_);
    const std::size_t size = batch_pool::slab_size(layout);
    if (!slabs_) {
      slabs_.emplace(memory_->pinned(size, true));
    } else if (const std::size_t now = slabs_->slab_bytes(); now < size) {
      slabs_.emplace(memory_->pinned(size < now + now / 2 ? now + now / 2 : size, true));
    }
    return write_rows(items, how_, fields_, batch_pool(layout, *slabs_, true).start(), of_all);
  }

  const std::shared_ptr<kept_slots<D>> memory_;
  std::size_t samples_;
  Collate how_;
  collated_fields fields_;
  std::optional<slab_pool> slabs_;
  std::optional<batch_pool> pool_;
};

/// The staging of one item, for a pool. It owns all that it touches, since it may outlive the stage.
template <class Stager, class Item>
class staging_job {
 public:
  staging_job(std::shared_ptr<Stager> stager, Item item) : stager_(std::move(stager)), item_(std::move(item)) {}
  bool computes() const noexcept { return stager_->computes(item_); }
  host_batch operator()() { return (*stager_)(std::move(item_)); }

 private:
  std::shared_ptr<Stager> stager_;
  Item item_;
};

}  // namespace millrace::detail
