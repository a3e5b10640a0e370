// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include <millrace/io/loop_thread.hpp>

namespace millrace {

/// A small fixed group of event loops that work for one pipeline: the pipeline's own and helpers on threads of their
/// own. The loops share nothing but finished results (see run_on). A service of the pipeline's loop; `fetch` spreads
/// its transfers over it. The helpers are joined when the pipeline's loop ends.
template <class T = void>
class basic_loop_group final : public executor_service {
 public:
  /// `count` loops in all, `home` among them. That io_uring is refused is told for the first loop that it happens to.
  basic_loop_group(executor& home, std::size_t count, const loop_options& options = {}) : home_(home) {
    loop_options how = options;
    const event_loop* before = home.as_event_loop();
    for (std::size_t i = 1; i < count; ++i) {
      if (before != nullptr && std::strcmp(before->backend(), "epoll") == 0) how.log = &say_nothing;
      helpers_.push_back(std::make_unique<basic_loop_thread<T>>(how));
      before = &helpers_.back()->loop();
    }
  }

  std::size_t size() const noexcept { return helpers_.size() + 1; }

  /// The loops in turn. For the home loop's thread.
  executor& next() noexcept {
    const std::size_t i = turn_++ % size();
    return i == 0 ? home_ : static_cast<executor&>(helpers_[i - 1]->loop());
  }

 private:
  static void say_nothing(void*, const char*) {}

  executor& home_;
  std::vector<std::unique_ptr<basic_loop_thread<T>>> helpers_;
  std::size_t turn_ = 0;
};
using loop_group = basic_loop_group<>;

}  // namespace millrace
