// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

#include <millrace/base/compiler.hpp>
#include <millrace/tar/detail/fiber.hpp>

namespace millrace::inline MILLRACE_ABI::tar::detail {

MILLRACE_INLINE fiber::fiber(std::size_t stack_bytes, void (*function)(void*), void* argument)
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

MILLRACE_INLINE fiber::~fiber() {
  MILLRACE_ASSERT(done_ || !started_, "a fiber is destroyed while its function is still on its stack");
#if MILLRACE_TSAN
  __tsan_destroy_fiber(tsan_own_);
#endif
  ::munmap(stack_, size_);
}

MILLRACE_INLINE void fiber::resume() {
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

MILLRACE_INLINE void fiber::suspend() {
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

MILLRACE_INLINE void fiber::enter(unsigned high, unsigned low) {
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

}  // namespace millrace::tar::detail
