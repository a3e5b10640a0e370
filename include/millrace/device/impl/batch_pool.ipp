// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <millrace/base/compiler.hpp>
#include <millrace/device/batch_pool.hpp>

namespace millrace {

MILLRACE_INLINE batch_builder batch_pool::start() {
  return batch_builder(std::make_shared<detail::batch_parts>(layout_, slabs_.acquire(), pinned_));
}

}  // namespace millrace
