// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/compiler.hpp>
#include <millrace/loop/detail/watch_table.hpp>

namespace millrace::detail {

MILLRACE_INLINE std::uint32_t watch_table::attach(fd_watch& w) {
  if (free_ == no_slot) {
    MILLRACE_ASSERT(slots_.size() < max_slots, "too many watches");
    slots_.emplace_back();
    free_ = static_cast<std::uint32_t>(slots_.size() - 1);
  }
  const std::uint32_t index = free_;
  free_ = slots_[index].next_free;
  slots_[index].owner = &w;
  ++live_;
  w.slot_ = index;
  return index;
}

MILLRACE_INLINE void watch_table::detach(fd_watch& w) noexcept {
  slot& s = slots_[w.slot_];
  const std::uint32_t generation = s.generation + 1;
  const bool listed = s.listed;
  s = slot();
  s.generation = generation;
  s.listed = listed;
  s.next_free = free_;
  free_ = w.slot_;
  --live_;
  w.slot_ = fd_watch::none;
}

MILLRACE_INLINE watch_table::slot* watch_table::find(std::uint64_t tag_of_completion) noexcept {
  const auto index = static_cast<std::uint32_t>(tag_of_completion);
  if (index >= slots_.size()) return nullptr;
  slot& s = slots_[index];
  return s.owner != nullptr && s.generation == static_cast<std::uint32_t>(tag_of_completion >> 32) ? &s : nullptr;
}

}  // namespace millrace::detail
