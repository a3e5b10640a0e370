// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/flow/pipe.hpp>
#include <millrace/shards/detail/untar_chunks.hpp>
#include <millrace/tar/reader.hpp>

namespace millrace {

/// Stage: chunks -> members, for plain tar archives only; does not need libarchive. See untar().
template <class = void>
auto untar_plain(tar::reader_options options = {}) {
  return [options](async_generator<chunk> in) {
    auto open = [options](const shard& s) {
      tar::reader_options own = options;
      if (s.size) own.object_bytes = *s.size;
      return tar::reader(s.shown(), own);
    };
    return stream<member>(detail::untar_chunks(std::move(in), std::move(open), options.report)).named("untar");
  };
}

}  // namespace millrace
