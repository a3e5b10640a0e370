// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/device/host_batch.hpp>

namespace millrace {

namespace detail {

MILLRACE_INLINE writable_bytes batch_memory::acquire(bool& page_locked) {
  std::unique_lock lock(mutex_);
  slab_pool slabs = slabs_;
  page_locked = page_locked_;
  lock.unlock();  // the allocation takes its time
  return slabs.acquire();
}

MILLRACE_INLINE void batch_memory::become(const slab_pool& page_locked) {
  const std::lock_guard lock(mutex_);
  if (page_locked_ || page_locked.slab_bytes() < slabs_.slab_bytes()) return;
  slabs_ = page_locked;
  page_locked_ = true;
}

MILLRACE_INLINE batch_parts::batch_parts(const batch_layout& l, writable_bytes m, bool p,
                                         std::shared_ptr<batch_memory> of)
    : layout(l),
      memory(std::move(m)),
      pinned(p),
      home(std::move(of)),
      keys(l.samples()),
      filled(l.samples()),
      tags(l.samples()),
      weights(l.samples(), 1.0F) {}

}  // namespace detail

MILLRACE_INLINE tensor_view host_batch::field(std::size_t i) const {
  const batch_field& f = layout().fields()[i];
  if (!f.on_host()) throw configuration_error(f.text() + " of a batch is on the device alone");
  return layout().tensor(data(), i, size());
}

MILLRACE_INLINE void host_batch::move_to(writable_bytes page_locked) {
  if (bytes() != 0) std::memcpy(page_locked.data(), data(), bytes());
  parts_->memory = std::move(page_locked);
  parts_->pinned = true;
}

}  // namespace millrace
