// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <millrace/sync/detail/branches.hpp>
#include <millrace/sync/scope.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

template <class Branches>
class [[nodiscard("nothing runs until it is awaited")]] all_awaitable {
 public:
  all_awaitable(Branches branches, further_errors* further) noexcept
      : branches_(std::move(branches)), further_(further) {}

  class awaiter : public branches_awaiter<Branches> {
   public:
    awaiter(Branches branches, further_errors* further, promise_base& promise)
        : branches_awaiter<Branches>(std::move(branches), false, promise), further_(further) {}
    typename Branches::all_values await_resume() {
      const std::size_t others = this->keep_first([](const auto& b) { return b.failed(); });
      if (further_ != nullptr) further_->add(others);
      this->branches_.each([](auto& b) {
        if (b.failed()) b.take();  // throws
      });
      return this->branches_.take_all();
    }

   private:
    further_errors* further_;
  };
  awaiter awaited_by(promise_base& promise) && { return awaiter(std::move(branches_), further_, promise); }

 private:
  Branches branches_;
  further_errors* further_;
};

/// See any_of_function.
class all_of_function {
 public:
  template <class First, class... Rest>
  auto operator()(First&& first, Rest&&... rest) const {
    return of_tuple(nullptr, static_cast<First&&>(first), static_cast<Rest&&>(rest)...);
  }
  template <class First, class... Rest>
  auto operator()(further_errors& further, First&& first, Rest&&... rest) const {
    return of_tuple(&further, static_cast<First&&>(first), static_cast<Rest&&>(rest)...);
  }
  template <class T>
  auto operator()(std::vector<task<T>>&& tasks) const {
    return all_awaitable<branch_list<T>>(branch_list<T>(std::move(tasks)), nullptr);
  }
  template <class T>
  auto operator()(further_errors& further, std::vector<task<T>>&& tasks) const {
    return all_awaitable<branch_list<T>>(branch_list<T>(std::move(tasks)), &further);
  }

 private:
  template <class... A>
  static auto of_tuple(further_errors* further, A&&... awaited) {
    using branches = branch_tuple<task_value<A>...>;
    return all_awaitable<branches>(branches(as_task(static_cast<A&&>(awaited))...), further);
  }
};

}  // namespace detail

/// Awaits several tasks at once, until all have ended.
///
/// Each argument is a task, moved in, or another awaitable object (see any_of()). The result is a std::tuple of the
/// values in the order of the arguments, std::monostate if there is none. A std::vector of tasks gives a std::vector
/// of the values, and nothing if they have none.
///
/// Concurrency: all are started through the run queue, in their order, on the executor and in the stage of the awaiting
/// coroutine. Without tasks (an empty vector) it is done at once. Cancellation: dropping the await drops all, the last
/// one first. Lifetime: tasks are owned by the await. Arguments passed as lvalues must outlive it. Errors: the first
/// exception drops the others, before it is delivered. If several were thrown by the time the awaiting coroutine runs,
/// it gets that of the first in the order of the arguments; the others are counted in `further` if that is given.
/// usage_error for an empty task; nothing has run then. Example:
///
///     auto both = co_await all_of(load(a), load(b));     // no structured binding here: g++ 15 leaks it when dropped
///     use(std::get<0>(both), std::get<1>(both));
///
///     further_errors further;
///     std::vector<part> parts = co_await all_of(further, std::move(reads));
inline constexpr detail::all_of_function all_of;

}  // namespace millrace
