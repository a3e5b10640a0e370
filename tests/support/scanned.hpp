// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/units.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::test {

/// The index that a scanner makes of a whole object, of version "v1", which comes in pieces of `piece` bytes.
inline shard_index scanned(shard_scanner&& by, std::string_view object, std::size_t piece = SIZE_MAX) {
  by.begin(object.substr(0, 512), std::nullopt, 4 * MiB);
  for (std::size_t at = 0; at < object.size(); at += std::min(piece, object.size() - at)) {
    by.add(bytes::copy(object.substr(at, piece)));
  }
  return by.finish(object.size(), "\"v1\"");
}

/// The index that a scanner makes of the ranges of an object that it asks for. `requests`: of those after the first
/// one, which has `head` bytes.
inline shard_index scanned_by_ranges(shard_scanner&& by, std::string_view object, std::size_t head = 512,
                                     std::size_t* requests = nullptr) {
  by.begin(object.substr(0, head), object.size(), 4 * MiB);
  by.add(bytes::copy(object.substr(0, head)));
  std::uint64_t at = by.next(std::min(head, object.size()));
  for (; at < object.size() && !by.done(); at = by.next(at)) {
    const std::string_view piece = object.substr(static_cast<std::size_t>(at), by.hop());
    by.add(bytes::copy(piece));
    at += piece.size();
    if (requests != nullptr) ++*requests;
  }
  return by.finish(object.size(), "\"v1\"");
}

}  // namespace millrace::test
