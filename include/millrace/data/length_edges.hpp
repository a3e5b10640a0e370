// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>

#include <millrace/base/error.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Lengths that separate buckets, ascending: `{128, 256, 512}` are buckets of lengths up to 128, up to 256, up to
/// 512, and one of longer ones. Up to 32, kept inline; none at all is one bucket.
class length_edges {
 public:
  static constexpr std::size_t most = 32;

  constexpr length_edges() noexcept = default;
  /// Throws configuration_error for more than 32, for 0, and if one is not larger than the one before it.
  constexpr length_edges(std::initializer_list<std::size_t> edges) {
    for (const std::size_t e : edges) push_back(e);
  }
  /// Takes edges that a program computes.
  constexpr explicit length_edges(std::span<const std::size_t> edges) {
    for (const std::size_t e : edges) push_back(e);
  }

  constexpr std::size_t size() const noexcept { return size_; }
  constexpr std::size_t operator[](std::size_t i) const noexcept { return edges_[i]; }
  constexpr const std::size_t* begin() const noexcept { return edges_; }
  constexpr const std::size_t* end() const noexcept { return edges_ + size_; }

  /// The number of the bucket that `length` is in: that of the smallest edge that holds it; size() beyond the last.
  constexpr std::size_t bucket_of(std::size_t length) const noexcept {
    std::size_t i = 0;
    while (i < size_ && edges_[i] < length) ++i;
    return i;
  }

 private:
  constexpr void push_back(std::size_t edge) {
    if (size_ == most) throw configuration_error("there are at most 32 edges of lengths");
    if (edge <= (size_ == 0 ? 0 : edges_[size_ - 1])) {
      throw configuration_error("edges of lengths must ascend, from 1 on");
    }
    edges_[size_++] = edge;
  }

  std::size_t edges_[most] = {};
  std::size_t size_ = 0;
};

}  // namespace millrace
