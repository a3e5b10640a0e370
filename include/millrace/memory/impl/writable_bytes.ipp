// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/memory/writable_bytes.hpp>

namespace millrace {

MILLRACE_INLINE writable_bytes& writable_bytes::operator=(writable_bytes&& other) noexcept {
  writable_bytes taken(std::move(other));  // not a plain swap: what was held here goes now, not when `other` does
  std::swap(owner_, taken.owner_);
  return *this;
}

MILLRACE_INLINE bytes writable_bytes::share(std::size_t offset, std::size_t length) const {
  if (offset > capacity() || length > capacity() - offset) detail::misused("writable_bytes::share outside the buffer");
  if (length == 0) return bytes();
  owner_->add_ref();
  return bytes(owner_, owner_->data + offset, length);
}

}  // namespace millrace
