// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A source of environment variables: the process, or a table in a test.
///
/// A pair of pointers, copied freely; `context` must outlive it. Nothing in the library reads the environment except
/// through an `environment` that was passed in (process_environment() is the real one).
class environment {
 public:
  /// Returns the value of a variable, or null. The text must stay valid until the next call.
  using getter = const char* (*)(void* context, const char* name);

  environment(getter lookup, void* context) noexcept : get_(lookup), context_(context) {}

  /// The value of `name`; a variable that is empty or holds nothing but white space counts as unset.
  std::optional<std::string> get(const char* name) const;

 private:
  getter get_;
  void* context_;
};

/// The variables of this process. getenv(3) is not safe beside a setenv(3) on another thread: read before threads
/// start.
inline environment process_environment() noexcept {
  return environment([](void*, const char* name) -> const char* { return std::getenv(name); }, nullptr);
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/base/environment.ipp>
#endif
