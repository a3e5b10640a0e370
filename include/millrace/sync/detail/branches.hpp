// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/coro/task.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The coroutine that awaits several tasks at once: it is notified when each ends, and queued when it need not wait for
/// more.
class fork : protected waiting_awaiter {
 public:
  void ended(bool failed) noexcept {
    --under_way_;
    if (under_way_ == 0 || failed || first_counts_) wake();
  }

 protected:
  fork(promise_base& promise, std::size_t branches, bool first_counts) noexcept
      : waiting_awaiter(promise), under_way_(branches), first_counts_(first_counts) {}
  ~fork() = default;

 private:
  std::size_t under_way_;
  const bool first_counts_;
};

/// One of several tasks that a coroutine awaits at once. Stays where it is from bind() on.
template <class T>
class branch final : private completion {
 public:
  using value_type = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

  explicit branch(task<T> t) noexcept : task_(std::move(t)) {}
  branch(branch&& other) noexcept : task_(std::move(other.task_)) {}

  void bind(fork& whole, const coroutine_context& here) {
    if (!task_) misused("any_of() or all_of() awaits an empty task: it was moved from, or never made");
    task_.handle_.promise().bind(here);
    task_.handle_.promise().set_completion(this);
    whole_ = &whole;
  }
  /// Queues the task.
  void start() noexcept { task_.handle_.promise().post_self(task_.handle_); }
  void drop() noexcept {
    done_ = false;
    task_ = task<T>();
  }

  bool done() const noexcept { return done_; }
  bool failed() const noexcept { return done_ && task_.handle_.promise().failed(); }
  /// The value of a branch that is done, or its exception.
  value_type take() {
    if constexpr (std::is_void_v<T>) {
      task_.handle_.promise().take();
      return std::monostate();
    } else {
      return task_.handle_.promise().take();
    }
  }

 private:
  void completed() noexcept override {
    done_ = true;
    whole_->ended(failed());
  }

  task<T> task_;
  fork* whole_ = nullptr;
  bool done_ = false;
};

/// Branches of any types. Operations on all follow their order; branches are dropped in reverse order.
template <class... T>
class branch_tuple {
 public:
  using any_value = std::variant<typename branch<T>::value_type...>;
  using all_values = std::tuple<typename branch<T>::value_type...>;

  explicit branch_tuple(task<T>... tasks) noexcept : branches_(branch<T>(std::move(tasks))...) {}

  static constexpr std::size_t size() noexcept { return sizeof...(T); }
  template <class Function>
  void each(Function&& f) {
    each(f, std::index_sequence_for<T...>());
  }
  template <class Function>
  void each_from_last(Function&& f) {
    each_from_last(f, std::index_sequence_for<T...>());
  }

  /// The value of the first branch that is done; one must be.
  template <std::size_t I = 0>
  any_value take_any() {
    if constexpr (I + 1 < sizeof...(T)) {
      if (!std::get<I>(branches_).done()) return take_any<I + 1>();
    }
    return any_value(std::in_place_index<I>, std::get<I>(branches_).take());
  }
  all_values take_all() { return take_all(std::index_sequence_for<T...>()); }

 private:
  template <class Function, std::size_t... I>
  void each(Function& f, std::index_sequence<I...>) {
    (f(std::get<I>(branches_)), ...);
  }
  template <class Function, std::size_t... I>
  void each_from_last(Function& f, std::index_sequence<I...>) {
    (f(std::get<sizeof...(T) - 1 - I>(branches_)), ...);
  }
  template <std::size_t... I>
  all_values take_all(std::index_sequence<I...>) {
    return all_values{std::get<I>(branches_).take()...};  // braces: in their order
  }

  std::tuple<branch<T>...> branches_;
};

/// The value of one of several equal tasks, and which one it was.
template <class T>
struct indexed_value {
  indexed_value(std::size_t i, T v) : index(i), value(std::move(v)) {}
  std::size_t index;
  T value;
};

/// Any number of branches of one type.
template <class T>
class branch_list {
 public:
  using any_value = indexed_value<typename branch<T>::value_type>;
  using all_values = std::conditional_t<std::is_void_v<T>, void, std::vector<typename branch<T>::value_type>>;

  explicit branch_list(std::vector<task<T>> tasks) {
    branches_.reserve(tasks.size());
    for (task<T>& t : tasks) branches_.emplace_back(std::move(t));
  }

  std::size_t size() const noexcept { return branches_.size(); }
  template <class Function>
  void each(Function&& f) {
    for (branch<T>& b : branches_) f(b);
  }
  template <class Function>
  void each_from_last(Function&& f) {
    for (std::size_t i = branches_.size(); i > 0; --i) f(branches_[i - 1]);
  }

  any_value take_any() {
    std::size_t i = 0;
    while (!branches_[i].done()) ++i;
    return any_value(i, branches_[i].take());
  }
  all_values take_all() {
    if constexpr (std::is_void_v<T>) {
      for (branch<T>& b : branches_) b.take();
    } else {
      all_values values;
      values.reserve(branches_.size());
      for (branch<T>& b : branches_) values.push_back(b.take());
      return values;
    }
  }

 private:
  std::vector<branch<T>> branches_;
};

/// Starts the branches when the coroutine has suspended, and drops them with itself.
template <class Branches>
class branches_awaiter : public fork {
 public:
  bool await_ready() const noexcept { return branches_.size() == 0; }
  void await_suspend(std::coroutine_handle<> handle) noexcept {
    suspend(handle);
    branches_.each([](auto& b) { b.start(); });
  }

 protected:
  branches_awaiter(Branches branches, bool first_counts, promise_base& promise)
      : fork(promise, branches.size(), first_counts), branches_(std::move(branches)) {
    branches_.each([this](auto& b) { b.bind(*this, context()); });
  }
  ~branches_awaiter() {
    branches_.each_from_last([](auto& b) { b.drop(); });
  }

  /// Drops all but the first branch of which `wanted(branch)` is true. How many of the others it was true of, too.
  template <class Wanted>
  std::size_t keep_first(Wanted wanted) noexcept {
    const void* kept = nullptr;
    std::size_t others = 0;
    branches_.each([&](auto& b) {
      if (!wanted(b)) return;
      if (kept == nullptr) {
        kept = &b;
      } else {
        ++others;
      }
    });
    if (kept == nullptr) return 0;
    branches_.each_from_last([&](auto& b) {
      if (&b != kept) b.drop();
    });
    return others;
  }

  Branches branches_;
};

// ---- arguments of any_of() and all_of()

template <class>
inline constexpr bool is_task = false;
template <class T>
inline constexpr bool is_task<task<T>> = true;

/// The result of awaiting an A.
template <class A>
using awaited_value = decltype(std::declval<A>().awaited_by(std::declval<promise_base&>()).await_resume());

/// A task that awaits `awaited`. A is an lvalue reference for an object that the caller keeps: a spawned task, a
/// next().
template <class T, class A>
task<T> awaiting(A awaited) {
  co_return co_await static_cast<A&&>(awaited);
}

/// `awaited` itself if it is a task, else a task that awaits it.
template <class A>
auto as_task(A&& awaited) {
  using plain = std::remove_cvref_t<A>;
  if constexpr (is_task<plain>) {
    static_assert(std::is_same_v<A, plain>, "any_of() and all_of() own their tasks: write std::move(t)");
    return plain(static_cast<plain&&>(awaited));
  } else {
    static_assert(requires(promise_base& promise) { static_cast<A&&>(awaited).awaited_by(promise); },
                  "any_of() and all_of() await tasks, a std::vector of them (moved in), and what has "
                  "awaited_by(promise)");
    using value = awaited_value<A>;
    static_assert(!std::is_reference_v<value>,
                  "what is awaited here gives a reference: write a task that gives any_of() or all_of() a value");
    return awaiting<value, A>(static_cast<A&&>(awaited));
  }
}

template <class A>
using task_value = typename decltype(as_task(std::declval<A>()))::value_type;

}  // namespace millrace::detail
