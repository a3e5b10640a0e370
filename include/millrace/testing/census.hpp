// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <dirent.h>
#include <unistd.h>

#include <millrace/coro/executor.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::testing {

/// What there is, compared with what there was when the census was made. Of an executor: coroutine frames, operations
/// in flight, background clean-ups, timers. Of a slab pool, on request: slabs that somebody holds. Of the process, on
/// request: descriptors. After everything of a test has been dropped and drained, all must be as before:
///
///     census before(loop);
///     before.count_slabs(pool);
///     { auto pipeline = ...; ... }        // dropped, wherever it is
///     loop.drain();
///     CHECK(before.difference() == "");
///
/// Descriptors are counted around a loop (`census before; before.count_descriptors(); { jumping_loop loop; ... }`): a
/// loop has some of its own, and keeps idle connections; and only where no other thread opens any meanwhile.
///
/// The destructor aborts with the difference when a test forgot to look and something is left; not when an exception
/// ends the test.
class census {
 public:
  /// Counts what it is told to count.
  census() = default;
  explicit census(executor& ex) noexcept;
  census(const census&) = delete;
  census& operator=(const census&) = delete;
  ~census();

  /// From now on also the slabs of `pool` that are out.
  census& count_slabs(const slab_pool& pool) {
    pools_.emplace_back(pool, pool.live());
    return *this;
  }
  /// From now on also the open descriptors of the process. Throws io_error where there is no /proc.
  census& count_descriptors();

  /// "" when nothing is left; otherwise what there is too much of, as in "2 frames, 1 timers, 1 descriptors (7:
  /// /tmp/x)".
  std::string difference();

 private:
  static void compare(std::string& text, std::size_t now, std::size_t before, const char* what);

  void compare_descriptors(std::string& text) const;
  /// In ascending order.
  static std::vector<int> open_descriptors();
  static std::string name_of(int fd);

  executor* const executor_ = nullptr;
  const std::size_t frames_ = 0;
  const std::size_t operations_ = 0;
  const std::size_t background_ = 0;
  const std::size_t timers_ = 0;
  std::vector<std::pair<slab_pool, std::size_t>> pools_;
  std::vector<int> descriptors_;
  bool counts_descriptors_ = false;
  bool asked_ = false;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace millrace::testing

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/impl/census.ipp>
#endif
