// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/device/slot_store.hpp>
#include <millrace/device/to_device.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The slots between pipelines of a loop without a runtime. They live as long as the loop.
class loop_slots final : public executor_service {
 public:
  slot_store store;
};

MILLRACE_INLINE slot_store& slot_store_of(executor& ex) {
  slot_store* const shared = ex.runtime().device_slots();
  return shared == nullptr ? ex.service<loop_slots>().store : *shared;
}

MILLRACE_INLINE void follow_device(const coroutine_context& here, slot_device& on) {
  if (!here.runtime().follows_devices()) return;
  const std::string address = on.pci_address();
  if (!address.empty()) here.runtime().follow_device(address);
}

// Batches that are laid out already, on any device.
MILLRACE_TEMPLATE(async_generator<device_batch> to_device_stream<host_batch, collate_found>(
    async_generator<host_batch>, std::shared_ptr<slot_device>, to_device_options, cpu_pool::share, collate_found));

}  // namespace millrace::detail
