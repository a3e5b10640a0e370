// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// User functions may be anything that std::invoke takes with one argument (<functional> is too heavy for this).
template <class F, class Arg>
constexpr decltype(auto) call(F&& f, Arg&& arg) {
  if constexpr (std::is_member_object_pointer_v<std::remove_cvref_t<F>>) {
    return (static_cast<Arg&&>(arg).*f);
  } else if constexpr (std::is_member_function_pointer_v<std::remove_cvref_t<F>>) {
    return (static_cast<Arg&&>(arg).*f)();
  } else {
    return static_cast<F&&>(f)(static_cast<Arg&&>(arg));
  }
}
template <class F, class Arg>
concept member_callable_with = requires(F&& f, Arg&& arg) { (static_cast<Arg&&>(arg).*f)(); } ||
                               requires(F&& f, Arg&& arg) { static_cast<Arg&&>(arg).*f; };
/// Asked without a look at call(), whose result is deduced: an error in there would be no answer.
template <class F, class Arg>
concept callable_with =
    std::is_invocable_v<F, Arg> && (!std::is_member_pointer_v<std::remove_cvref_t<F>> || member_callable_with<F, Arg>);
template <class F, class Arg>
using call_result_t = std::remove_cvref_t<std::invoke_result_t<F, Arg>>;

template <class T>
inline constexpr bool is_task_v = false;
template <class T>
inline constexpr bool is_task_v<task<T>> = true;

template <class T>
struct awaited {
  using type = T;
};
template <class T>
struct awaited<task<T>> {
  using type = T;
};
/// The value of a function that may return a task: the task's result.
template <class F, class Arg>
using mapped_t = typename awaited<call_result_t<F, Arg>>::type;

template <class F, class Arg>
concept maps = callable_with<F, Arg> && !std::is_void_v<mapped_t<F, Arg>>;
template <class F, class Arg>
concept tests = callable_with<F, Arg> && std::is_constructible_v<bool, mapped_t<F, Arg>>;

/// For explain() of stages with a user's function: why it is no stage for items of type T.
template <class F, class Arg>
constexpr void explain_call() {
  static_assert(
      callable_with<F, Arg>,
      "the function given to this stage cannot be called with the items that come from the left side of | (it takes an "
      "item by value, by const& or by &&)");
}

}  // namespace millrace::detail

/// `source | stage` and `stage | stage`.
///
/// A stage is any callable from async_generator<T> to async_generator<U>: an object of the library, a function, a
/// lambda that is a coroutine, captures included (the pipe keeps the function object as long as the generator that it
/// returned). It may return a stream<U> instead, which has declarations, and take a stream<T>. `source | stage`
/// consumes the source, a generator or a stream, and returns a stream; nothing runs until its items are requested. The
/// pipe puts the source's declarations before those of the stage's result: a stage need not do anything for that.
/// `stage | stage` is a stage. One side of `|` must be a type of the library: `named("x", mine) | yours`.
///
/// Under g++ 12 a pipeline whose lambdas capture objects must be a statement of its own, not part of a co_await
/// expression.

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// Base of stages that move all their state into their coroutine when they are called: the pipe need not keep them.
struct library_stage {};

template <class Stage>
inline constexpr bool keeps_state_v =
    std::is_class_v<Stage> && !std::is_empty_v<Stage> && !std::is_base_of_v<library_stage, Stage>;

/// False; the compiler shows both types by name beside the message.
template <class Stage, class Source>
inline constexpr bool is_stage_for = false;

/// The message why this stage does not take these items: the stage's own, from its explain<T>(), if it has one.
template <class T, class Stage>
constexpr void explain_refusal() {
  if constexpr (requires { Stage::template explain<T>(); }) {
    Stage::template explain<T>();
  } else if constexpr (std::is_function_v<std::remove_pointer_t<Stage>>) {
    static_assert(is_stage_for<Stage, async_generator<T>>,
                  "the function on the right of | is no stage for these items; a stage factory must be called, as in "
                  "source | untar()");
  } else {
    static_assert(is_stage_for<Stage, async_generator<T>>,
                  "the right side of | is not a stage for these items: it cannot be called with the async_generator on "
                  "the left side");
  }
}

template <class Stage>
refused apply_stage(refused, const Stage&) {
  return refused();
}
/// An argument that only a parameter of type stream<T> takes. Functions and function objects with one signature are
/// asked: of others the question would instantiate the body.
template <class T>
struct only_a_stream {
  operator stream<T>() const noexcept;
};
template <class Stage, class T>
inline constexpr bool takes_stream_v = false;
template <class Stage, class T>
  requires(std::is_function_v<std::remove_pointer_t<Stage>> || requires { sizeof(&Stage::operator()); })
inline constexpr bool takes_stream_v<Stage, T> = std::is_invocable_v<Stage, only_a_stream<T>>;

/// The result of applying a stage to its source: it takes a generator or, if its parameter is one or it takes nothing
/// else, a stream, with the size of a batch that was declared.
template <class T, class Stage>
decltype(auto) call_stage(Stage&& stage, stream<T>&& source) {
  if constexpr (requires { stage.make_batches_of(source.declared_batch()); }) {
    stage.make_batches_of(source.declared_batch());
  }
  if constexpr (!takes_stream_v<Stage, T> && std::is_invocable_v<Stage, async_generator<T>>) {
    return std::move(stage)(std::move(source).generator());
  } else {
    return std::move(stage)(std::move(source));
  }
}
template <class T, class Stage>
auto apply_stage(stream<T> source, Stage stage) {
  if constexpr (!std::is_invocable_v<Stage, async_generator<T>> && !std::is_invocable_v<Stage, stream<T>>) {
    explain_refusal<T, Stage>();
    return refused();
  } else {
    using result = decltype(call_stage<T>(std::move(stage), std::move(source)));
    if constexpr (std::is_same_v<result, refused>) {
      return refused();
    } else {
      static_assert(is_source_v<result>, "the right side of | is not a stage: it does not return an async_generator");
      if (!source) misused("an empty generator was piped into a stage: it was moved from, or never made");
      if constexpr (!is_source_v<result>) {
        return refused();
      } else {
        using item = typename result::value_type;
        stream_description upstream = stream_access::take_description(source);
        if constexpr (keeps_state_v<Stage>) {
          auto kept = std::make_shared<Stage>(std::move(stage));  // first: the coroutine refers to this object
          stream<item> made = call_stage<T>(std::move(*kept), std::move(source));
          stream_access::number(made);
          return stream_access::continued(std::move(upstream), std::move(made)).keep(std::move(kept));
        } else {
          stream<item> made = call_stage<T>(std::move(stage), std::move(source));
          if constexpr (!std::is_base_of_v<library_stage, Stage>) stream_access::number(made);
          return stream_access::continued(std::move(upstream), std::move(made));
        }
      }
    }
  }
}

}  // namespace detail

/// Two stages, one after the other: the result of `stage | stage`.
template <class First, class Second>
class composed_stage : public detail::library_stage {
 public:
  composed_stage(First first, Second second) : first_(std::move(first)), second_(std::move(second)) {}

  template <class T>
  auto operator()(async_generator<T> source) && {
    return detail::apply_stage(
        detail::apply_stage(stream<T>(std::move(source)).batches_of(batch_), std::move(first_)), std::move(second_));
  }
  /// See stream::batches_of().
  void make_batches_of(std::size_t items) noexcept { batch_ = items; }

 private:
  std::size_t batch_ = 0;
  First first_;
  Second second_;
};

namespace detail {

/// The library's `|` does not apply to enumerations (flags of system headers), nor to ranges of the library's types on
/// their way into the adaptors of the standard library.
template <class Left, class Right>
concept piped =
    !std::is_enum_v<std::remove_cvref_t<Left>> && !std::is_enum_v<std::remove_cvref_t<Right>> &&
    (!requires(Left& left) { left.begin() != left.end(); } || std::is_base_of_v<library_stage, std::decay_t<Right>>);

}  // namespace detail

/// See the head of this file.
template <class Left, class Right>
  requires detail::piped<Left, Right>
auto operator|(Left&& left, Right&& right) {
  using from = std::remove_cvref_t<Left>;
  using stage = std::decay_t<Right>;
  if constexpr (std::is_same_v<from, detail::refused> || std::is_same_v<stage, detail::refused>) {
    return detail::refused();
  } else if constexpr (detail::is_source_v<from>) {
    static_assert(!std::is_lvalue_reference_v<Left> && !std::is_const_v<std::remove_reference_t<Left>>,
                  "a pipe consumes the generator on its left side: write std::move(generator) | stage");
    if constexpr (std::is_same_v<from, Left>) {
      stream<typename from::value_type> source(std::move(left));
      detail::stream_access::number(source);
      return detail::apply_stage(std::move(source), stage(std::forward<Right>(right)));
    } else {
      return detail::refused();
    }
  } else {
    static_assert(!detail::is_source_v<stage>,
                  "the generator comes first: write generator | stage, not stage | generator");
    constexpr bool range = requires { left.begin() != left.end(); };
    static_assert(range || std::is_class_v<from> || std::is_function_v<std::remove_pointer_t<std::decay_t<Left>>>,
                  "the left side of | is neither an async_generator nor a stage");
    static_assert(
        !range,
        "a range is not a generator: write from_range(std::move(range)) | stage, or shards(names) | stage where "
        "they are names of shards");
    static_assert(std::is_class_v<stage> || std::is_function_v<std::remove_pointer_t<stage>>,
                  "the right side of | is not a stage");
    return composed_stage<std::decay_t<Left>, stage>(std::forward<Left>(left), std::forward<Right>(right));
  }
}

namespace detail {
// Stages of this namespace: for a range of another library on their left side nothing but this is looked at.
using millrace::operator|;
}  // namespace detail

/// Returned by named().
template <class Stage>
class named_stage : public detail::library_stage {
 public:
  named_stage(const char* name, Stage stage) : name_(name), stage_(std::move(stage)) {}

  template <class T>
  auto operator()(async_generator<T> source) && {
    return detail::apply_stage(stream<T>(std::move(source)).batches_of(batch_), std::move(stage_)).named(name_);
  }
  /// See stream::batches_of().
  void make_batches_of(std::size_t items) noexcept { batch_ = items; }

 private:
  std::size_t batch_ = 0;
  const char* name_;
  Stage stage_;
};

/// `source | named("augment", stage)`: gives a stage a name in the stage table. The stages of the library name
/// themselves and can be renamed; one of the user's without a name is "stage 3" if it is the third in the table. A
/// generator that a stage makes and asks outside of a pipe counts as part of that stage. `name` must be a literal or
/// live as long as the run.
template <class Stage>
named_stage<Stage> named(const char* name, Stage stage) {
  return named_stage<Stage>(name, std::move(stage));
}

}  // namespace millrace
