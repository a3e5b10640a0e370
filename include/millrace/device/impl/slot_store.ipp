// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/device/slot_store.hpp>

namespace millrace {

MILLRACE_INLINE void slot_store::free() noexcept {
  std::vector<std::shared_ptr<detail::kept_on_device>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const held& each : all_) all.push_back(each.kept);
  }
  for (const std::shared_ptr<detail::kept_on_device>& each : all) each->free();
}

}  // namespace millrace
