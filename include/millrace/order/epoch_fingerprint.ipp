// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/order/epoch_fingerprint.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE epoch_fingerprint epoch_fingerprint::of(const shard_counts& counts, std::uint64_t epoch) noexcept {
  epoch_fingerprint all;
  for (std::size_t s = 0; s < counts.shards(); ++s) {
    for (std::uint64_t k = 0; k < counts.count(s); ++k) all.add({s, k}, epoch);
  }
  return all;
}

MILLRACE_INLINE std::optional<epoch_fingerprint> epoch_fingerprint::parse(std::string_view text) noexcept {
  epoch_fingerprint out;
  const std::optional<std::uint64_t> samples = text::take_decimal<std::uint64_t>(text);
  if (!samples || text.empty() || text.front() != ':') return std::nullopt;
  const std::optional<hash128> sum = hash128::parse(text.substr(1));
  if (!sum) return std::nullopt;
  out.samples_ = *samples;
  out.sum_ = *sum;
  return out;
}

MILLRACE_INLINE std::string verify_epoch(const shard_counts& counts, std::uint64_t epoch,
                                         const epoch_fingerprint& delivered) {
  const epoch_fingerprint wanted = epoch_fingerprint::of(counts, epoch);
  if (delivered == wanted) return {};
  const std::uint64_t n = wanted.samples();
  if (delivered.samples() == n) {
    return "as many samples as epoch " + std::to_string(epoch) + " has (" + std::to_string(n) +
           ") were delivered, but not each of them once";
  }
  const bool fewer = delivered.samples() < n;
  const std::uint64_t off = fewer ? n - delivered.samples() : delivered.samples() - n;
  std::string text = std::to_string(off) + (off == 1 ? " sample " : " samples ") + (fewer ? "fewer" : "more") +
                     " than the " + std::to_string(n) + " of epoch " + std::to_string(epoch) +
                     (delivered.samples() == 1 ? " was delivered" : " were delivered");
  if (off != 1) return text;
  epoch_fingerprint odd = fewer ? wanted : delivered;
  odd -= fewer ? delivered : wanted;
  for (std::size_t s = 0; s < counts.shards(); ++s) {
    for (std::uint64_t k = 0; k < counts.count(s); ++k) {
      epoch_fingerprint one;
      one.add({s, k}, epoch);
      if (one != odd) continue;
      return text + ": sample " + std::to_string(k) + " of shard " + std::to_string(s) +
             (fewer ? " is missing" : " came twice");
    }
  }
  return text + ", and others are not each there once";
}

}  // namespace millrace::inline MILLRACE_ABI
