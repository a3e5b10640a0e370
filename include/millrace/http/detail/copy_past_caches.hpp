// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::http::detail {

#if defined(__SSE2__)
/// Sixteen bytes, and their store past the caches. <emmintrin.h> takes long to compile.
using sixteen = long long __attribute__((vector_size(16)));

#endif

/// memcpy() into memory that is not in the caches and is not read soon, a slab that fills up part by part: on x86 with
/// non-temporal stores (Intel SDM volume 1, 10.4.6.2), which neither read the memory first nor drive out what the
/// caches hold. Other threads that are told of the data afterwards see them, as after memcpy().
void copy_past_caches(void* to, const void* from, std::size_t size) noexcept;

}  // namespace millrace::http::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/detail/impl/copy_past_caches.ipp>
#endif
