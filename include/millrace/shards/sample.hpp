// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/data/sample_rng.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace {

/// One field of a sample: an extension ("jpg", "seg.png", in lower case) and the member's bytes.
class field {
 public:
  field() = default;
  field(std::string ext, bytes content) : extension(std::move(ext)), data(std::move(content)) {}
  std::string extension;
  bytes data;
};

/// The members of a shard that share a key, as WebDataset groups them. The bytes are slices of the fetched slabs until
/// compact() has copied the sample.
class sample {
 public:
  sample() = default;
  sample(std::string sample_key, origin where_from) : key(std::move(sample_key)), from(std::move(where_from)) {}

  std::string key;            ///< path up to the first dot of the base name, directory included
  std::vector<field> fields;  ///< in the order of the archive; extensions are unique
  origin from;                ///< offset of the first member's header, ordinal of the sample in its shard
  epoch_mark mark;            ///< where it stands in the training; of epochs() alone

  /// 0 for what only fills up the last batch of an epoch, and for what stands in the place of a sample that could not
  /// be had: it has no key, no fields and no origin.
  float weight() const noexcept { return mark.padding ? 0.0F : 1.0F; }

  /// The field's bytes, null when the sample has none of that extension.
  const bytes* find(std::string_view extension) const noexcept;
  /// The field's bytes; a decode_error that names the shard, the sample and what it does have when there is none.
  const bytes& operator[](std::string_view extension) const;

  /// Random numbers of the sample's own, for one purpose (a number of the caller's): `s.random(1).below(8)`. They
  /// depend on seed, epoch, shard and place in it alone: augmentation that draws from them is the same on any thread,
  /// machine and number of ranks, and after a resume.
  sample_rng random(std::uint64_t purpose) const { return from.random(purpose); }

  friend std::size_t byte_size(const sample& s) noexcept;
  friend epoch_mark mark_of(const sample& s) noexcept { return s.mark; }
  friend const bytes* slice_of(const sample& s) noexcept { return s.fields.empty() ? nullptr : &s.fields.front().data; }
  /// The same sample holding no more memory than it shows: for stages that keep samples for long.
  friend sample compact(sample s) {
    for (field& f : s.fields) f.data = f.data.compact();
    return s;
  }
};

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/impl/sample.ipp>
#endif
