// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <millrace/coro/item_bytes.hpp>
#include <millrace/data/epoch_mark.hpp>

namespace millrace {

/// Items that go into one batch, and where the training stands behind it. That is not where the last of them stands:
/// their stage has changed the order. What bucket_by_length() yields; to_device() lays it out as it does vectors.
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
  friend std::size_t sample_count(const marked_batch& b) noexcept { return b.items.size(); }
  friend std::size_t byte_size(const marked_batch& b) requires detail::counts_bytes_v<std::vector<T>> {
    return detail::item_bytes(b.items);
  }
};

}  // namespace millrace
