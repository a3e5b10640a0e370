// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/shards/chunk.hpp>
#include <millrace/shards/member.hpp>
#include <millrace/tar/reader.hpp>

namespace millrace {

namespace detail {

inline async_generator<member> untar_chunks(async_generator<chunk> in, tar::reader_options options) {
  std::optional<tar::reader> reader;
  std::uint64_t ordinal = 0;
  while (std::optional<chunk> c = co_await in.next()) {
    if (!reader) {
      tar::reader_options own = options;
      if (c->from->size) own.object_bytes = *c->from->size;
      reader.emplace(c->from->url, own);
      ordinal = 0;
    }
    const bool last = c->last;
    if (!c->data.empty()) reader->feed(std::move(c->data));
    for (int round = 0; round < (last ? 2 : 1); ++round) {
      if (round == 1) reader->finish();
      tar::entry e;
      while (reader->next(e)) {
        const std::uint64_t offset = e.header_offset;
        const std::uint64_t position = ordinal++;
        if (!e.is_regular()) continue;
        member m(std::move(e), origin(c->from, offset, position));
        co_yield give(m);
        e = tar::entry();
      }
    }
    if (last) reader.reset();
  }
}

}  // namespace detail

/// Stage: chunks -> members. Untars one object after the other as its pieces arrive, without copying: bodies are slices
/// of the fetched slabs, except the few that straddle two. Directories, links and devices are passed over. A broken or
/// cut archive is an archive_error with object and byte offset, after every member that came before it whole.
inline auto untar(tar::reader_options options = {}) {
  return [options](async_generator<chunk> in) { return detail::untar_chunks(std::move(in), options).named("untar"); };
}

}  // namespace millrace
