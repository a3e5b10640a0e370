// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include <zlib.h>
#include <zstd.h>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::tar::detail {

/// Decompresses one format: members or frames, one behind the other, each with its checksums verified. Not to be used
/// after an error.
class stream_decoder {
 public:
  stream_decoder() = default;
  stream_decoder(const stream_decoder&) = delete;
  stream_decoder& operator=(const stream_decoder&) = delete;
  virtual ~stream_decoder() = default;

  /// Whether a member or frame may begin so.
  virtual bool begins(char first) const noexcept = 0;
  /// Decompresses some of `in` into `out`, and takes from the front of both what was used. Something must be in `in`,
  /// or `out` have been filled by the step before. Returns what is wrong with the data, or null. Throws std::bad_alloc.
  virtual const char* step(std::string_view& in, std::span<char>& out) = 0;
  /// Whether the data may end here: behind a whole member or frame. All of it has come out then.
  bool complete() const noexcept { return complete_; }

 protected:
  bool complete_ = false;
};

/// By zlib.
class gzip_decoder final : public stream_decoder {
 public:
  gzip_decoder();
  ~gzip_decoder() override { ::inflateEnd(&state_); }
  bool begins(char first) const noexcept override { return first == '\x1f'; }
  MILLRACE_INLINE const char* step(std::string_view& in, std::span<char>& out) override;

 private:
  ::z_stream state_ = {};
};

/// By libzstd. Skippable frames are read and give nothing.
class zstd_decoder final : public stream_decoder {
 public:
  zstd_decoder();
  bool begins(char first) const noexcept override { return first == '\x28' || (first >= '\x50' && first <= '\x5f'); }
  MILLRACE_INLINE const char* step(std::string_view& in, std::span<char>& out) override;

 private:
  struct freed {
    void operator()(::ZSTD_DCtx* state) const noexcept { ::ZSTD_freeDCtx(state); }
  };
  std::unique_ptr<::ZSTD_DCtx, freed> state_;
};

/// Null for a format that libarchive decompresses: the others let through what is cut or damaged (it verifies no
/// checksum of gzip, and a zstd frame that is skipped may end anywhere).
std::unique_ptr<stream_decoder> make_stream_decoder(format kind);

}  // namespace millrace::tar::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/detail/impl/stream_decoder.ipp>
#endif
