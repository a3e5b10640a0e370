// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/data/shard.hpp>

namespace millrace::inline MILLRACE_ABI {

/// The random generator of one sample, for one purpose: its words are a pure function of (seed, epoch, shard,
/// ordinal, purpose) and their number. So augmentation is the same on any thread, machine and number of ranks, and
/// after a resume. 48 bytes, no state elsewhere, nothing to warm up.
///
/// Philox2x64-10 (J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011), a
/// counter-based generator: the key is made of seed, epoch and purpose, the counter of the sample and the number of the
/// draw. This sequence is part of the library's contract.
class sample_rng {
 public:
  /// `shard` is a number that stands for the shard: origin::random() takes the hash of its URL.
  sample_rng(std::uint64_t seed, std::uint64_t epoch, std::uint64_t shard, std::uint64_t ordinal,
             std::uint64_t purpose) noexcept
      : key_(detail::key_of(seed, epoch, purpose)), sample_(detail::mix64(detail::mix64(shard) ^ ordinal)) {}

  /// The next 64 random bits.
  std::uint64_t next() noexcept {
    const std::uint64_t n = drawn_++;
    if (n % 2 == 0) {
      words_[0] = n / 2;
      words_[1] = sample_;
      block(words_, key_);
    }
    return words_[n % 2];
  }
  /// Uniform in [0, bound); `bound` must not be 0.
  std::uint64_t below(std::uint64_t bound) noexcept { return detail::draw_below(*this, bound); }
  /// Uniform in [0, 1) with 53 random bits.
  double uniform() noexcept { return detail::draw_uniform(*this); }

  /// The generator's function itself: a counter of two words becomes two random words.
  static void block(std::uint64_t (&counter)[2], std::uint64_t key) noexcept {
    __extension__ using wide = unsigned __int128;
    for (int round = 0; round < 10; ++round) {
      const wide product = static_cast<wide>(counter[0]) * 0xd2b74407b1ce6e93u;
      counter[0] = static_cast<std::uint64_t>(product >> 64) ^ key ^ counter[1];
      counter[1] = static_cast<std::uint64_t>(product);
      key += 0x9e3779b97f4a7c15u;
    }
  }

 private:
  std::uint64_t key_;
  std::uint64_t sample_;
  std::uint64_t drawn_ = 0;
  std::uint64_t words_[2] = {};
};

/// The place that an item comes from: enough to find it again, for an error message, a log or a later run. Empty for
/// items that were not read from a store.
class origin {
 public:
  origin() = default;
  origin(std::shared_ptr<const shard> source, std::uint64_t byte_offset, std::uint64_t ordinal_in_shard)
      : from(std::move(source)), offset(byte_offset), ordinal(ordinal_in_shard) {}

  std::shared_ptr<const shard> from;  ///< the object, with the ETag that was read
  std::uint64_t offset = 0;           ///< of the item's first byte: in the object, or in the decompressed stream
  std::uint64_t ordinal = 0;          ///< 0 for the first item of the shard
  /// The byte after the item's last one, for a sample that group_samples() made from a plain tar: reading the bytes
  /// from offset to here gives the sample again. 0: not known.
  std::uint64_t end = 0;
  /// The index among several items that flat_map() makes of one place: each has random numbers of its own. 0: the
  /// first.
  std::uint32_t copy = 0;

  explicit operator bool() const noexcept { return from != nullptr; }
  const std::string& url() const noexcept {
    static const std::string none;
    return from == nullptr ? none : from->url;
  }

  /// The item's random numbers for one purpose (a number that the caller chooses): the same wherever and whenever the
  /// item is read with this seed in this epoch. The shard is identified by its URL, without the signature in it. Throws
  /// usage_error without a shard.
  sample_rng random(std::uint64_t purpose) const {
    if (from == nullptr) detail::misused("an item that was not read from a shard has no random numbers of its own");
    const bool query = from->url.find('?') != std::string::npos;
    const std::uint64_t shard = detail::text_hash(query ? detail::unsigned_url(from->url) : from->url);
    return sample_rng(from->seed, from->epoch, copy == 0 ? shard : detail::key_of(shard, copy, 0), ordinal, purpose);
  }

  /// The location for an error about `key`.
  where at(std::string key = std::string()) const;
};

}  // namespace millrace

/// Purposes of random numbers: the third word of rng(seed, epoch, purpose), so that stages with the same seed draw
/// independent sequences. Part of the library's contract: the order of an epoch depends on them.

namespace millrace::inline MILLRACE_ABI::purpose {

/// shuffle(): the item of the window that leaves next.
inline constexpr std::uint64_t shuffle = 0x73687566666c6521;  // "shuffle!"
/// mix(): the source of the next item.
inline constexpr std::uint64_t mix = 0x6d697865642e2e2e;      // "mixed..."
/// bucket_by_length(): the batch of the window that leaves next.
inline constexpr std::uint64_t bucket = 0x6275636b65747321;  // "buckets!"
/// sample::random(), for functions that crop and mirror its image.
inline constexpr std::uint64_t augment = 0x6175676d656e7421;  // "augment!"

}  // namespace millrace::purpose

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace millrace::inline MILLRACE_ABI {

inline where origin::at(std::string key) const {
  where w;
  if (from != nullptr) {
    w.object = from->shown();
    w.offset = offset;
  }
  w.key = std::move(key);
  return w;
}

}  // namespace millrace
