// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE slab_pool runtime_parts::slabs(std::size_t bytes) { return slab_pool(bytes); }

MILLRACE_INLINE void runtime_parts::log(const log_record& record) noexcept { detail::log_to_process(record); }

}  // namespace millrace
