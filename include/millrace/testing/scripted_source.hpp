// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include <millrace/base/clock.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/sync/event.hpp>

namespace millrace::inline MILLRACE_ABI::testing {

/// A source that follows a test's script: items after delays of the executor's clock, an error, a wait without end.
///
///     scripted_source<int> script;
///     script.item(1).item(2, 5ms).fail(std::make_exception_ptr(error("no more")));
///     auto source = script.open();             // once; `script` may go
///     ... script.given() ...                   // how far it has come
template <class T>
class scripted_source {
 public:
  scripted_source() : state_(std::make_shared<state>()) {}

  scripted_source& item(T value, duration delay = duration(0)) {
    state_->steps.emplace_back(delay).value.emplace(std::move(value));
    return *this;
  }
  scripted_source& fail(std::exception_ptr error, duration delay = duration(0)) {
    state_->steps.emplace_back(delay).error = std::move(error);
    return *this;
  }
  /// The next item never comes.
  scripted_source& never() {
    state_->steps.emplace_back(duration(-1));
    return *this;
  }

  stream<T> open() { return stream<T>(play(presence(state_))).named("scripted_source"); }

  /// Items yielded so far.
  std::size_t given() const noexcept { return state_->given; }
  /// Items asked for so far.
  std::size_t asked() const noexcept { return state_->asked; }
  /// The generator has been made and is still there.
  bool open_now() const noexcept { return state_->open; }

 private:
  struct step {
    explicit step(duration d) : delay(d) {}
    duration delay;  // negative: for ever
    std::optional<T> value;
    std::exception_ptr error;
  };
  struct state {
    std::deque<step> steps;
    std::size_t given = 0;
    std::size_t asked = 0;
    bool open = false;
  };
  class presence {
   public:
    explicit presence(std::shared_ptr<state> s) : state_(std::move(s)) { state_->open = true; }
    presence(presence&& other) noexcept = default;
    ~presence() {
      if (state_) state_->open = false;
    }
    state* operator->() const noexcept { return state_.get(); }

   private:
    std::shared_ptr<state> state_;
  };

  static async_generator<T> play(presence script) {
    while (!script->steps.empty()) {
      ++script->asked;
      step& now = script->steps.front();
      if (now.delay < duration(0)) {
        event never;
        co_await never.wait();
      }
      if (now.delay > duration(0)) co_await sleep_for(now.delay);
      if (now.error) {
        const std::exception_ptr error = now.error;
        script->steps.clear();
        std::rethrow_exception(error);
      }
      T value(std::move(*now.value));
      script->steps.pop_front();
      ++script->given;
      co_yield give(value);
    }
  }

  std::shared_ptr<state> state_;
};

}  // namespace millrace::testing
