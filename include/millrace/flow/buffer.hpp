// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/flow/detail/puller.hpp>
#include <millrace/flow/pipe.hpp>

namespace millrace {

/// See buffer().
struct buffer_options {
  std::size_t items = 16;        ///< pulled and not yet taken by the consumer
  std::size_t bytes = 64 * MiB;  ///< of those items, for types with byte_size()
};

namespace detail {

template <class T>
async_generator<T> buffer_items(async_generator<T> source, buffer_options options) {
  executor& ex = co_await this_executor();
  stage_record* const stage = co_await this_stage();
  const delivery<T> yielded = co_await this_delivery<T>();
  notifier arrived;
  puller<T> ahead(ex, stage, std::move(source), options.items, options.bytes, yielded, arrived);
  for (;;) {
    while (!ahead.has_item() && !ahead.ended()) co_await arrived.wait();
    if (!ahead.has_item()) {
      ahead.rethrow();
      co_return;
    }
    ahead.hand_over();
    co_yield give(ahead.front());
    ahead.pop();
  }
}

}  // namespace detail

/// What buffer() returns.
class buffer_stage : public detail::library_stage {
 public:
  explicit buffer_stage(buffer_options options) : options_(options) {
    if (options.items == 0) throw configuration_error("buffer: .items must not be 0");
  }

  template <class T>
  stream<T> operator()(async_generator<T> source) && {
    return stream<T>(detail::buffer_items<T>(std::move(source), options_))
        .named("buffer")
        .bounded(options_.items, detail::declared_bytes<T>(options_.items, options_.bytes));
  }

 private:
  buffer_options options_;
};

/// A stage that works ahead: once it has been asked for the first item, it keeps pulling until `items` or `bytes` are
/// waiting, whether or not the consumer asks for more. Order and content stay as they are.
///
/// Bound: items waiting and not taken. The bound in bytes is exceeded only by an item larger than every one before it;
/// a single item always passes. Items that show little of the memory they keep are compacted: where a free function
/// `slice_of(item)` gives a pointer to one of its `bytes`, and the stage holds less than half of that slab, the items
/// of the next one go through `compact(item)` (see shuffle()). Cancellation: dropping it stops the pulling and
/// everything upstream. Errors: what came before an error is handed on first. Throws configuration_error when .items is
/// 0.
inline buffer_stage buffer(buffer_options options = {}) { return buffer_stage(options); }

}  // namespace millrace
