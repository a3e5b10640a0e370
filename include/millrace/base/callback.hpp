// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A reference to a function or a function object, for options that name one: two pointers, copied freely.
///
///     const auto write = [&](const mill::skipped_item& item) { list << item.shard << '\n'; };
///     rt.run(pipeline, {.skipped = write});
///
/// An object must outlive the last call, so temporaries are refused, but for those without state: lambdas that capture
/// nothing. The default refers to nothing, and compares equal to nullptr.
template <class Signature>
class callback;

template <class Result, class... Arguments>
class callback<Result(Arguments...)> {
 public:
  constexpr callback() noexcept = default;
  constexpr callback(std::nullptr_t) noexcept {}
  callback(Result (*function)(Arguments...)) noexcept
      : object_(reinterpret_cast<void*>(function)), call_(function == nullptr ? nullptr : &call_function) {}

  template <class F>
    requires(std::is_object_v<F> && !std::is_same_v<std::remove_cv_t<F>, callback> &&
             std::is_invocable_r_v<Result, F&, Arguments...>)
  callback(F& object) noexcept
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(object)))), call_(&call_object<F>) {}
  template <class F>
    requires(std::is_empty_v<F> && std::is_default_constructible_v<F> &&
             std::is_invocable_r_v<Result, F&, Arguments...>)
  callback(F&&) noexcept : call_(&call_empty<F>) {}

  /// Calls a member function of `object`, or a function with `object` as its first argument:
  /// `callback<void()>::to<&server::stop>(here)`.
  template <auto Function, class T>
  static callback to(T& object) noexcept {
    return callback(object, &call_with<Function, T>);
  }

  Result operator()(Arguments... arguments) const { return call_(object_, static_cast<Arguments>(arguments)...); }
  friend bool operator==(const callback& c, std::nullptr_t) noexcept { return c.call_ == nullptr; }

 private:
  using caller = Result (*)(void*, Arguments...);

  template <class T>
  callback(T& object, caller call) noexcept
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(object)))), call_(call) {}

  static Result call_function(void* function, Arguments... arguments) {
    return reinterpret_cast<Result (*)(Arguments...)>(function)(static_cast<Arguments>(arguments)...);
  }
  template <class F>
  static Result call_object(void* object, Arguments... arguments) {
    return static_cast<Result>((*static_cast<F*>(object))(static_cast<Arguments>(arguments)...));
  }
  template <class F>
  static Result call_empty(void*, Arguments... arguments) {
    return static_cast<Result>(F()(static_cast<Arguments>(arguments)...));
  }
  template <auto Function, class T>
  static Result call_with(void* object, Arguments... arguments) {
    if constexpr (std::is_member_pointer_v<decltype(Function)>) {
      return static_cast<Result>((static_cast<T*>(object)->*Function)(static_cast<Arguments>(arguments)...));
    } else {
      return static_cast<Result>(Function(*static_cast<T*>(object), static_cast<Arguments>(arguments)...));
    }
  }

  void* object_ = nullptr;
  caller call_ = nullptr;
};

}  // namespace millrace
