// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>

#include <millrace/version.hpp>

/// Every compiler workaround of the library, named. Nothing else tests for a compiler.

// One clear message instead of the errors that would follow. Headers that include <coroutine> for others include this
// one before it.
#if defined(__clang__) && __clang_major__ < 16
#error millrace needs clang 16 or newer, or g++ 12 or newer
#elif defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
#error millrace needs g++ 12 or newer, or clang 16 or newer
#elif __cplusplus < 202002L
#error millrace needs C++20: compile with -std=c++20 or newer
#elif !defined(__cpp_exceptions)
#error millrace reports errors by exceptions: compile without -fno-exceptions
#endif

/// 1 if g++ destroys some temporaries of a co_await or co_yield expression twice (seen in 12.2; treated as
/// present in every g++ before 13). The generator then refuses `co_yield aggregate{...}` at compile time.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
#define MILLRACE_AGGREGATE_TEMPORARIES_UNSAFE 1
#else
#define MILLRACE_AGGREGATE_TEMPORARIES_UNSAFE 0
#endif

/// 1 if g++ gives a wrong layout to the frame of a coroutine that declares no variable and awaits in a condition, as
/// in `{ if (co_await ready()) go(); }` (PR 106188, seen in 12.2; treated as present in every g++ before 13). Such a
/// coroutine aborts with a message as soon as it is called, instead of corrupting memory when it is resumed.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
#define MILLRACE_AWAIT_IN_CONDITION_UNSAFE 1
#else
#define MILLRACE_AWAIT_IN_CONDITION_UNSAFE 0
#endif

/// g++ 14 cannot find out for the first time inside a template whether a type is swappable, as the constructor of
/// std::string_view from two arguments asks it to: "used before its definition" (seen in 14.2; treated as present in
/// every g++ from 13 on). Here it finds out outside of one.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 13
#include <concepts>
#include <cstddef>
static_assert(std::swappable<const char*> && std::swappable<char*> && std::swappable<int> && std::swappable<unsigned> &&
              std::swappable<std::size_t> && std::swappable<std::ptrdiff_t>);
#endif

/// Before the bodies that one source compiles: g++ (seen in 12.2) warns about the frame of every coroutine that keeps a
/// closure and does not stand in the source itself, as if the frame were a class that others know
/// (-Wsubobject-linkage).
#if defined(__GNUC__) && !defined(__clang__)
#define MILLRACE_QUIET_FRAMES _Pragma("GCC diagnostic ignored \"-Wsubobject-linkage\"")
#else
#define MILLRACE_QUIET_FRAMES
#endif

/// 1 under AddressSanitizer, whichever compiler.
#if defined(__SANITIZE_ADDRESS__)
#define MILLRACE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MILLRACE_ASAN 1
#endif
#endif
#ifndef MILLRACE_ASAN
#define MILLRACE_ASAN 0
#endif

/// 1 under ThreadSanitizer, whichever compiler.
#if defined(__SANITIZE_THREAD__)
#define MILLRACE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MILLRACE_TSAN 1
#endif
#endif
#ifndef MILLRACE_TSAN
#define MILLRACE_TSAN 0
#endif

#define MILLRACE_LIKELY(x) __builtin_expect(!!(x), 1)
#define MILLRACE_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define MILLRACE_NOINLINE __attribute__((noinline))

/// The pointer, hidden from g++'s flow analysis. For destructors and assignments that read members: g++ (seen in
/// 12.2) takes the second look at a user's optional, after `b.reset()`, for one at a value that has ended, and warns
/// about the user's code (-Wmaybe-uninitialized). Costs no instruction.
#define MILLRACE_LAUNDER(pointer) __builtin_launder(pointer)
/// For the few functions that every item passes through: g++ stops inlining them if a translation unit uses them
/// often, and then a small optional travels through memory in pieces.
#define MILLRACE_ALWAYS_INLINE __attribute__((always_inline)) inline

/// Two ways to compile the bodies of functions that are no templates. Without MILLRACE_SEPARATE_COMPILATION
/// (header-only) every header brings its bodies, <name>.ipp. With it (the CMake target millrace::compiled defines it
/// for its users), headers declare, and src/millrace.cpp, which lists the bodies, compiles them once.
///
/// Where the bodies are apart, they have what stages of the library's own types are made of, too:
/// MILLRACE_EXTERN_TEMPLATE declares that in the header, MILLRACE_TEMPLATE stands in the .ipp.
///
/// MILLRACE_INLINE stands before a definition in an .ipp. MILLRACE_COROUTINE stands before the declaration of a
/// coroutine that is no template, and of functions that name one, MILLRACE_COROUTINE_BODY before its definition: g++ 12
/// emits every inline coroutine that it reads, used or not, except a template.
///
/// Neither a virtual function nor a destructor can be a template, and g++ emits the coroutines that they name, too. So
/// these classes have a parameter that nothing uses, in both modes, and no others do:
///   s3/auth/credentials_provider.hpp    basic_fixed_credentials     get() is virtual, and a coroutine
///   shards/file_storage.hpp             basic_file_storage          read() is virtual, and is a coroutine or names one
///   shards/disk_cache.hpp               basic_disk_cache_storage    the same
///   shards/hedged_storage.hpp           basic_hedged_storage        the same
///   shards/http_storage.hpp             basic_http_storage          the same
///   shards/hub_storage.hpp              basic_hub_storage           the same, and list()
///   shards/resident_storage.hpp         basic_resident_storage      the same
///   shards/s3_storage.hpp               basic_s3_storage            the same, and check()
///   formats/mds.hpp                     basic_mds_format            metadata() is virtual, and names a coroutine
///   formats/array_shards.hpp            basic_megatron_format       the same
///   parquet.hpp                         basic_parquet_format        index() is virtual, and a coroutine
///   io/process.hpp                      detail::shell_process       its destructor names a coroutine
///   s3/ops/put_object.hpp               s3::detail::open_upload     the same
///   testing/store_model.ipp             testing::detail::model_client  read() and list() are virtual, and coroutines
/// Users write the names without basic_, which are aliases.
#if defined(MILLRACE_SEPARATE_COMPILATION)
#define MILLRACE_INLINE
#define MILLRACE_COROUTINE
#define MILLRACE_COROUTINE_BODY
#define MILLRACE_EXTERN_TEMPLATE(...) extern template __VA_ARGS__
#define MILLRACE_TEMPLATE(...) template __VA_ARGS__
#else
#define MILLRACE_INLINE inline
#define MILLRACE_COROUTINE template <class = void>
#define MILLRACE_COROUTINE_BODY template <class>
#define MILLRACE_EXTERN_TEMPLATE(...) static_assert(true)
#define MILLRACE_TEMPLATE(...) static_assert(true)
#endif

/// Before the declaration of a function that only translation units with some component define, in the others:
/// the linker takes the definition of any unit that has it, and detail::is_linked() says whether one has. So no layout
/// and no body depends on the components of the unit that it is compiled in.
#define MILLRACE_OTHER_COMPONENT [[gnu::weak]]

/// Before a function that kernels call too, in a .cu. It uses nothing of the standard library but types.
#if defined(__CUDACC__)
#define MILLRACE_HOST_DEVICE __host__ __device__
#else
#define MILLRACE_HOST_DEVICE
#endif

/// A broken invariant of the library, or a misuse that only a destructor finds: prints a message and aborts, in every
/// build. Other misuse is usage_error. Used only off the per-item paths.
#define MILLRACE_ASSERT(condition, message) \
  (MILLRACE_LIKELY(condition) ? void(0) : ::millrace::detail::assertion_failed(#condition, message, __FILE__, __LINE__))

namespace millrace::inline MILLRACE_ABI::detail {

[[noreturn]] MILLRACE_NOINLINE inline void assertion_failed(const char* condition, const char* message,
                                                            const char* file, int line) noexcept {
  std::fprintf(stderr, "millrace: %s (%s) at %s:%d\n", message, condition, file, line);
  std::abort();
}

/// False for a function declared with MILLRACE_OTHER_COMPONENT that no part of the program defines.
template <class Function>
bool is_linked(Function* function) noexcept {
  Function* volatile address = function;  // compilers take the address of a function that they see for never null
  return address != nullptr;
}

/// False for every type: `static_assert(never_v<T>, "...")` in a branch that only a mistake reaches.
template <class...>
inline constexpr bool never_v = false;

/// Returned for a refused composition, so that the compiler prints only the one message: stages, names and run() accept
/// it without further errors.
class [[maybe_unused]] refused {
 public:
  constexpr refused() noexcept = default;
  constexpr refused named(const char*) const noexcept { return {}; }
};

}  // namespace millrace::detail
