// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>

#include <millrace/base/compiler.hpp>
#include <millrace/http/detail/copy_past_caches.hpp>

namespace millrace::http::detail {

MILLRACE_INLINE void store_past_caches(sixteen* to, const sixteen& what) noexcept {
#if defined(__clang__)
  __builtin_nontemporal_store(what, to);
#else
  __builtin_ia32_movntdq(to, what);
#endif
}

MILLRACE_INLINE void copy_past_caches(void* to, const void* from, std::size_t size) noexcept {
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
