// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>

namespace millrace::testing {

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
#include <millrace/testing/impl/lifetime.ipp>
#endif
