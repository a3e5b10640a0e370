// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/tar/reader.hpp>

// A reader that runs out of memory in the middle of a member must not take for a header what comes next.

#include <new>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/writer.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/replaced_new.hpp"
#include "tests/tar/archives.hpp"

#if !MILLRACE_ASAN && !MILLRACE_TSAN

namespace {
thread_local int allocations_left = -1;  // negative: as many as one likes
}

bool millrace::test::allocation_fails() noexcept {
  if (allocations_left < 0) return false;
  return --allocations_left < 0;  // the others after it succeed
}

namespace {

using namespace millrace;

/// A member that looks like an archive, between two others, with names that need memory.
std::string archive_in_archive() {
  std::string inner;
  tar::writer<tar::string_sink> inner_writer{tar::string_sink(inner)};
  inner_writer.add("a-name-of-the-inner-archive", "inner");
  inner_writer.finish();
  std::string outer;
  tar::writer<tar::string_sink> writer{tar::string_sink(outer)};
  writer.add("the-first-of-the-outer-archive", "first");
  writer.add("the-archive-in-the-outer-archive", inner);
  writer.add("the-last-of-the-outer-archive", "last");
  writer.finish();
  return outer;
}

/// The names that a reader gives whose n-th allocation fails once, when it is asked again after that.
std::string names(const std::string& text, int fails_at, bool& failed) {
  std::string out;
  tar::reader reader("a.tar");
  reader.feed(bytes::copy(text));
  failed = false;
  for (;;) {
    tar::entry e;
    bool more = false;
    allocations_left = failed ? -1 : fails_at;
    try {
      more = reader.next(e);
      fails_at = allocations_left;
    } catch (const std::bad_alloc&) {
      failed = true;
      allocations_left = -1;
      continue;
    } catch (const archive_error&) {
      allocations_left = -1;
      return out;
    }
    allocations_left = -1;
    if (!more) return out;
    out += e.name + "\n";
  }
}

}  // namespace

TEST_CASE("a tar reader that ran out of memory stays broken") {
  const std::string text = archive_in_archive();
  bool failed = false;
  const std::string whole = names(text, -1, failed);
  REQUIRE_FALSE(failed);
  int n = 0;
  for (failed = true; failed; ++n) {
    CAPTURE(n);
    const std::string got = names(text, n, failed);
    CHECK((whole.substr(0, got.size()) == got));  // what was given is right, and nothing is left out between
    if (!failed) CHECK(got == whole);
  }
  CHECK(n > 3);
}

#else

TEST_CASE("a tar reader that ran out of memory stays broken") { MILLRACE_SKIP("operator new is the sanitizer's"); }

#endif
