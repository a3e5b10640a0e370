// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/testing/census.hpp>

namespace millrace::inline MILLRACE_ABI::testing {

MILLRACE_INLINE census::census(executor& ex) noexcept
    : executor_(&ex),
      frames_(ex.frames()),
      operations_(ex.operations()),
      background_(ex.background()),
      timers_(ex.timers()) {}

MILLRACE_INLINE census::~census() {
  if (asked_ || std::uncaught_exceptions() > exceptions_) return;
  const std::string left = difference();
  MILLRACE_ASSERT(left.empty(), left.c_str());
}

MILLRACE_INLINE census& census::count_descriptors() {
  descriptors_ = open_descriptors();
  counts_descriptors_ = true;
  return *this;
}

MILLRACE_INLINE std::string census::difference() {
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

MILLRACE_INLINE void census::compare(std::string& text, std::size_t now, std::size_t before, const char* what) {
  if (now == before) return;
  if (!text.empty()) text += ", ";
  const auto more = static_cast<std::ptrdiff_t>(now) - static_cast<std::ptrdiff_t>(before);
  text += std::to_string(more) + " " + what;
}

MILLRACE_INLINE void census::compare_descriptors(std::string& text) const {
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

MILLRACE_INLINE std::vector<int> census::open_descriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) throw io_error(std::errc(errno), "/proc/self/fd cannot be read");
  std::vector<int> open;
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != ::dirfd(folder)) open.push_back(fd);
  }
  ::closedir(folder);
  std::sort(open.begin(), open.end());
  return open;
}

MILLRACE_INLINE std::string census::name_of(int fd) {
  char target[256];
  const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof target);
  return n > 0 ? std::string(target, static_cast<std::size_t>(n)) : "?";
}

MILLRACE_INLINE void lifetime::add(const void* object, const void* from, std::size_t* counter) {
  std::lock_guard lock(mutex_);
  if (from != nullptr && objects_.count(from) == 0) ++errors_;
  if (!objects_.insert(object).second) ++errors_;
  ++*counter;
  live_set_size_ = objects_.size();
  if (live_set_size_ > peak_) peak_ = live_set_size_;
}

MILLRACE_INLINE void lifetime::remove(const void* object) noexcept {
  std::lock_guard lock(mutex_);
  if (objects_.erase(object) == 0) ++errors_;
  live_set_size_ = objects_.size();
}

}  // namespace millrace::testing
