// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zstd_errors.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/detail/stream_decoder.hpp>

namespace millrace::tar::detail {

/// zlib counts in 32 bits.
MILLRACE_INLINE ::uInt at_once(std::size_t n) noexcept {
  return static_cast<::uInt>(std::min<std::size_t>(n, std::numeric_limits<::uInt>::max()));
}

MILLRACE_INLINE gzip_decoder::gzip_decoder() {
  constexpr int window = 15;
  constexpr int with_gzip_header = 16;
  if (::inflateInit2(&state_, window + with_gzip_header) != Z_OK) throw std::bad_alloc();
}

MILLRACE_INLINE const char* gzip_decoder::step(std::string_view& in, std::span<char>& out) {
  if (complete_) ::inflateReset(&state_);
  state_.next_in = const_cast<::Bytef*>(reinterpret_cast<const ::Bytef*>(in.data()));  // zlib only reads it
  const ::uInt given = state_.avail_in = at_once(in.size());
  state_.next_out = reinterpret_cast<::Bytef*>(out.data());
  const ::uInt room = state_.avail_out = at_once(out.size());
  const int result = ::inflate(&state_, Z_NO_FLUSH);
  in.remove_prefix(given - state_.avail_in);
  out = out.subspan(room - state_.avail_out);
  complete_ = result == Z_STREAM_END;
  if (result == Z_MEM_ERROR) throw std::bad_alloc();
  if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) return nullptr;
  return state_.msg != nullptr ? state_.msg : "it is damaged";
}

MILLRACE_INLINE zstd_decoder::zstd_decoder() : state_(::ZSTD_createDCtx()) {
  if (state_ == nullptr) throw std::bad_alloc();
}

MILLRACE_INLINE const char* zstd_decoder::step(std::string_view& in, std::span<char>& out) {
  ::ZSTD_inBuffer from = {in.data(), in.size(), 0};
  ::ZSTD_outBuffer to = {out.data(), out.size(), 0};
  const std::size_t result = ::ZSTD_decompressStream(state_.get(), &to, &from);
  in.remove_prefix(from.pos);
  out = out.subspan(to.pos);
  complete_ = result == 0;
  if (::ZSTD_isError(result) == 0) return nullptr;
  if (::ZSTD_getErrorCode(result) == ::ZSTD_error_memory_allocation) throw std::bad_alloc();
  return ::ZSTD_getErrorName(result);
}

MILLRACE_INLINE std::unique_ptr<stream_decoder> make_stream_decoder(format kind) {
  if (kind == format::gzip) return std::make_unique<gzip_decoder>();
  if (kind == format::zstd) return std::make_unique<zstd_decoder>();
  return nullptr;
}

}  // namespace millrace::tar::detail
