// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace::http::detail {

#if defined(__SSE2__)
/// Sixteen bytes, and their store past the caches. <emmintrin.h> takes long to compile.
using sixteen = long long __attribute__((vector_size(16)));

inline void store_past_caches(sixteen* to, const sixteen& what) noexcept {
#if defined(__clang__)
  __builtin_nontemporal_store(what, to);
#else
  __builtin_ia32_movntdq(to, what);
#endif
}
#endif

/// memcpy() into memory that is not in the caches and is not read soon, a slab that fills up part by part: on x86 with
/// non-temporal stores (Intel SDM volume 1, 10.4.6.2), which neither read the memory first nor drive out what the
/// caches hold. Other threads that are told of the data afterwards see them, as after memcpy().
inline void copy_past_caches(void* to, const void* from, std::size_t size) noexcept {
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
#if defined(__SSE2__)
  constexpr std::size_t line = 64;
  const std::size_t before = (line - reinterpret_cast<std::uintptr_t>(out) % line) % line;
  if (size >= before + line) {
    std::memcpy(out, in, before);
    out += before;
    in += before;
    size -= before;
    for (; size >= line; size -= line, out += line, in += line) {
      sixteen four[4];
      std::memcpy(four, in, line);
      auto* const target = reinterpret_cast<sixteen*>(out);
      for (std::size_t i = 0; i < 4; ++i) store_past_caches(target + i, four[i]);
    }
    __builtin_ia32_sfence();  // such stores are not ordered with those that hand the data on
  }
#endif
  std::memcpy(out, in, size);
}

}  // namespace millrace::http::detail
