// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/detail/mix64.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/sample_rng.hpp>
#include <millrace/data/shard.hpp>

namespace millrace {

/// Where an item comes from: enough to find it again, in an error message, a log or a later run. Empty for items that
/// were not read from a store.
class origin {
 public:
  origin() = default;
  origin(std::shared_ptr<const shard> source, std::uint64_t byte_offset, std::uint64_t ordinal_in_shard)
      : from(std::move(source)), offset(byte_offset), ordinal(ordinal_in_shard) {}

  std::shared_ptr<const shard> from;  ///< the object, with the ETag that was read
  std::uint64_t offset = 0;           ///< of the item's first byte: in the object, or in the decompressed stream
  std::uint64_t ordinal = 0;          ///< 0 for the first item of the shard
  /// Behind the item's last byte, where it is a sample that group_samples() made of a plain tar: the bytes between
  /// offset and here are read again to have it again. 0: not known.
  std::uint64_t end = 0;

  explicit operator bool() const noexcept { return from != nullptr; }
  const std::string& url() const noexcept {
    static const std::string none;
    return from == nullptr ? none : from->url;
  }

  /// Random numbers of the item's own, for one purpose (a number of the caller's): the same wherever and whenever the
  /// item is read with this seed in this epoch. The shard counts by its URL. A usage_error where there is no shard.
  sample_rng random(std::uint64_t purpose) const {
    if (from == nullptr) detail::misused("an item that was not read from a shard has no random numbers of its own");
    return sample_rng(from->seed, from->epoch, detail::text_hash(from->url), ordinal, purpose);
  }

  /// The location for an error about `key`.
  where at(std::string key = std::string()) const;
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/data/impl/origin.ipp>
#endif
