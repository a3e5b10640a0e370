// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/device/device_batch.hpp>

namespace millrace {

MILLRACE_INLINE device_batch& device_batch::operator=(device_batch&& other) noexcept {
  if (this != &other) {
    release();
    ring_ = std::move(other.ring_);
    slot_ = other.slot_;
  }
  return *this;
}

MILLRACE_INLINE void device_batch::release(stream_ref stream) {
  ring().mark(slot_, stream);
  release();
}

MILLRACE_INLINE void device_batch::release() noexcept {
  if (ring_ == nullptr) return;
  ring_->release(slot_, ring_);
  ring_.reset();
}

MILLRACE_INLINE detail::slot_ring_base& device_batch::ring() const {
  if (ring_ == nullptr) detail::misused("a device_batch was used after its release, or is empty");
  return *ring_;
}

}  // namespace millrace
