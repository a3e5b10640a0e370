// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace millrace::http::detail {

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
      const auto* source = reinterpret_cast<const __m128i*>(in);
      auto* const target = reinterpret_cast<__m128i*>(out);
      const __m128i a = _mm_loadu_si128(source);
      const __m128i b = _mm_loadu_si128(source + 1);
      const __m128i c = _mm_loadu_si128(source + 2);
      const __m128i d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    _mm_sfence();  // such stores are not ordered with those that hand the data on
  }
#endif
  std::memcpy(out, in, size);
}

}  // namespace millrace::http::detail
