// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <utility>

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

  /// `bare` is the message without notes.
  void add(std::string_view bare, std::string_view note) {
    auto* mine = new state{};
    mine->before = last_.load(std::memory_order_acquire);
    do {
      mine->text = mine->before == nullptr ? std::string(bare) + " (" : mine->before->text;
      if (mine->before != nullptr) mine->text.replace(mine->text.size() - 1, 1, "; ");
      mine->text += note;
      mine->text += ')';
    } while (!last_.compare_exchange_weak(mine->before, mine, std::memory_order_acq_rel, std::memory_order_acquire));
  }

 private:
  struct state {
    std::string text;
    state* before = nullptr;  // somebody may still look at its text
  };

  static state* copy(const error_notes& other) {
    const state* s = other.last_.load(std::memory_order_acquire);
    return s == nullptr ? nullptr : new state{s->text, nullptr};
  }
  static void clear(state* s) noexcept {
    while (s != nullptr) delete std::exchange(s, s->before);
  }

  std::atomic<state*> last_ = nullptr;
};

}  // namespace millrace::detail
