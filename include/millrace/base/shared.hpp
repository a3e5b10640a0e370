// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/shared_block.hpp>

namespace millrace {

template <class T>
class shared;

namespace detail {

/// Another library's shared pointer that a shared<T> can be made of: std::shared_ptr<U>, told by what it can do, so
/// that <memory> need not be there.
template <class Pointer, class T>
concept foreign_shared = requires(const Pointer& from, T*& to) {
  to = from.get();
  from.use_count();
  from.owner_before(from);
};

}  // namespace detail

/// One of the owners of an object on the heap, which ends with the last of them. Null after it was moved from.
///
/// It does what std::shared_ptr does, without weak pointers and deleters, and is here for the sake of those who include
/// millrace: <memory> and its instantiations were a tenth of what g++ 12 did (at -O0) to compile millrace.hpp. Owners
/// of one object may be copied and dropped on several threads at once; one owner is used by one thread at a time.
///
/// A std::shared_ptr converts to it, so that whoever has one passes it as it is. Both own the object then.
template <class T>
class shared {
 public:
  using element_type = T;

  shared() noexcept = default;
  shared(std::nullptr_t) noexcept {}
  shared(const shared& other) noexcept : object_(other.object_), block_(other.block_) {
    if (block_ != nullptr) block_->keep();
  }
  shared(shared&& other) noexcept : object_(other.object_), block_(other.block_) { other.forget(); }
  /// Of a base class, of a const object, of void. The object ends as what it was made as: a base needs no virtual
  /// destructor.
  template <class Other>
    requires requires(Other* from, T*& to) { to = from; }
  shared(const shared<Other>& other) noexcept : object_(other.object_), block_(other.block_) {
    if (block_ != nullptr) block_->keep();
  }
  template <class Other>
    requires requires(Other* from, T*& to) { to = from; }
  shared(shared<Other>&& other) noexcept : object_(other.object_), block_(other.block_) {
    other.forget();
  }
  /// Keeps a std::shared_ptr and its object alive; an allocation. Null for one without an object.
  template <class Pointer>
    requires detail::foreign_shared<Pointer, T>
  shared(Pointer other) : object_(other.get()) {
    if (object_ != nullptr) block_ = new detail::shared_value<Pointer>(std::move(other));
  }
  /// Lets go of the present object after it has taken `other` over, which may be the last owner of what is in it.
  shared& operator=(shared other) noexcept {
    object_ = other.object_;
    std::swap(block_, other.block_);
    return *this;
  }
  ~shared() {
    if (block_ != nullptr) block_->drop();
  }

  T* get() const noexcept { return object_; }
  auto& operator*() const noexcept { return *object_; }  // not T&: T may be void
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  bool operator==(std::nullptr_t) const noexcept { return object_ == nullptr; }
  /// Whether both have the same object.
  template <class Other>
  bool operator==(const shared<Other>& other) const noexcept {
    return object_ == other.object_;
  }

  /// Lets go of the object after it has forgotten it.
  void reset() noexcept { *this = shared(); }
  /// How many own the object; 0 for none. Others may come and go meanwhile, unless this is the only one.
  std::size_t use_count() const noexcept { return block_ == nullptr ? 0 : block_->owners(); }

 private:
  template <class>
  friend class shared;
  template <class Made, class... Arguments>
  friend shared<Made> make_shared_object(Arguments&&... arguments);

  void forget() noexcept {
    object_ = nullptr;
    block_ = nullptr;
  }

  T* object_ = nullptr;
  detail::shared_block* block_ = nullptr;
};

/// A new `T` that several may own, made from the arguments as std::make_shared does: in one allocation.
template <class T, class... Arguments>
shared<T> make_shared_object(Arguments&&... arguments) {
  auto* const made = new detail::shared_value<std::remove_const_t<T>>(std::forward<Arguments>(arguments)...);
  shared<T> first;
  first.object_ = &made->value;
  first.block_ = made;
  return first;
}

}  // namespace millrace
