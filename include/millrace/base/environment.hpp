// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include <millrace/base/callback.hpp>
#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A source of environment variables: the process, or a table in a test.
///
/// Copied freely; what `look_up` refers to must outlive it. Nothing in the library reads the environment except through
/// an `environment` that was passed in (process_environment() is the real one).
class environment {
 public:
  /// Returns the value of a variable, or null. The text must stay valid until the next call.
  using getter = callback<const char*(const char* name)>;

  explicit environment(getter look_up) noexcept : get_(look_up) {}

  /// The value of `name`; a variable that is empty or holds nothing but white space counts as unset.
  std::optional<std::string> get(const char* name) const;

 private:
  getter get_;
};

/// The variables of this process. getenv(3) is not safe beside a setenv(3) on another thread: read before threads
/// start.
inline environment process_environment() noexcept {
  return environment([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/base/environment.ipp>
#endif
