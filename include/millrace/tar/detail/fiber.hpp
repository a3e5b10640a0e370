// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include <sys/mman.h>
#include <ucontext.h>

#include <millrace/base/compiler.hpp>

#if MILLRACE_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if MILLRACE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace millrace::tar::detail {

/// A function with a stack of its own that can be left in the middle and entered again: turns a library that pulls its
/// input into one that is pushed. 0.3 microseconds a switch (ucontext saves the signal mask by a system call).
///
/// resume() and suspend() are called in turns, always on one thread. The function must have returned, or never have
/// been started, when the fiber is destroyed: what is on its stack is not unwound. It must not let an exception out and
/// must not suspend while one is being handled.
class fiber {
 public:
  /// Allocates the stack; runs nothing yet. Throws std::bad_alloc.
  fiber(std::size_t stack_bytes, void (*function)(void*), void* argument)
      : function_(function), argument_(argument), size_(stack_bytes + guard_bytes) {
    stack_ =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (stack_ == MAP_FAILED) throw std::bad_alloc();
    if (::mprotect(stack_, guard_bytes, PROT_NONE) != 0 || ::getcontext(&own_) != 0) {
      ::munmap(stack_, size_);
      throw std::bad_alloc();
    }
    own_.uc_stack.ss_sp = usable();
    own_.uc_stack.ss_size = stack_bytes;
    own_.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    ::makecontext(&own_, reinterpret_cast<void (*)()>(&fiber::enter), 2, static_cast<unsigned>(self >> 32),
                  static_cast<unsigned>(self));
#if MILLRACE_TSAN
    tsan_own_ = __tsan_create_fiber(0);
#endif
  }
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;
  ~fiber() {
    MILLRACE_ASSERT(done_ || !started_, "a fiber is destroyed while its function is still on its stack");
#if MILLRACE_TSAN
    __tsan_destroy_fiber(tsan_own_);
#endif
    ::munmap(stack_, size_);
  }

  /// Runs the function until it suspends or returns.
  void resume() {
    MILLRACE_ASSERT(!done_, "a fiber is resumed after its end");
    started_ = true;
#if MILLRACE_ASAN
    __sanitizer_start_switch_fiber(&caller_fake_, usable(), size_ - guard_bytes);
#endif
#if MILLRACE_TSAN
    tsan_caller_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_own_, 0);
#endif
    ::swapcontext(&caller_, &own_);
#if MILLRACE_ASAN
    __sanitizer_finish_switch_fiber(caller_fake_, nullptr, nullptr);
#endif
  }

  /// Called inside: goes back to whoever resumed, and returns at the next resume().
  void suspend() {
#if MILLRACE_ASAN
    __sanitizer_start_switch_fiber(&own_fake_, caller_bottom_, caller_size_);
#endif
#if MILLRACE_TSAN
    __tsan_switch_to_fiber(tsan_caller_, 0);
#endif
    ::swapcontext(&own_, &caller_);
#if MILLRACE_ASAN
    __sanitizer_finish_switch_fiber(own_fake_, &caller_bottom_, &caller_size_);
#endif
  }

  /// Whether the function has returned.
  bool done() const noexcept { return done_; }
  /// Whether it has been resumed at least once.
  bool started() const noexcept { return started_; }

 private:
  static constexpr std::size_t guard_bytes = 4096;

  char* usable() const noexcept { return static_cast<char*>(stack_) + guard_bytes; }

  static void enter(unsigned high, unsigned low) {
    auto* self = reinterpret_cast<fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
#if MILLRACE_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &self->caller_bottom_, &self->caller_size_);
#endif
    self->function_(self->argument_);
    self->done_ = true;
#if MILLRACE_ASAN
    __sanitizer_start_switch_fiber(nullptr, self->caller_bottom_, self->caller_size_);  // frees the fake stack
#endif
#if MILLRACE_TSAN
    __tsan_switch_to_fiber(self->tsan_caller_, 0);
#endif
    ::setcontext(&self->caller_);
  }

  void (*function_)(void*);
  void* argument_;
  void* stack_;
  std::size_t size_;
  bool started_ = false;
  bool done_ = false;
  ucontext_t own_;
  ucontext_t caller_;
#if MILLRACE_ASAN
  void* caller_fake_ = nullptr;
  void* own_fake_ = nullptr;
  const void* caller_bottom_ = nullptr;
  std::size_t caller_size_ = 0;
#endif
#if MILLRACE_TSAN
  void* tsan_own_ = nullptr;
  void* tsan_caller_ = nullptr;
#endif
};

}  // namespace millrace::tar::detail
