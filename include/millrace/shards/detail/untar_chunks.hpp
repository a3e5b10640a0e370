// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <millrace/flow/stream.hpp>
#include <millrace/shards/chunk.hpp>
#include <millrace/shards/detail/archive_warnings.hpp>
#include <millrace/shards/member.hpp>

namespace millrace::detail {

/// Throws `broken` again; an error that breaks `from` off, if there is one, says how many members came before it.
[[noreturn]] void rethrow_from(std::exception_ptr broken, const shard* from, std::uint64_t handed_on);

/// The loop behind untar() and untar_plain(). `Open(chunk)` gives the reader of the object that the chunk begins:
/// anything with the interface of tar::reader.
///
/// A member is handed on when the next one, the archive's end, or an error has been met: so the last one says that it
/// is, and whoever groups members need not wait for the next archive, which may be missing.
///
/// With `report`, what is unusual about an archive's end goes to the log.
template <class Open, class Chunk, class Member = member>  // Member: see give()
async_generator<Member> untar_chunks(async_generator<Chunk> in, Open open, bool report) {
  using reader_type = decltype(open(std::declval<const Chunk&>()));
  std::optional<reader_type> reader;
  std::shared_ptr<const shard> from;  // what the reader reads
  std::uint64_t ordinal = 0;
  std::uint64_t handed_on = 0;  // members of it, with the one that is held
  std::optional<Member> held;
  executor& ex = co_await this_executor();
  archive_warnings warnings(ex, report);
  for (;;) {
    std::optional<Chunk> c;
    std::exception_ptr broken;  // nothing can be yielded where it is caught
    try {
      c = co_await in.next();
      if (c && !reader) {
        from = c->from;
        reader.emplace(open(*c));
        ordinal = handed_on = 0;
      }
      if (c && !c->data.empty()) reader->feed(std::move(c->data));
    } catch (...) {
      broken = std::current_exception();
    }
    bool finishing = false;
    while (!broken && c) {
      tar::entry e;
      bool more = false;
      try {
        more = reader->next(e);
        if (!more && c->last && !finishing) {
          finishing = true;
          reader->finish();
          continue;
        }
      } catch (...) {
        broken = std::current_exception();
      }
      if (!more) break;
      const std::uint64_t offset = e.header_offset;
      const std::uint64_t position = ordinal++;
      if (!e.is_regular()) continue;
      if (held) co_yield give(*held);
      held.emplace(std::move(e), origin(c->from, offset, position));
      ++handed_on;
    }
    const bool whole = !broken && c && c->last;
    if (whole) {
      warnings.add(*c->from, reader->warning());
    }
    if (held && (broken || whole || !c)) {
      held->last = whole;
      co_yield give(*held);
      held.reset();
    }
    if (broken) rethrow_from(broken, reader ? from.get() : nullptr, handed_on);
    if (!c) co_return;
    if (whole) reader.reset();
  }
}

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/detail/impl/untar_chunks.ipp>
#endif
