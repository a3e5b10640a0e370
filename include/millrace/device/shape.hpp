// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include <millrace/base/error.hpp>

namespace millrace {

/// The extents of a tensor, outermost first: up to eight, kept inline. No extent at all is a scalar.
class shape {
 public:
  static constexpr std::size_t max_rank = 8;

  constexpr shape() noexcept = default;
  /// Throws configuration_error for more than eight extents or a negative one.
  constexpr shape(std::initializer_list<std::int64_t> extents) {
    for (std::int64_t e : extents) push_back(e);
  }

  constexpr std::size_t rank() const noexcept { return rank_; }
  constexpr std::int64_t operator[](std::size_t i) const noexcept { return extents_[i]; }
  constexpr const std::int64_t* begin() const noexcept { return extents_; }
  constexpr const std::int64_t* end() const noexcept { return extents_ + rank_; }

  /// The product of the extents; 1 for a scalar. Throws configuration_error when it does not fit.
  constexpr std::size_t elements() const {
    std::size_t n = 1;
    for (std::int64_t e : *this) {
      if (__builtin_mul_overflow(n, static_cast<std::size_t>(e), &n)) throw configuration_error("a shape is too large");
    }
    return n;
  }

  constexpr void push_back(std::int64_t extent) {
    if (rank_ == max_rank) throw configuration_error("a shape has at most 8 extents");
    if (extent < 0) throw configuration_error("a shape has a negative extent");
    extents_[rank_++] = extent;
  }

  /// This shape with one more extent in front.
  constexpr shape with_outer(std::int64_t extent) const {
    shape result;
    result.push_back(extent);
    for (std::int64_t e : *this) result.push_back(e);
    return result;
  }

  /// "224x224x3", "scalar".
  std::string text() const {
    if (rank_ == 0) return "scalar";
    std::string t;
    for (std::int64_t e : *this) t += (t.empty() ? "" : "x") + std::to_string(e);
    return t;
  }

  friend constexpr bool operator==(const shape& a, const shape& b) noexcept {
    if (a.rank_ != b.rank_) return false;
    for (std::size_t i = 0; i < a.rank_; ++i) {
      if (a.extents_[i] != b.extents_[i]) return false;
    }
    return true;
  }

 private:
  std::int64_t extents_[max_rank] = {};
  std::size_t rank_ = 0;
};

}  // namespace millrace
