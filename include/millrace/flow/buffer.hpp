// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/flow/detail/read_ahead.hpp>
#include <millrace/flow/pipe.hpp>

namespace millrace::inline MILLRACE_ABI {

/// See buffer().
struct buffer_options {
  std::size_t items = 16;        ///< pulled and not yet taken by the consumer
  std::size_t bytes = 64 * MiB;  ///< of those items, for types with byte_size()
};

namespace detail {

template <class T>
async_generator<T> buffer_items(async_generator<T> source, buffer_options options) {
  const generator_context<T> here = co_await this_generator<T>();
  notifier arrived;
  read_ahead<T> ahead(here, std::move(source), options.items, options.bytes, arrived);
  for (;;) {
    while (!ahead.has_item() && !ahead.ended()) co_await arrived.wait();
    if (!ahead.has_item()) {
      ahead.rethrow();
      co_return;
    }
    co_yield give(ahead.yielding());
    ahead.pop();
  }
}

}  // namespace detail

/// Returned by buffer().
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
/// Bound: items that the consumer has not yet taken. The bound in bytes is exceeded only by an item larger than every
/// one before it; a single item always passes. Items that keep much more memory than they show are compacted: if a
/// free function `slice_of(item)` returns a pointer to one of its `bytes`, and recent items show less than half of
/// their slabs, an item goes through `compact_slices(item)` before it is queued (see shuffle()). Cancellation: dropping
/// the stage stops the pulling and everything upstream. Errors: items that came before an error are yielded first.
/// Throws configuration_error if .items is 0.
inline buffer_stage buffer(buffer_options options = {}) { return buffer_stage(options); }

}  // namespace millrace
