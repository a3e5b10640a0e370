// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace millrace::detail {

/// Durations in buckets of about 6 % width, for quantiles without keeping the values. One writer, any readers.
class latency_histogram {
 public:
  void add(std::int64_t ns) noexcept {
    auto& bucket = buckets_[index(ns)];
    bucket.store(bucket.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (ns > max_.load(std::memory_order_relaxed)) max_.store(ns, std::memory_order_relaxed);
  }
  std::uint64_t count() const noexcept {
    std::uint64_t n = 0;
    for (const auto& b : buckets_) n += b.load(std::memory_order_relaxed);
    return n;
  }
  std::int64_t max() const noexcept { return max_.load(std::memory_order_relaxed); }

  /// The value below which the share `q` of the durations lies, up to the width of a bucket; 0 when there are none.
  std::int64_t quantile(double q) const noexcept {
    const auto rank = static_cast<std::uint64_t>(q * static_cast<double>(count()));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i].load(std::memory_order_relaxed);
      if (seen > rank) return upper(i) < max() ? upper(i) : max();
    }
    return max();
  }

 private:
  static constexpr std::size_t per_octave = 16;

  static std::size_t index(std::int64_t ns) noexcept {
    const auto v = static_cast<std::uint64_t>(ns < 0 ? 0 : ns);
    if (v < per_octave) return static_cast<std::size_t>(v);
    const int octave = 63 - __builtin_clzll(v);
    const auto fraction = static_cast<std::size_t>((v >> (octave - 4)) & (per_octave - 1));
    return static_cast<std::size_t>(octave - 3) * per_octave + fraction;
  }
  static std::int64_t upper(std::size_t i) noexcept {
    if (i < per_octave) return static_cast<std::int64_t>(i);
    const std::size_t octave = i / per_octave + 3;
    const std::uint64_t base = std::uint64_t(1) << octave;
    return static_cast<std::int64_t>(base + (i % per_octave + 1) * (base / per_octave) - 1);
  }

  std::array<std::atomic<std::uint64_t>, 61 * per_octave> buckets_{};
  std::atomic<std::int64_t> max_{0};
};

}  // namespace millrace::detail
