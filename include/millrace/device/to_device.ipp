// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <millrace/base/compiler.hpp>
#include <millrace/device/to_device.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_TEMPLATE(async_generator<device_batch> to_device_stream<host_batch, collate_found>(
    async_generator<host_batch>, std::shared_ptr<slot_device>, to_device_options, cpu_pool::share, collate_found));

}  // namespace millrace::detail
