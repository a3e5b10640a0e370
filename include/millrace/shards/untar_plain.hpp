// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/range_reader.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/tar/entry.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Logs archives that are unusual but not broken: the first few of them by name,
/// then, with the end of the stage, how many more there were.
class archive_warnings {
 public:
  archive_warnings(const executor& ex, bool report, const char* stage = "untar") noexcept
      : executor_(ex), report_(report), stage_(stage) {}
  archive_warnings(const archive_warnings&) = delete;
  archive_warnings& operator=(const archive_warnings&) = delete;
  ~archive_warnings();

  /// An empty `warning` is ignored.
  void add(const shard& from, std::string_view warning);
  /// For a process that reads the shard for every epoch: said once.
  void add_once(const shard& from, std::string_view warning);

 private:
  static constexpr std::uint64_t named = 5;

  const executor& executor_;
  const bool report_;
  const char* const stage_;
  std::uint64_t count_ = 0;
};

/// Rethrows `broken`; an error that ends `from` early says how many members came before it.
[[noreturn]] void rethrow_from(std::exception_ptr broken, const shard* from, std::uint64_t delivered);

/// The message about an archive without regular files; its first member is of type `first`.
std::string no_files_of(std::uint64_t members, char first);

/// The compression that the Content-Encoding of an object says, whose first bytes are `head`; empty if it says none. A
/// tar is read as it is, whatever is said, and that is logged once.
std::string coding_of(const shard& object, std::string_view head);

/// Throws an archive_error that names the Content-Encoding of an object that begins with `head` and is no plain tar.
void require_plain_tar(const shard& object, std::string_view head);

/// The input of a reader of headers that it has not used yet: to compare with a second reading.
class unread_headers {
 public:
  /// The chunk at `offset` has been read; the reader would go on at `begin`, where that is known.
  void keep(std::optional<std::uint64_t> begin, std::uint64_t offset, std::string_view chunk);
  /// The bytes from `begin` to the end of that chunk, the one after the bytes kept; empty if not all of them are there.
  bytes from(std::uint64_t begin, std::uint64_t offset, const bytes& chunk) const;

 private:
  std::string text_;
};

/// The loop of untar() and untar_plain(). `Open(chunk, budget, begin)` gives a reader of the object that the chunk is
/// of, a new one or one that goes on at byte `begin`: anything with the interface of tar::reader. `budget`: for
/// tar::reader_options::budget_bytes.
///
/// A broken header may be a bit that was damaged on the way: before it is an error, the chunk is read once more from
/// the member's first header, and the walk continues in that.
///
/// A member is delivered when the next one, the archive's end, or an error has been found: so the last one is marked as
/// such, and a stage that groups members need not wait for the next archive, which may be missing.
///
/// What is unusual about an archive's end goes to the log.
template <class Open, class Chunk, class Member = member>  // Member: see give()
async_generator<Member> untar_chunks(async_generator<Chunk> in, Open open) {
  using reader_type = decltype(open(std::declval<const Chunk&>(), std::uint64_t(), std::nullopt));
  std::optional<reader_type> reader;
  unread_headers headers;
  std::optional<std::uint64_t> mended;  // where it was read once more
  std::string mended_note;
  std::shared_ptr<const shard> from;  // what the reader reads
  std::uint64_t ordinal = 0;
  std::uint64_t delivered = 0;  // members of it, with the one that is held
  bool from_begin = false;      // it is read from its first byte
  char first_odd = '0';         // type of its first member, which is no regular file
  std::optional<Member> held;
  const coroutine_context here = co_await this_context();
  archive_warnings warnings(here.get_executor(), true);
  const std::size_t largest = here.run().budget().largest_item();
  const std::uint64_t budget = largest == run_budget::unlimited ? 0 : largest;
  for (;;) {
    std::optional<Chunk> c;
    std::exception_ptr broken;  // nothing can be yielded where it is caught
    bytes piece;                // to be compared
    try {
      c = co_await in.next();
      if (c && !reader) {
        from = c->from;
        reader.emplace(open(*c, budget, std::nullopt));
        ordinal = delivered = 0;
        from_begin = c->offset == 0;
        headers = unread_headers();
        mended.reset();
      }
      if (c && c->source != nullptr) piece = c->data;
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
      if (broken && !finishing && c->source != nullptr) {
        const std::optional<std::uint64_t> begin = reader->resume_at();
        second_reading again;
        if (begin && (!mended || *begin > *mended)) {
          mended = begin;
          bytes first = headers.from(*begin, c->offset, piece);
          task<second_reading> reading = c->source->read(*begin, std::move(first), text_of(broken));
          again = co_await std::move(reading);
          mended_note = again.note;
        }
        if (again.differs()) {
          broken = nullptr;
          reader.emplace(open(*c, budget, begin));
          reader->feed(again.parts.front());
          c->source->mend(*begin, std::move(again.parts.front()));
          continue;
        }
        if (begin) add_note(broken, mended_note);
      }
      if (!more) break;
      const std::uint64_t offset = e.header_offset;
      const std::uint64_t position = ordinal++;
      if (!e.is_regular()) {
        if (position == 0) first_odd = e.type;
        continue;
      }
      if (held) co_yield give(*held);
      held.emplace(std::move(e), origin(c->from, offset, position));
      ++delivered;
    }
    if (!broken && c && c->source != nullptr) headers.keep(reader->resume_at(), c->offset, piece.view());
    const bool whole = !broken && c && c->last;
    if (whole) {
      warnings.add(*c->from, reader->warning());
      if (from_begin && delivered == 0 && ordinal != 0) warnings.add_once(*c->from, no_files_of(ordinal, first_odd));
    }
    if (held && (broken || whole || !c)) {
      held->last = whole;
      co_yield give(*held);
      held.reset();
    }
    if (broken) rethrow_from(broken, reader ? from.get() : nullptr, delivered);
    if (!c) co_return;
    if (whole) reader.reset();
  }
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

namespace detail {

MILLRACE_COROUTINE async_generator<member> untar_plain_members(async_generator<chunk> in, tar::reader_options options);

}  // namespace detail

/// Stage: chunks -> members, for plain tar archives only; does not need libarchive. See untar().
MILLRACE_COROUTINE inline auto untar_plain(tar::reader_options options = {}) {
  return [options](async_generator<chunk> in) {
    return stream<member>(detail::untar_plain_members(std::move(in), options)).named("untar");
  };
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/untar_plain.ipp>
#endif
