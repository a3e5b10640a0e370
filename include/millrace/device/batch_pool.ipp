// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/device/batch.hpp>
#include <millrace/device/batch_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE void batch_row::clear() const {
  for (std::size_t i = 0; i < layout().fields().size(); ++i) {
    if (!layout().fields()[i].has_rows()) continue;
    const tensor_view place = field(i);
    if (place.bytes() != 0) std::memset(place.data(), 0, place.bytes());
  }
}

MILLRACE_INLINE void batch_row::fill_up() const {
  key(std::string());
  clear();
  weight(0);
}

MILLRACE_INLINE void batch_builder::clear_whole() {
  for (std::size_t i = 0; i < layout().fields().size(); ++i) {
    if (layout().fields()[i].has_rows() || !layout().fields()[i].on_host()) continue;
    const tensor_view place = layout().tensor(parts_->memory.data(), i, capacity());
    if (place.bytes() != 0) std::memset(place.data(), 0, place.bytes());
  }
}

MILLRACE_INLINE host_batch batch_builder::seal(std::size_t rows) && {
  detail::batch_parts& p = *parts_;
  std::size_t n = 0;
  for (std::size_t i = 0; i < p.filled.size(); ++i) {
    if (p.filled[i] == 0) {
      if (!p.mark.placed() || i >= rows || i >= p.joined) continue;
      row(i).fill_up();
    }
    if (n != i) move_row(i, n);
    ++n;
  }
  p.size = n;
  return host_batch(std::move(parts_));
}

MILLRACE_INLINE void batch_builder::move_row(std::size_t from, std::size_t to) {
  detail::batch_parts& p = *parts_;
  for (std::size_t f = 0; f < p.layout.fields().size(); ++f) {
    if (!p.layout.fields()[f].has_rows()) detail::misused("a ragged batch was sealed with a row that is not done");
    const std::size_t size = p.layout.fields()[f].row_bytes();
    char* const begin = p.memory.data() + p.layout.offset(f);
    if (size != 0) std::memcpy(begin + to * size, begin + from * size, size);
  }
  p.keys[to] = std::move(p.keys[from]);
  p.tags.move_row(from, to);
  p.weights[to] = p.weights[from];
}

MILLRACE_INLINE batch_builder batch_pool::start() {
  return batch_builder(std::make_shared<detail::batch_parts>(layout_, slabs_.acquire(), pinned_));
}

}  // namespace millrace
