// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/detail/gzip_check.hpp>

namespace millrace::tar::detail {

MILLRACE_INLINE void gzip_check::input(std::string_view piece) noexcept {
  if (!further_member_ && !piece.empty()) {
    char joint[2 * overlap];  // headers that straddle pieces
    std::memcpy(joint, edge_, edge_size_);
    const std::size_t first = std::min(piece.size(), overlap);
    std::memcpy(joint + edge_size_, piece.data(), first);
    search(std::string_view(static_cast<const char*>(joint), edge_size_ + first), fed_ - edge_size_);
    search(piece, fed_);
    keep_edge(piece);
  }
  fed_ += piece.size();
}

MILLRACE_INLINE std::uint32_t gzip_check::number(std::string_view four) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(four[i]);
  return value;
}

MILLRACE_INLINE void gzip_check::search(std::string_view text, std::uint64_t at) noexcept {
  for (std::size_t i = 0; (i = text.find('\x1f', i)) != std::string_view::npos && i + overlap < text.size(); ++i) {
    if (at + i != 0 && is_header(text.data() + i)) further_member_ = true;
  }
}

MILLRACE_INLINE void gzip_check::keep_edge(std::string_view piece) noexcept {
  if (piece.size() >= overlap) {
    std::memcpy(edge_, piece.data() + piece.size() - overlap, overlap);
    edge_size_ = overlap;
    return;
  }
  const std::size_t keep = std::min(edge_size_, overlap - piece.size());
  std::memmove(edge_, edge_ + edge_size_ - keep, keep);
  std::memcpy(edge_ + keep, piece.data(), piece.size());
  edge_size_ = keep + piece.size();
}

}  // namespace millrace::tar::detail
