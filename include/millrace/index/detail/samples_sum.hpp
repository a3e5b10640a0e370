// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <millrace/data/hash128.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// A sum over samples, of their keys and their fields' names, sizes and CRC32C, modulo 2^128: it does not depend on
/// their order, nor on how they are cut into shards.
class samples_sum {
 public:
  samples_sum() = default;
  explicit samples_sum(const hash128& so_far) noexcept : sum_(so_far) {}

  /// All samples of a tar's index with checksums.
  void add(const shard_index& index) {
    for (std::size_t i = 0; i < index.samples(); ++i) {
      hasher128 one;
      const shard_index::rows rows = index.rows_of(i);
      one.add(rows.key_hash(i));
      for (std::size_t k = 0; k < rows.field_count(i); ++k) {
        const shard_index::field f = rows.field_at(i, k);
        one.add(f.extension);
        one.add(f.size);
        one.add(f.crc);
      }
      add(one.value());
    }
  }
  /// The sample, as the index of the tar that it is written to has it.
  void add(const sample& s) {
    hasher128 one;
    one.add(key_hash(s.key));
    for (const field& f : s.fields) {
      one.add(f.extension);
      one.add(f.data.size());
      one.add(f.data.crc32c());
    }
    add(one.value());
  }
  const hash128& value() const noexcept { return sum_; }

 private:
  void add(const hash128& value) noexcept {
    sum_.low += value.low;
    sum_.high += value.high + (sum_.low < value.low ? 1 : 0);
  }

  hash128 sum_;
};

}  // namespace millrace::detail
