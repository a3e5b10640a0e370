// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <millrace/data/origin.hpp>
#include <millrace/tar/entry.hpp>

namespace millrace {

/// One regular file of an archive, with where it comes from.
class member {
 public:
  member() = default;
  member(tar::entry e, origin where_from) : entry(std::move(e)), from(std::move(where_from)) {}

  tar::entry entry;
  origin from;        ///< offset of the member's first header, ordinal among the archive's entries
  bool last = false;  ///< of its archive, which has been read to its end and is whole

  /// For errors about it: it is named by its entry.
  class place {
   public:
    const origin& from;
    const std::string& key;
  };
  friend place place_of(const member& m) noexcept { return {m.from, m.entry.name}; }
  friend std::size_t byte_size(const member& m) noexcept { return m.entry.body.size(); }
  friend const bytes* slice_of(const member& m) noexcept { return &m.entry.body; }
  friend member compact(member m) {
    m.entry.body = m.entry.body.compact();
    return m;
  }
};

}  // namespace millrace
