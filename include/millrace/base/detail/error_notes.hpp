// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/where.hpp>

namespace millrace::detail {

/// A message that grows while others may be reading it: one exception object may be on its way to several readers, on
/// several threads. What has been read of it stays valid as long as the object.
class error_notes {
 public:
  error_notes() noexcept = default;
  error_notes(const error_notes& other) : last_(copy(other)) {}
  error_notes& operator=(const error_notes& other) {
    if (this != &other) clear(last_.exchange(copy(other), std::memory_order_acq_rel));
    return *this;
  }
  ~error_notes() { clear(last_.load(std::memory_order_acquire)); }

  /// The message with all notes; null while there are none.
  const char* text() const noexcept {
    const state* s = last_.load(std::memory_order_acquire);
    return s == nullptr ? nullptr : s->text.c_str();
  }

  /// The place that the error was given later; null while there is none.
  const where* place() const noexcept {
    const state* s = last_.load(std::memory_order_acquire);
    return s == nullptr || s->at == nullptr ? nullptr : s->at.get();
  }

  /// `bare` is the message without notes.
  void add(std::string_view bare, std::string_view note);
  /// `text`, which names `at`, goes before the message. Nothing where it has been given a place before.
  void place(std::string_view bare, std::string_view text, where at);

 private:
  struct state {
    std::string text;
    bool noted = false;
    std::shared_ptr<const where> at;
    state* before = nullptr;  // somebody may still look at its text
  };

  /// `make(next, before)` fills what follows the last state; false for nothing.
  template <class Make>
  void publish(Make make) {
    auto next = std::make_unique<state>();
    next->before = last_.load(std::memory_order_acquire);
    do {
      if (!make(*next, next->before)) return;
    } while (
        !last_.compare_exchange_weak(next->before, next.get(), std::memory_order_acq_rel, std::memory_order_acquire));
    static_cast<void>(next.release());
  }
  static state* copy(const error_notes& other) {
    const state* s = other.last_.load(std::memory_order_acquire);
    return s == nullptr ? nullptr : new state{s->text, s->noted, s->at, nullptr};
  }
  static void clear(state* s) noexcept {
    while (s != nullptr) delete std::exchange(s, s->before);
  }

  std::atomic<state*> last_ = nullptr;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/base/detail/impl/error_notes.ipp>
#endif
