// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/executor.hpp>
#include <millrace/memory/slab_pool.hpp>

namespace millrace::inline MILLRACE_ABI::testing {

/// Compares the resources in use with those at its construction. Counted of an executor: coroutine frames, operations
/// in flight, background clean-ups, timers. Counted of a slab pool, on request: slabs in use. Counted of the process,
/// on request: descriptors. After a test has dropped and drained everything, the counts must be as before:
///
///     census before(loop);
///     before.count_slabs(pool);
///     { auto pipeline = ...; ... }        // dropped, wherever it is
///     loop.drain();
///     CHECK(before.difference() == "");
///
/// Descriptors are counted around a loop (`census before; before.count_descriptors(); { jumping_loop loop; ... }`): a
/// loop has some of its own, and keeps idle connections; and only if no other thread opens any meanwhile.
///
/// The destructor aborts with the difference if a test did not check it and something is left; not when an exception
/// ends the test.
class census {
 public:
  /// Counts only the resources added by count_slabs() and count_descriptors().
  census() = default;
  explicit census(executor& ex) noexcept;
  census(const census&) = delete;
  census& operator=(const census&) = delete;
  ~census();

  /// Also counts the slabs of `pool` that are in use.
  census& count_slabs(const slab_pool& pool) {
    pools_.emplace_back(pool, pool.live());
    return *this;
  }
  /// Also counts the open descriptors of the process. Throws io_error if there is no /proc.
  census& count_descriptors();

  /// "" if nothing is left; otherwise the rest, such as "2 frames, 1 timers, 1 descriptors (7: /tmp/x)".
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

/// Counts the life of the `tracked` objects of one test: how many live, how often they were copied and moved, and
/// whether one was destroyed twice or used after its end. Thread-safe. Must outlive its objects.
class lifetime {
 public:
  lifetime() = default;
  lifetime(const lifetime&) = delete;
  lifetime& operator=(const lifetime&) = delete;

  std::size_t live() const { return read(live_set_size_); }
  std::size_t peak() const { return read(peak_); }
  std::size_t made() const { return read(made_); }
  std::size_t copies() const { return read(copies_); }
  std::size_t moves() const { return read(moves_); }
  /// Objects destroyed twice, or copied or moved from after their end.
  std::size_t errors() const { return read(errors_); }

 private:
  friend class tracked;

  std::size_t read(const std::size_t& counter) const {
    std::lock_guard lock(mutex_);
    return counter;
  }
  void add(const void* object, const void* from, std::size_t* counter);
  void remove(const void* object) noexcept;

  mutable std::mutex mutex_;
  std::set<const void*> objects_;
  std::size_t live_set_size_ = 0;
  std::size_t peak_ = 0;
  std::size_t made_ = 0;
  std::size_t copies_ = 0;
  std::size_t moves_ = 0;
  std::size_t errors_ = 0;
};

/// An item with a value whose life is counted. It has no default constructor and cannot be assigned; value() of one
/// that has been moved from is -1.
class tracked {
 public:
  tracked(lifetime& log, std::int64_t value) : log_(&log), value_(value) { log_->add(this, nullptr, &log.made_); }
  tracked(const tracked& other) : log_(other.log_), value_(other.value_) { log_->add(this, &other, &log_->copies_); }
  tracked(tracked&& other) noexcept : log_(other.log_), value_(other.value_) {
    log_->add(this, &other, &log_->moves_);
    other.value_ = -1;
  }
  tracked& operator=(const tracked&) = delete;
  ~tracked() { log_->remove(this); }

  std::int64_t value() const noexcept { return value_; }

 private:
  lifetime* log_;
  std::int64_t value_;
};

}  // namespace millrace::testing

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/census.ipp>
#endif
