// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/device/collate.hpp>

namespace millrace::detail {

/// Turns what arrives into batches in memory that the device reads directly.
template <device D, class Collate>
class batch_stager {
 public:
  batch_stager(const D& on, std::size_t samples, Collate how) : device_(on), samples_(samples), how_(std::move(how)) {}

  host_batch operator()(host_batch batch) {
    if (batch.pinned() || batch.bytes() == 0 || copies_any_memory()) return batch;
    if (!slabs_ || slabs_->slab_bytes() < batch.bytes()) {
      slabs_.emplace(batch.layout().bytes(), std::make_shared<pinned_slab_source<D>>(device_));
    }
    batch.move_to(slabs_->acquire());
    return batch;
  }
  template <class T>
  host_batch operator()(const std::vector<T>& items) {
    if (!pool_) {
      if (items.empty()) return batch_pool(batch_layout()).start().seal();
      const std::size_t most = samples_ == 0 ? items.size() : samples_;
      pool_.emplace(layout_of(items.front(), most, how_), device_);
    }
    return collate_batch(items, *pool_, how_);
  }

 private:
  static constexpr bool copies_any_memory() noexcept {
    if constexpr (requires { D::copies_any_memory; }) {
      return D::copies_any_memory;
    } else {
      return false;
    }
  }

  D device_;
  std::size_t samples_;
  Collate how_;
  std::optional<slab_pool> slabs_;
  std::optional<batch_pool> pool_;
};

/// One item's way through a stager, for a pool: owns all it touches, since it may outlive the stage.
template <class Stager, class Item>
class staging_job {
 public:
  staging_job(std::shared_ptr<Stager> stager, Item item) : stager_(std::move(stager)), item_(std::move(item)) {}
  host_batch operator()() { return (*stager_)(std::move(item_)); }

 private:
  std::shared_ptr<Stager> stager_;
  Item item_;
};

}  // namespace millrace::detail
