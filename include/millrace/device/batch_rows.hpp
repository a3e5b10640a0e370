// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/device/fill_batches.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map_concurrent.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Items that know how they are written into a row of a batch: made of samples by decode_images(), or a type of your
/// own. write_to() gets a row of zeros, of layout(); all items of a stream have the same one. Both run on several
/// threads at once, for different items. A type whose write_to() writes every field in full may declare that by `static
/// constexpr bool writes_whole_rows = true`: then rows are not cleared before.
template <class T>
concept row_item = requires(const T& item, const batch_row& row, std::size_t samples) {
  batch_layout(item.layout(samples));
  item.write_to(row);
};

namespace detail {

std::shared_ptr<batch_builder> started_batch(const batch_layout& layout, const std::shared_ptr<batch_memory>& memory);

/// The layout is the first item's. The memory is the runtime's, until a later to_device() provides a better one.
template <class T>
async_generator<placed<T>> place_rows(async_generator<T> source, std::size_t samples) {
  executor& ex = co_await this_executor();
  std::optional<batch_layout> layout;
  std::shared_ptr<batch_memory> memory;
  row_places places;
  const auto start = [&layout, &memory] { return started_batch(*layout, memory); };
  for (;;) {
    std::optional<T> item = co_await source.next();
    if (!item) co_return;
    if (!layout) {
      layout.emplace(item->layout(samples));
      const std::size_t size = batch_pool::slab_size(*layout);
      memory = std::make_shared<batch_memory>(ex.runtime().slabs(size));
    }
    placed<T> p = places.next(std::move(*item), start);
    item.reset();
    co_yield give(p);
  }
}

template <class T>
class place_rows_stage : public library_stage {
 public:
  explicit place_rows_stage(std::size_t samples) noexcept : samples_(samples) {}
  stream<placed<T>> operator()(async_generator<T> source) && { return place_rows<T>(std::move(source), samples_); }

 private:
  std::size_t samples_;
};

class write_row {
 public:
  template <class T>
  void operator()(T item, const batch_row& row) const {
    item.write_to(row);
  }
};

class seal_rows_stage : public library_stage {
 public:
  seal_rows_stage(const batch_options& options, const failure_policy& judged, std::size_t batches) noexcept
      : last_(options.last),
        has_pool_(options.on != nullptr),
        judged_(judged),
        batches_(batches),
        bytes_(multiplied(batches, options.bytes)) {}
  MILLRACE_COROUTINE stream<host_batch> operator()(async_generator<written> source) &&;

 private:
  last_batch last_;
  bool has_pool_;
  failure_policy judged_;
  std::size_t batches_, bytes_;
};

/// batch_rows() of any items.
template <class T>
stream<host_batch> written_batches(async_generator<T>&& source, std::size_t samples, const batch_options& options) {
  const unsigned threads = options.on != nullptr ? options.on->threads() : cpu_pool::usable_cores();
  const std::size_t batches = (2 * std::size_t(threads) + samples - 1) / samples + 1;
  map_concurrent_options work;
  work.on = options.on;
  const bool holds_places = detail::holds_places<T>(options.failures);
  if (!holds_places) work.failures = options.failures;
  auto placing = apply_stage(stream<T>(std::move(source)), place_rows_stage<T>(samples));
  constexpr bool clears = !requires { requires T::writes_whole_rows; };
  auto writing = apply_stage(std::move(placing),
                             map_concurrent_stage(row_writer<T, write_row>({}, holds_places, clears), work, "batch"));
  seal_rows_stage sealing(options, holds_places ? options.failures : failure_policy(), batches);
  return declare_policy(apply_stage(stream_access::part_of_next(std::move(writing)), std::move(sealing)),
                        options.failures);
}

}  // namespace detail

/// Called by batch(samples) for such items; found beside them. Each is written straight to its row, on the pool
/// `options.on`, else the runtime's; items keep their order. The batches lie where to_device(), if it comes next,
/// copies them from: in page-locked memory of its device, but for the first two or three, which it has to copy there.
/// Bound: twice as many items as the pool has threads, and the batches that these are of and one more, until the
/// consumer takes them. Errors: of items, as `options.failures` says.
template <row_item T>
stream<host_batch> batch_rows(async_generator<T>&& source, std::size_t samples, const batch_options& options) {
  return detail::written_batches<T>(std::move(source), samples, options);
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/batch_rows.ipp>
#endif
