// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <millrace/data/shard.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace {

/// A piece of an object, in order: what `fetch` yields. The pieces of one object follow each other without gaps, then
/// those of the next object come; the last one of each object says so (an empty object has one empty piece).
class chunk {
 public:
  chunk() = default;
  chunk(std::shared_ptr<const shard> source, std::uint64_t position, bytes content, bool is_last)
      : from(std::move(source)), offset(position), data(std::move(content)), last(is_last) {}

  std::shared_ptr<const shard> from;  ///< the same pointer for all pieces of one reading of the object
  std::uint64_t offset = 0;  ///< of the piece in the object
  bytes data;                ///< a slice of a slab
  bool last = false;

  friend std::size_t byte_size(const chunk& c) noexcept { return c.data.size(); }
};

}  // namespace millrace
