// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/item_bytes.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/flow/detail/compactor.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/io/cpu_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

class batch_row;

/// The items of one batch, and the position of the training after it. That is not the position of the last item: their
/// stage has changed the order. bucket_by_length() yields these; to_device() lays them out as it does vectors.
template <class T>
class marked_batch {
 public:
  marked_batch() = default;
  marked_batch(std::vector<T> its_items, const epoch_mark& its_mark) : items(std::move(its_items)), mark(its_mark) {}

  std::vector<T> items;
  epoch_mark mark;

  std::size_t size() const noexcept { return items.size(); }
  auto begin() noexcept { return items.begin(); }
  auto begin() const noexcept { return items.begin(); }
  auto end() noexcept { return items.end(); }
  auto end() const noexcept { return items.end(); }

  friend epoch_mark mark_of(const marked_batch& b) noexcept { return b.mark; }
  friend std::size_t samples_in_batch(const marked_batch& b) noexcept { return b.items.size(); }
  friend std::size_t byte_size(const marked_batch& b) requires detail::counts_bytes_v<std::vector<T>> {
    return detail::item_bytes(b.items);
  }
};

/// The treatment of items left at the end that do not fill a batch.
enum class last_batch { keep, drop };

/// See batch().
struct batch_options {
  last_batch last = last_batch::keep;  ///< drop: every batch has the full size
  /// The most bytes that the items of one batch take, for run_options::budget. Declared, not measured. Not needed for
  /// items of a fixed size.
  std::size_t bytes = 0;
  /// The pool that writes items into their batch (see batch()); must outlive the pipeline. None: the runtime's.
  pool_ref on = nullptr;
  failure_policy failures = {};  ///< the treatment of items that cannot be written into their batch
};

namespace detail {

/// Items that are meant to be a row_item, of device/batch_rows.hpp.
template <class T>
concept shows_rows = requires(T& item, const batch_row& row) {
  item.layout(std::size_t(1));
  item.write_to(row);
};

template <class T>
async_generator<std::vector<T>> batch_items(async_generator<T> source, std::size_t size, last_batch last) {
  compactor<T> kept;
  T* item = nullptr;  // the one that began another epoch: the source keeps it until its next item is requested
  for (bool ended = false; !ended;) {
    std::vector<T> items;
    items.reserve(size);
    epoch_mark mark;
    while (items.size() < size && !mark.last) {
      if (!has_mark_v<T> || item == nullptr) item = co_await source.next_in_place();
      if (item == nullptr) {
        ended = true;
        break;
      }
      if constexpr (has_mark_v<T>) {
        const epoch_mark its = detail::mark_of_item(*item);
        if (!items.empty() && its.known && mark.known && its.epoch != mark.epoch) break;
        mark = its;
      }
      kept(*item);
      items.push_back(std::move(*item));
      if constexpr (has_mark_v<T>) item = nullptr;
    }
    if (items.size() == size || (last == last_batch::keep && !items.empty())) co_yield give(items);
  }
}

}  // namespace detail

/// Returned by batch().
class batch_stage : public detail::library_stage {
 public:
  /// `size` 0: that which the stream declares.
  batch_stage(std::size_t size, batch_options options) noexcept : size_(size), options_(options) {}
  /// See stream::batches_of().
  void make_batches_of(std::size_t items) noexcept {
    if (size_ == 0) size_ = items;
  }

  template <class T>
  auto operator()(async_generator<T> source) && {
    if (size_ == 0) {
      detail::misconfigured("batch: no size is given: write batch(256), or say it in epochs_options::batch");
    }
    if constexpr (requires { batch_rows(std::move(source), size_, options_); }) {
      return batch_rows(std::move(source), size_, options_).declares(place_effect::batches, size_);
    } else {
      static_assert(!detail::shows_rows<T>,
                    "batch: items with layout() and write_to() are rows of a batch: include "
                    "<millrace/device/batch_rows.hpp>, and let both be members of a const item");
      return vectors(std::move(source));
    }
  }

 private:
  template <class T>
  stream<std::vector<T>> vectors(async_generator<T> source) {
    if (options_.on != nullptr || options_.failures.then != on_failure::rethrow) {
      detail::misconfigured("batch: .on and .failures are for items that are written into their batch");
    }
    return stream<std::vector<T>>(detail::batch_items<T>(std::move(source), size_, options_.last))
        .named("batch")
        .declares(place_effect::batches, size_)
        .bounded(size_, options_.bytes != 0 ? options_.bytes : fixed_bytes<T>());
  }

  /// Bytes of a full batch, if the type determines them; else 0.
  template <class T>
  std::size_t fixed_bytes() const noexcept {
    if constexpr (detail::counts_bytes_v<T> || !std::is_trivially_copyable_v<T>) {
      return 0;
    } else {
      return detail::multiplied(size_, sizeof(T));
    }
  }

  std::size_t size_;
  batch_options options_;
};

/// A stage that yields vectors of `size` items: `samples | batch(256, {.last = last_batch::drop})`.
///
/// A batch never holds items of two epochs, if they have marks (mark_of()): the last one of an epoch may be smaller.
///
/// Items that can write themselves into a row (those of decode_images(); see row_item, in device/batch_rows.hpp, which
/// is to be included) are not collected but written, several at once on a pool, and the stage yields a host_batch.
///
/// Allocates once per batch. Items are compacted as buffer() does. An error upstream ends the stream and drops the
/// items of the unfinished batch. Throws configuration_error for a size of 0.
inline batch_stage batch(std::size_t size, batch_options options = {}) {
  if (size == 0) detail::misconfigured("batch: the size of a batch must not be 0");
  return batch_stage(size, options);
}
/// Makes batches of as many items as epochs_options::batch, or equal_batches, says: `mill::epochs(train, o) | decode |
/// batch()`. Throws configuration_error if no stage before it says a size (stream::batches_of()).
inline batch_stage batch(batch_options options = {}) { return batch_stage(0, options); }

}  // namespace millrace
