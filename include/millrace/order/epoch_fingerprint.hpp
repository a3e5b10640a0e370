// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/rng.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/order/shard_counts.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The samples delivered, in 24 bytes: two sums, modulo 2^64, of two hashes of every (shard, ordinal, epoch), and their
/// number. Their order does not matter; a sample that came twice does. So the fingerprints of all ranks, and of the
/// parts of a training that was resumed, add up to that of the whole (+=), which for an epoch an index tells (of()):
/// equal means, but for one chance in about 2^128, that every sample came once.
class epoch_fingerprint {
 public:
  epoch_fingerprint() = default;

  /// One sample more.
  void add(sample_place sample, std::uint64_t epoch) noexcept {
    const std::uint64_t place = detail::key_of(epoch, sample.shard, sample.ordinal);
    epoch_fingerprint one;
    one.samples_ = 1;
    one.sum_ = {detail::mix64(place ^ 0xd6e8feb86659fd93u), detail::key_of(sample.ordinal, epoch, sample.shard)};
    *this += one;
  }
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

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/order/epoch_fingerprint.ipp>
#endif
