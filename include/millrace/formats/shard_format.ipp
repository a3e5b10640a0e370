// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/formats/shard_format.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE void shard_reader::fill(sample& /*s*/, const shard_index::rows& /*rows*/, std::size_t /*number*/,
                                        const bytes& /*record*/) const {
  detail::misused("shard_reader: this format has no fill()");
}

MILLRACE_INLINE std::vector<object_range> shard_reader::ranges(const shard_index& index, std::size_t g) const {
  const detail::frame_range all = index.group(g);
  return {object_range(all.begin, all.end)};
}

MILLRACE_INLINE unpacked_group shard_reader::unpack(const shard& /*object*/, std::size_t /*g*/,
                                                    const std::vector<bytes>& /*parts*/) const {
  detail::misused("shard_reader: this format has no unpack()");
}

MILLRACE_INLINE task<std::shared_ptr<const void>> shard_format::metadata(std::shared_ptr<const storage> /*from*/,
                                                                         std::vector<shard> /*listed*/) const {
  return task<std::shared_ptr<const void>>();
}

MILLRACE_INLINE std::unique_ptr<shard_scanner> shard_format::scanner(std::string /*name*/, const shard& /*object*/,
                                                                     std::shared_ptr<const void> /*metadata*/) const {
  return nullptr;
}

MILLRACE_INLINE task<shard_index> shard_format::index(std::shared_ptr<const storage> /*from*/, shard /*object*/,
                                                      std::string /*name*/,
                                                      std::shared_ptr<const void> /*metadata*/) const {
  detail::misused("shard_format: this format has neither scanner() nor index()");
}

MILLRACE_INLINE std::shared_ptr<const shard_reader> detail::shard_readers::of(const shard_index& index,
                                                                              std::uint64_t number) {
  if (readers_.empty()) readers_.resize(kept);
  one& its = readers_[static_cast<std::size_t>(number % kept)];
  if (its.number != number || its.reader == nullptr) {
    its.reader = format_->reader(index);
    its.number = number;
  }
  return its.reader;
}

}  // namespace millrace
