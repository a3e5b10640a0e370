// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

#include <millrace/base/compiler.hpp>

/// \file
/// The program's operator new, for tests that count allocations or let them fail. One file of a program includes it,
/// and defines test::allocation_fails(). Nothing is replaced with a sanitizer, which has an operator new of its own.

namespace millrace::test {

/// True if the allocation that is asked for now, on any thread, is to fail. Asks for no memory itself.
bool allocation_fails() noexcept;

}  // namespace millrace::test

#if !MILLRACE_ASAN && !MILLRACE_TSAN

// Not inlined: g++ 12 would see malloc() meet operator delete and warn.
MILLRACE_NOINLINE void* operator new(std::size_t size) {
  void* const p = millrace::test::allocation_fails() ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
MILLRACE_NOINLINE void operator delete(void* p) noexcept { std::free(p); }
MILLRACE_NOINLINE void operator delete(void* p, std::size_t) noexcept { std::free(p); }

#endif
