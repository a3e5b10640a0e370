// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/device/batch.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE std::size_t batch_field::row_bytes() const {
  std::size_t n = 0;
  if (__builtin_mul_overflow(dims_.elements(), size_of(type_), &n)) throw configuration_error("a shape is too large");
  return n;
}

MILLRACE_INLINE batch_layout::batch_layout(std::size_t samples, std::vector<batch_field> fields) {
  auto made = std::make_shared<state>();
  made->samples = samples;
  made->fields = std::move(fields);
  for (std::size_t i = 0; i < made->fields.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (made->fields[i].name() == made->fields[j].name()) {
        throw configuration_error("a batch has two fields named " + made->fields[i].name());
      }
    }
    made->offsets.push_back(0);
  }
  const auto place = [&](std::size_t i) {
    made->offsets[i] = made->device_bytes;
    std::size_t n = 0;
    const std::size_t rows = made->fields[i].has_rows() ? samples : 1;
    if (__builtin_mul_overflow(made->fields[i].row_bytes(), rows, &n) || n > largest - made->device_bytes) {
      throw configuration_error("a batch of " + std::to_string(samples) + " samples of " + made->fields[i].text() +
                                " is too large");
    }
    made->device_bytes += (n + alignment - 1) / alignment * alignment;
  };
  for (std::size_t i = 0; i < made->fields.size(); ++i) {
    if (!made->fields[i].on_host()) continue;
    place(i);
    made->last = i;
  }
  made->bytes = made->device_bytes;
  for (std::size_t i = 0; i < made->fields.size(); ++i) {
    if (!made->fields[i].on_host()) place(i);
  }
  state_ = std::move(made);
}

MILLRACE_INLINE std::size_t batch_layout::find(std::string_view name) const {
  for (std::size_t i = 0; i < fields().size(); ++i) {
    if (fields()[i].name() == name) return i;
  }
  std::string known;
  for (const batch_field& f : fields()) known += (known.empty() ? "" : ", ") + f.name();
  throw configuration_error("a batch has no field named " + std::string(name) + "; it has " +
                            (known.empty() ? "none" : known));
}

namespace detail {

MILLRACE_INLINE writable_bytes batch_memory::acquire(bool& page_locked) {
  std::unique_lock lock(mutex_);
  slab_pool slabs = slabs_;
  page_locked = page_locked_;
  lock.unlock();  // the allocation is slow
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

MILLRACE_INLINE device_batch& device_batch::operator=(device_batch&& other) noexcept {
  if (this != &other) {
    release();
    slot_ = std::move(other.slot_);
  }
  return *this;
}

MILLRACE_INLINE void device_batch::release(stream_ref stream) {
  slot().mark(stream);
  release();
}

MILLRACE_INLINE void device_batch::release() noexcept {
  if (slot_ == nullptr) return;
  if (!slot_->process.here()) return detail::leak(slot_);  // a child of fork() cannot use the device
  detail::device_slot& last = *slot_;
  last.release(std::move(slot_));
  slot_.reset();
}

MILLRACE_INLINE detail::device_slot& device_batch::slot() const {
  if (slot_ == nullptr) detail::misused("a device_batch was used after its release, or is empty");
  return *slot_;
}

}  // namespace millrace
