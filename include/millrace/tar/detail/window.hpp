// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/tar/entry.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::inline MILLRACE_ABI::tar::detail {

/// A number of `bytes` bytes of `text` from `at` on, the lowest first.
std::uint64_t number_at(std::string_view text, std::size_t at, std::size_t bytes) noexcept;

/// Most bytes of a zstd frame's header (RFC 8878, 3.1.1.1) with its magic number.
inline constexpr std::size_t most_zstd_header = 18;

/// The memory that unpacking a zstd frame needs, which begins with `frame`: its window, or, of a frame in one segment,
/// its content. 0 for a frame that is skipped; nothing if more of the header is needed.
std::optional<std::uint64_t> zstd_window(std::string_view frame) noexcept;

/// The dictionary of the xz block whose header `block` begins with (the xz file format, 3.1). 0 if that is cut or
/// damaged.
std::uint64_t xz_dictionary(std::string_view block) noexcept;

/// The memory that unpacking an object needs that begins with `head`: the window of its first zstd frame, the
/// dictionary of its first xz block or of lzma. 0 for other formats, and if `head` is too short or too damaged to
/// tell.
std::uint64_t window_of(format kind, std::string_view head) noexcept;

/// Finds the header of every block in xz data by their framing: nothing is decompressed. Data that it cannot follow is
/// damaged; the decoder refuses it.
class xz_blocks {
 public:
  /// The next bytes. Returns the largest dictionary of the blocks whose headers end in them; 0: no header does.
  std::uint64_t feed(std::string_view piece);

 private:
  enum class at : unsigned char { stream, block, block_header, chunk, chunk_sizes, records, record, lost };

  void step(std::uint64_t& largest);
  /// Next are `skip` bytes that say nothing, then the first byte of `what`.
  void go_on(at what, std::uint64_t skip) noexcept {
    text_.clear();
    at_ = what;
    need_ = 1;
    skip_ = skip;
  }

  at at_ = at::stream;
  std::size_t need_ = 4;     // bytes of text_ for the next step
  std::uint64_t skip_ = 0;   // bytes before them
  std::string text_;
  std::size_t check_ = 0;    // bytes after a block
  std::uint64_t data_ = 0;   // bytes of the block's data, or of the index, so far
  std::uint64_t number_ = 0;  // of the index
  unsigned shift_ = 0;
  std::uint64_t numbers_ = 0;  // of the index that are to come
};

/// The windows of objects that are unpacked side by side, bounded together. Any thread.
class window_budget {
 public:
  /// `most`: bytes; 0: no bound.
  explicit window_budget(std::uint64_t most) noexcept : most_(most) {}
  std::uint64_t most() const noexcept { return most_; }
  /// Bytes that are taken now.
  std::uint64_t taken() const noexcept { return taken_.load(std::memory_order_relaxed); }
  /// Takes `n` bytes; false, and nothing is taken, if fewer are left.
  bool take(std::uint64_t n) noexcept;
  void give_back(std::uint64_t n) noexcept { taken_.fetch_sub(n, std::memory_order_relaxed); }

 private:
  const std::uint64_t most_;
  std::atomic<std::uint64_t> taken_{0};
};

/// The window of one object, which may grow from frame to frame and from block to block.
class window_claim {
 public:
  /// `shared`: with the objects beside it; null: it is alone.
  window_claim(format kind, const archive_options& options, std::shared_ptr<window_budget> shared)
      : kind_(kind), options_(options), shared_(std::move(shared)) {}
  window_claim(const window_claim&) = delete;
  window_claim& operator=(const window_claim&) = delete;
  ~window_claim() {
    if (shared_ != nullptr) shared_->give_back(taken_);
  }

  /// Takes the window if there is room for it now; returns false if there is not. True for one that need() refuses.
  bool take(std::uint64_t window);
  /// Takes the room for that window. Returns why there is none: max_window_bytes, the run's budget, the windows of the
  /// objects beside it; empty if there is.
  std::string need(std::uint64_t window);

 private:
  std::string refusal(std::uint64_t window) const;

  const format kind_;
  const archive_options options_;
  const std::shared_ptr<window_budget> shared_;
  std::uint64_t taken_ = 0;
};

}  // namespace millrace::tar::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/detail/window.ipp>
#endif
