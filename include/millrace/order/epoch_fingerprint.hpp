// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/rng.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/order/shard_counts.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The samples delivered, in 24 bytes: two sums, modulo 2^64, of two hashes of every (shard, ordinal, epoch), and their
/// number. Their order does not matter; a sample that came twice does. So the fingerprints of all ranks, and of the
/// parts of a training that was resumed, add up to that of the whole (+=), which for an epoch an index tells (of()):
/// equal means, but for one chance in about 2^128, that every sample came once.
class epoch_fingerprint {
 public:
  epoch_fingerprint() = default;

  /// One sample more.
  void add(sample_place sample, std::uint64_t epoch) noexcept;
  /// All that the other has seen.
  epoch_fingerprint& operator+=(const epoch_fingerprint& other) noexcept {
    samples_ += other.samples_;
    sum_.low += other.sum_.low;
    sum_.high += other.sum_.high;
    return *this;
  }
  /// All that the other has seen is taken off.
  epoch_fingerprint& operator-=(const epoch_fingerprint& other) noexcept {
    samples_ -= other.samples_;
    sum_.low -= other.sum_.low;
    sum_.high -= other.sum_.high;
    return *this;
  }

  std::uint64_t samples() const noexcept { return samples_; }
  hash128 value() const noexcept { return sum_; }

  /// The fingerprint of every sample of an epoch, once. A few nanoseconds a sample.
  static epoch_fingerprint of(const shard_counts& counts, std::uint64_t epoch) noexcept;

  /// "123:" and 32 hexadecimal digits.
  std::string text() const { return std::to_string(samples_) + ':' + sum_.text(); }
  /// Parses the result of text(); nullopt for anything else.
  static std::optional<epoch_fingerprint> parse(std::string_view text) noexcept;

  friend bool operator==(const epoch_fingerprint&, const epoch_fingerprint&) = default;

 private:
  std::uint64_t samples_ = 0;
  hash128 sum_;
};

/// Checks that `delivered`, of all ranks together, is every sample of an epoch once: empty, or an error message. A
/// single sample that is missing or came twice is named; that takes two passes over the counts.
[[nodiscard("the sentence is the result; empty: all is well")]] std::string verify_epoch(
    const shard_counts& counts, std::uint64_t epoch, const epoch_fingerprint& delivered);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline void epoch_fingerprint::add(sample_place sample, std::uint64_t epoch) noexcept {
  const std::uint64_t place = detail::key_of(epoch, sample.shard, sample.ordinal);
  epoch_fingerprint one;
  one.samples_ = 1;
  one.sum_ = {detail::mix64(place ^ 0xd6e8feb86659fd93u), detail::key_of(sample.ordinal, epoch, sample.shard)};
  *this += one;
}

inline epoch_fingerprint epoch_fingerprint::of(const shard_counts& counts, std::uint64_t epoch) noexcept {
  epoch_fingerprint all;
  for (std::size_t s = 0; s < counts.shards(); ++s) {
    for (std::uint64_t k = 0; k < counts.count(s); ++k) all.add({s, k}, epoch);
  }
  return all;
}

inline std::optional<epoch_fingerprint> epoch_fingerprint::parse(std::string_view text) noexcept {
  epoch_fingerprint out;
  const std::optional<std::uint64_t> samples = text::take_decimal<std::uint64_t>(text);
  if (!samples || text.empty() || text.front() != ':') return std::nullopt;
  const std::optional<hash128> sum = hash128::parse(text.substr(1));
  if (!sum) return std::nullopt;
  out.samples_ = *samples;
  out.sum_ = *sum;
  return out;
}

inline std::string verify_epoch(const shard_counts& counts, std::uint64_t epoch, const epoch_fingerprint& delivered) {
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

}  // namespace millrace
