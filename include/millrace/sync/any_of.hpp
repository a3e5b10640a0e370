// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include <millrace/coro/spawned.hpp>
#include <millrace/sync/detail/branches.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

template <class>
inline constexpr bool is_started = false;
template <class T>
inline constexpr bool is_started<spawned<T>&> = true;

template <class Branches>
class [[nodiscard("nothing runs until it is awaited")]] any_awaitable {
 public:
  explicit any_awaitable(Branches branches) noexcept : branches_(std::move(branches)) {}

  class awaiter : public branches_awaiter<Branches> {
   public:
    awaiter(Branches branches, promise_base& promise)
        : branches_awaiter<Branches>(std::move(branches), true, promise) {}
    typename Branches::any_value await_resume() {
      this->keep_first([](const auto& b) { return b.done(); });
      return this->branches_.take_any();
    }
  };
  awaiter awaited_by(promise_base& promise) && { return awaiter(std::move(branches_), promise); }

 private:
  Branches branches_;
};

/// A function object, so that argument-dependent lookup does not find std::any_of() for tasks of std's types.
class any_of_function {
 public:
  template <class First, class... Rest>
  auto operator()(First&& first, Rest&&... rest) const {
    static_assert(!is_started<First> && !(is_started<Rest> || ...),
                  "a spawned task that does not count keeps its result: await its end, any_of(s.ended(), ...)");
    using branches = branch_tuple<task_value<First>, task_value<Rest>...>;
    return any_awaitable<branches>(
        branches(as_task(static_cast<First&&>(first)), as_task(static_cast<Rest&&>(rest))...));
  }
  template <class T>
  auto operator()(std::vector<task<T>>&& tasks) const {
    if (tasks.empty()) misused("any_of() was given no task: none could ever end");
    return any_awaitable<branch_list<T>>(branch_list<T>(std::move(tasks)));
  }
};

}  // namespace detail

/// Awaits several tasks at once; the first that ends counts, the others are dropped.
///
/// Each argument is a task, moved in, or another awaitable object: sleep_for(d), e.wait(), g.next(), the end of a
/// spawned task. The result is a std::variant with a place for each argument (std::monostate if there is no value),
/// whose index() tells which one it was. A std::vector of tasks gives an object with `index` and `value`.
///
/// Concurrency: all are started through the run queue, in their order, on the executor and in the stage of the awaiting
/// coroutine, which is queued when the first one ends. Several may have ended by the time it runs: then the first of
/// them in the order of the arguments counts, whether it has a value or an exception. So a task that never suspends
/// wins over later arguments, and a result wins over a later sleep that is over as well.
///
/// Cancellation: the others are dropped, the last one first, when the awaiting coroutine resumes and before the result
/// is delivered: never while one of them runs. Tasks that have ended by then lose their results and exceptions: an item
/// that must not be lost, like that of g.next(), belongs in the first place. Dropping the await drops all. Lifetime:
/// tasks are owned by the await. Arguments passed as lvalues must outlive it. Errors: the exception of the one that
/// counts. usage_error for an empty task and for an empty vector, of which none could ever end; nothing has run then.
/// Example:
///
///     auto first = co_await any_of(receive(c), sleep_for(1s));
///     if (first.index() == 1) throw timeout_error("nothing came");
///     use(std::get<0>(first));
inline constexpr detail::any_of_function any_of;

}  // namespace millrace
