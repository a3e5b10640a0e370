// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <typeinfo>

namespace millrace {

/// Which type something is of. Equal for one type also in two shared objects that hide their symbols from each other
/// (-fvisibility=hidden): its address tells a type only inside of one, its name in both. Types of unnamed namespaces are
/// told by address, since those of two source files may have one name.
class type_id {
 public:
  /// T may be incomplete.
  template <class T>
  static type_id of() noexcept {
    return type_id(typeid(T*));
  }

  friend bool operator==(const type_id& a, const type_id& b) noexcept {
    if (a.type_ == b.type_) return true;
    const char* const name = a.type_->name();
    return std::strcmp(name, b.type_->name()) == 0 && std::strstr(name, "_GLOBAL__N_") == nullptr;
  }

 private:
  explicit type_id(const std::type_info& type) noexcept : type_(&type) {}
  const std::type_info* type_;
};

}  // namespace millrace
