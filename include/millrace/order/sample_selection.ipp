// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/order/sample_selection.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE sample_selection::sample_selection(std::uint64_t samples, std::vector<std::uint64_t> bits)
    : bits_(std::move(bits)) {
  count_bits();
  hasher128 all;
  all.add(samples);
  for (const std::uint64_t word : bits_) all.add(word);
  digest_ = all.value();
}

MILLRACE_INLINE sample_selection::sample_selection(const sample_selection* subset, std::vector<std::uint32_t> weights,
                                                   std::uint64_t entries, bool replacement)
    : replacement_(replacement), weights_(std::move(weights)) {
  hasher128 all;
  if (subset != nullptr) {
    bits_ = subset->bits_;
    count_bits();
    all.add(subset->digest());
  }
  entries_ = entries;
  if (!replacement_) limit_weights();
  sums_.reserve(weights_.size() / group + 2);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (i % group == 0) sums_.push_back(sum);
    sum += weights_[i];
    all.add(weights_[i]);
  }
  sums_.push_back(sum);
  all.add(entries_);
  all.add(replacement_ ? 1U : 0U);
  digest_ = all.value();
}

MILLRACE_INLINE void sample_selection::count_bits() {
  counts_.reserve(bits_.size() / words + 1);
  for (std::size_t w = 0; w < bits_.size(); ++w) {
    if (w % words == 0) counts_.push_back(entries_);
    entries_ += static_cast<std::uint64_t>(std::popcount(bits_[w]));
  }
}

/// No weight may come to more than one entry: those that do get the share that the others leave to each of them.
MILLRACE_INLINE void sample_selection::limit_weights() {
  std::uint64_t most = UINT32_MAX;
  for (;;) {
    std::uint64_t rest = 0;
    std::uint64_t limited = 0;
    for (const std::uint32_t w : weights_) {
      if (w > most) {
        ++limited;
      } else {
        rest += w;
      }
    }
    const std::uint64_t limit = rest / (entries_ - limited);  // fewer are limited: each has more than such a share
    if (limit >= most) break;
    most = limit;
  }
  for (std::uint32_t& w : weights_) w = static_cast<std::uint32_t>(std::min<std::uint64_t>(w, most));
}

}  // namespace millrace
