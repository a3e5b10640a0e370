// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/stage_record.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE stage_record::times stage_record::since_mark() const noexcept {
  times t = now();
  t.busy -= marked_busy_.load(std::memory_order_relaxed);
  t.pool -= marked_pool_.load(std::memory_order_relaxed);
  t.starved -= marked_starved_.load(std::memory_order_relaxed);
  t.asked -= marked_asked_.load(std::memory_order_relaxed);
  t.blocked -= marked_blocked_.load(std::memory_order_relaxed);
  t.items -= marked_items_.load(std::memory_order_relaxed);
  return t;
}

MILLRACE_INLINE void stage_record::mark() noexcept {
  const times t = now();
  marked_busy_ = t.busy;
  marked_pool_ = t.pool;
  marked_starved_ = t.starved;
  marked_asked_ = t.asked;
  marked_blocked_ = t.blocked;
  marked_items_ = t.items;
}

MILLRACE_INLINE stage_record::times stage_record::now() const noexcept {
  times t;
  t.busy = busy_ns.load(std::memory_order_relaxed);
  t.pool = pool_ns.load(std::memory_order_relaxed);
  t.starved = starved_ns.load(std::memory_order_relaxed);
  t.asked = asked_ns.load(std::memory_order_relaxed);
  t.blocked = blocked_ns.load(std::memory_order_relaxed);
  t.items = items.load(std::memory_order_relaxed);
  return t;
}

MILLRACE_INLINE stage_record* stage_recorder::record_for(const char* name, const char* advice,
                                                         const stage_record* parent, std::int64_t made) {
  std::lock_guard lock(mutex_);
  if (made > began_) return find(name, advice, parent);
  int alike = 0;
  for (const link* l = first_.get(); l != nullptr; l = l->next.get()) {
    if (l->own && l->called(name, parent)) ++alike;
  }
  return alike < most_alike ? add(name, advice, parent, true) : find(name, advice, parent);
}

MILLRACE_INLINE stage_record* stage_recorder::find(const char* name, const char* advice, const stage_record* parent) {
  for (link* l = first_.get(); l != nullptr; l = l->next.get()) {
    if (!l->own && l->called(name, parent)) return &l->record;
  }
  return add(name, advice, parent, false);
}

MILLRACE_INLINE stage_record* stage_recorder::add(const char* name, const char* advice, const stage_record* parent,
                                                  bool own) {
  std::unique_ptr<link>* last = &first_;
  while (*last != nullptr) last = &(*last)->next;
  *last = std::make_unique<link>(name, advice, parent, this, own);
  return &(*last)->record;
}

}  // namespace millrace
