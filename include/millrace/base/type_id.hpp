// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <initializer_list>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Identifies a type without run-time type information. Equal for one type also in two shared objects that hide their
/// symbols from each other (-fvisibility=hidden): an address identifies a type only inside one of them, its name in
/// both. Types of unnamed namespaces and of functions, lambdas among them, are identified by address alone, since two
/// of them may have one name.
class type_id {
 public:
  /// T may be incomplete.
  template <class T>
  static type_id of() noexcept {
    return type_id(&here<T>, name<T>());
  }

  friend bool operator==(const type_id& a, const type_id& b) noexcept {
    if (a.place_ == b.place_) return true;
    return std::strcmp(a.name_, b.name_) == 0 && is_unique(a.name_);
  }

 private:
  type_id(const char* place, const char* type) noexcept : place_(place), name_(type) {}

  template <class T>
  static constexpr char here = 0;
  template <class T>
  static const char* name() noexcept {
    return __PRETTY_FUNCTION__;  // "... [with T = the type]", "... [T = the type]"
  }
  static bool is_unique(const char* text) noexcept;

  const char* place_;
  const char* name_;
};

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

inline bool type_id::is_unique(const char* text) noexcept {
  const char* const type = std::strstr(text, "T = ");
  for (const char* const part : {"{anonymous}", "(anonymous", "<lambda", "(lambda", ")::"}) {
    if (type == nullptr || std::strstr(type, part) != nullptr) return false;
  }
  return true;
}

}  // namespace millrace
