// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace {

MILLRACE_INLINE slab_pool runtime_parts::slabs(std::size_t bytes) { return slab_pool(bytes); }

MILLRACE_INLINE void runtime_parts::log(const char* line) noexcept { std::fprintf(stderr, "%s\n", line); }

}  // namespace millrace
