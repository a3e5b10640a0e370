// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// Bytes [begin, end) of an object.
struct byte_stretch {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::size_t length() const noexcept { return static_cast<std::size_t>(end - begin); }
};

/// The second reading of bytes that a reader has found damaged (range_reader::read_again()), and the judgement of both:
/// a second reading corrects bits that were damaged on the way; the same bytes again are damaged in the store. The
/// reader compares, by the bytes or, where it does not have the first ones any more, by what has come of them.
class second_reading {
 public:
  second_reading() = default;
  std::vector<bytes> parts;  ///< of each stretch; none where they could not be read once more
  bool alike = false;        ///< the same again
  std::string note;          ///< for the error, if these bytes are not right either

  bool came() const noexcept { return !parts.empty(); }
  /// It may correct the first one.
  bool differs() const noexcept { return came() && !alike; }
  void compare(bool same) {
    if (!came()) return;
    alike = same;
    note = read_twice(same);
  }
  /// With what came the first time.
  void compare(std::span<const bytes> first) {
    compare(std::equal(first.begin(), first.end(), parts.begin(), parts.end(),
                       [](const bytes& a, const bytes& b) { return a.view() == b.view(); }));
  }
  void failed(const std::exception& e) {
    parts.clear();
    note = std::string("reading it once more failed: ") + e.what();
  }
};

/// Adds a note to an error of the library.
inline void add_note(const std::exception_ptr& e, const std::string& note) {
  if (note.empty()) return;
  try {
    std::rethrow_exception(e);
  } catch (error& known) {
    known.add_note(note);
  } catch (...) {
  }
}

/// Awaits `make(parts)`, a task, with what came of these bytes of `object`. Where that throws an error they are read
/// once more by `reader`, a range_reader: if others come, it is `make` of these that counts. An error after that says
/// what both readings were.
template <class Reader, class Make>
task<void> make_or_read_again(const Reader& reader, shard object, std::vector<byte_stretch> at,
                              std::vector<bytes> parts, Make& make) {
  std::exception_ptr damaged;
  try {
    co_await make(parts);
    co_return;
  } catch (const error&) {
    damaged = std::current_exception();
  }
  second_reading again = co_await reader.read_again(std::move(object), std::move(at), text_of(damaged));
  again.compare(parts);
  if (again.differs()) {
    damaged = nullptr;
    try {
      co_await make(again.parts);
    } catch (const error&) {
      damaged = std::current_exception();
    }
  }
  if (damaged == nullptr) co_return;
  add_note(damaged, again.note);
  std::rethrow_exception(damaged);
}

}  // namespace millrace::detail
