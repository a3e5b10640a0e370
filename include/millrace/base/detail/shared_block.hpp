// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

namespace millrace::detail {

/// True while the program has one thread, where that is known: counting is cheaper then.
inline bool only_thread() noexcept {
#if __has_include(<sys/single_threaded.h>)
  return __libc_single_threaded != 0;
#else
  return false;
#endif
}

/// How many own an object, and how it ends: what `shared` needs of it, whatever its type. Counting is for any thread.
class shared_block {
 public:
  shared_block(const shared_block&) = delete;
  shared_block& operator=(const shared_block&) = delete;

  /// One owner more; the caller is one.
  void keep() noexcept {
    if (only_thread()) {
      owners_.store(owners() + 1, std::memory_order_relaxed);
    } else {
      owners_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  /// One owner less: the last one ends the object and the block.
  void drop() noexcept {
    // Nobody can come when one is left.
    if (only_owner()) return end_(this);
    if (only_thread()) {
      owners_.store(owners() - 1, std::memory_order_relaxed);
    } else if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      end_(this);
    }
  }
  std::size_t owners() const noexcept { return owners_.load(std::memory_order_relaxed); }
  /// What the others did with the object before they left is seen by the one that is left.
  bool only_owner() const noexcept { return owners_.load(std::memory_order_acquire) == 1; }

 protected:
  using ending = void (*)(shared_block*) noexcept;
  explicit shared_block(ending end) noexcept : end_(end) {}
  ~shared_block() = default;

 private:
  const ending end_;
  std::atomic<std::size_t> owners_{1};
};

/// The block together with the object.
template <class T>
struct shared_value final : shared_block {
  template <class... Arguments>
  explicit shared_value(Arguments&&... arguments) : shared_block(&end), value(std::forward<Arguments>(arguments)...) {}
  static void end(shared_block* block) noexcept { delete static_cast<shared_value*>(block); }
  T value;
};

}  // namespace millrace::detail
