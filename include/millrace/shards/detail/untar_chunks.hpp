// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <millrace/coro/async_generator.hpp>
#include <millrace/shards/chunk.hpp>
#include <millrace/shards/member.hpp>

namespace millrace::detail {

/// The loop behind untar() and untar_plain(). `Open(shard)` gives the reader of an object: anything with the interface
/// of tar::reader.
template <class Chunks, class Open>
async_generator<member> untar_chunks(Chunks in, Open open) {
  using reader_type = decltype(open(std::declval<const shard&>()));
  std::optional<reader_type> reader;
  std::uint64_t ordinal = 0;
  while (auto c = co_await in.next()) {
    if (!reader) {
      reader.emplace(open(*c->from));
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

}  // namespace millrace::detail
