// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <dirent.h>
#include <unistd.h>

#include <millrace/base/error.hpp>
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
  explicit census(executor& ex) noexcept
      : executor_(&ex),
        frames_(ex.frames()),
        operations_(ex.operations()),
        background_(ex.background()),
        timers_(ex.timers()) {}
  census(const census&) = delete;
  census& operator=(const census&) = delete;
  ~census() {
    if (asked_ || std::uncaught_exceptions() > exceptions_) return;
    const std::string left = difference();
    MILLRACE_ASSERT(left.empty(), left.c_str());
  }

  /// From now on also the slabs of `pool` that are out.
  census& count_slabs(const slab_pool& pool) {
    pools_.emplace_back(pool, pool.live());
    return *this;
  }
  /// From now on also the open descriptors of the process. Throws io_error where there is no /proc.
  census& count_descriptors() {
    descriptors_ = open_descriptors();
    counts_descriptors_ = true;
    return *this;
  }

  /// "" when nothing is left; otherwise what there is too much of, as in "2 frames, 1 timers, 1 descriptors (7:
  /// /tmp/x)".
  std::string difference() {
    asked_ = true;
    std::string text;
    if (executor_ != nullptr) {
      compare(text, executor_->frames(), frames_, "frames");
      compare(text, executor_->operations(), operations_, "operations");
      compare(text, executor_->background(), background_, "background clean-ups");
      compare(text, executor_->timers(), timers_, "timers");
    }
    for (const auto& [pool, before] : pools_) compare(text, pool.live(), before, "slabs");
    if (counts_descriptors_) compare_descriptors(text);
    return text;
  }

 private:
  static void compare(std::string& text, std::size_t now, std::size_t before, const char* what) {
    if (now == before) return;
    if (!text.empty()) text += ", ";
    const auto more = static_cast<std::ptrdiff_t>(now) - static_cast<std::ptrdiff_t>(before);
    text += std::to_string(more) + " " + what;
  }

  void compare_descriptors(std::string& text) const {
    const std::vector<int> now = open_descriptors();
    std::string names;
    std::size_t added = 0;
    for (const int fd : now) {
      if (std::binary_search(descriptors_.begin(), descriptors_.end(), fd)) continue;
      ++added;
      names += (names.empty() ? "" : ", ") + std::to_string(fd) + ": " + name_of(fd);
    }
    compare(text, added, 0, "descriptors");
    if (added > 0) text += " (" + names + ")";
    compare(text, now.size() - added, descriptors_.size(), "descriptors");
  }
  /// In ascending order.
  static std::vector<int> open_descriptors() {
    DIR* const folder = ::opendir("/proc/self/fd");
    if (folder == nullptr) throw io_error(errno, "/proc/self/fd cannot be read");
    std::vector<int> open;
    while (const dirent* entry = ::readdir(folder)) {
      const int fd = std::atoi(entry->d_name);
      if (entry->d_name[0] != '.' && fd != ::dirfd(folder)) open.push_back(fd);
    }
    ::closedir(folder);
    std::sort(open.begin(), open.end());
    return open;
  }
  static std::string name_of(int fd) {
    char target[256];
    const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof target);
    return n > 0 ? std::string(target, static_cast<std::size_t>(n)) : "?";
  }

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
