// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/device/batch_pool.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/failure_policy.hpp>
#include <millrace/flow/map_concurrent.hpp>

namespace millrace::inline MILLRACE_ABI {

/// See fill_batches().
struct fill_batches_options {
  pool_ref on = nullptr;               ///< pool for the function, to outlive the pipeline; none: the runtime's pool
  std::size_t limit = 0;               ///< items worked on at once; 0: twice the pool's threads
  std::size_t bytes = 256 * MiB;       ///< of those items, for types with byte_size()
  last_batch last = last_batch::keep;  ///< drop: items at the end that do not fill a batch are dropped
  /// The treatment of items for which the function throws: skip leaves them out, or, for samples of epochs() with an
  /// index or after equal_batches::fill(), replaces them by zeros of weight 0.
  failure_policy failures = {};
};

namespace detail {

/// An item with its row of a batch. The builder is shared by all items of one batch.
template <class T>
class placed {
 public:
  placed(T i, std::shared_ptr<batch_builder> b, std::size_t r) : item(std::move(i)), batch(std::move(b)), row(r) {}
  T item;
  std::shared_ptr<batch_builder> batch;
  std::size_t row;
  bool last = false;  // of its batch, full or not

  friend const T& place_of(const placed& p) noexcept requires has_place<T> { return p.item; }
  friend std::size_t byte_size(const placed& p) requires counts_bytes_v<T> { return item_bytes(p.item); }
};

/// The result when its row is written.
class written {
 public:
  written(std::shared_ptr<batch_builder> b, std::size_t r, bool is_last) noexcept
      : batch(std::move(b)), row(r), last(is_last) {}
  std::shared_ptr<batch_builder> batch;
  std::size_t row;
  bool last;                   // of its batch
  std::exception_ptr failure;  // of a row that is kept all the same
  item_place place;            // of its item
};

/// Assigns rows to items, and begins another batch when one is full or the next item is of another epoch.
class row_places {
 public:
  /// `start()` makes the std::shared_ptr<batch_builder> of another batch.
  template <class T, class Start>
  placed<T> next(T item, const Start& start) {
    const epoch_mark mark = detail::mark_of_item(item);
    if (mark.known && mark.epoch != std::exchange(epoch_, mark.epoch)) begin_another();
    if (current_ == nullptr) current_ = start();
    current_->join(mark);
    placed<T> p(std::move(item), current_, row_++);
    p.last = mark.last || row_ == current_->capacity();
    if (p.last) begin_another();
    return p;
  }

 private:
  void begin_another() noexcept {
    current_.reset();
    row_ = 0;
  }

  std::shared_ptr<batch_builder> current_;
  std::size_t row_ = 0;
  std::uint64_t epoch_ = 0;
};

template <class T>
async_generator<placed<T>> place_items(async_generator<T> source, batch_pool pool) {
  row_places places;
  const auto start = [&pool] {
    auto made = std::make_shared<batch_builder>(pool.start());
    made->clear_whole();
    return made;
  };
  for (;;) {
    std::optional<T> item = co_await source.next();
    if (!item) co_return;
    placed<T> p = places.next(std::move(*item), start);
    item.reset();
    co_yield give(p);
  }
}

/// True if items that fail keep their rows, as those of epochs() must: then the stage that seals batches applies the
/// policy.
template <class T>
bool holds_places(const failure_policy& policy) noexcept {
  return has_mark_v<T> && policy.then == on_failure::skip;
}

template <class T, class F>
class row_writer {
 public:
  /// With `holds_places` a failure is not thrown: the row keeps its place, without being done. With `clears` rows are
  /// zeros before the function: it may not write them in full.
  row_writer(F f, bool holds_places, bool clears) : f_(std::move(f)), holds_places_(holds_places), clears_(clears) {}
  written operator()(placed<T> p) const {
    written out(p.batch, p.row, p.last);
    if (!holds_places_) {
      write(std::move(p));
      return out;
    }
    out.place.note(p.item);
    try {
      write(std::move(p));
    } catch (...) {
      out.failure = out.place.completed();
    }
    return out;
  }

 private:
  void write(placed<T> p) const {
    const batch_row row = p.batch->row(p.row);
    if constexpr (has_mark_v<T>) {
      if (detail::mark_of_item(p.item).padding) {
        row.fill_up();
        row.done();
        return;
      }
    }
    if (clears_) row.clear();
    if constexpr (std::is_same_v<std::invoke_result_t<const F&, T&&, const batch_row&>, bool>) {
      if (f_(std::move(p.item), row)) row.done();
    } else {
      f_(std::move(p.item), row);
      row.done();
    }
  }

  F f_;
  bool holds_places_, clears_;
};

/// Items that a policy leaves out do not arrive: their batch is complete when the next batch begins, or at the end.
/// Items that keep their rows arrive with their failure, and the policy is applied here.
template <class Rows, class Batch = host_batch>
async_generator<Batch> seal_batches(Rows source, last_batch last, bool has_pool, failure_policy policy,
                                    const char* name) {
  const coroutine_context here = co_await this_context();
  if (!has_pool && !cpu_pool::share::of(here.runtime())) {
    throw configuration_error(std::string(name) + ": the function needs a pool to run on: .on = pool, or a runtime");
  }
  failures bad(policy, here, name);
  std::shared_ptr<batch_builder> current;
  std::size_t rows = 0;  // of it that have come
  for (;;) {
    auto w = co_await source.next();
    const bool ended = !w;
    if (current != nullptr && (ended || w->batch != current)) {
      const bool dropped = last == last_batch::drop && !current->complete();
      Batch sealed = std::move(*current).seal(rows);
      current.reset();
      if (sealed.size() != 0 && !dropped) co_yield give(sealed);
    }
    if (ended) break;
    if (w->failure) {
      static_cast<void>(bad.forgive(std::exchange(w->failure, nullptr), w->place));  // skip, or it throws
    } else {
      bad.succeeded();
    }
    const bool is_last = w->last;
    rows = w->row + 1;
    current = std::move(w->batch);
    w.reset();
    if (!is_last) continue;
    const bool dropped = last == last_batch::drop && !current->complete();
    Batch full = std::move(*current).seal(rows);
    current.reset();
    if (full.size() != 0 && !dropped) co_yield give(full);
  }
  bad.finish();
}

class seal_batches_stage : public library_stage {
 public:
  seal_batches_stage(last_batch last, bool has_pool, const failure_policy& policy, std::size_t items,
                     std::size_t bytes) noexcept
      : last_(last), has_pool_(has_pool), policy_(policy), items_(items), bytes_(bytes) {}
  MILLRACE_COROUTINE stream<host_batch> operator()(async_generator<written> source) &&;

 private:
  last_batch last_;
  bool has_pool_;
  failure_policy policy_;
  std::size_t items_, bytes_;
};

template <class T>
class place_items_stage : public library_stage {
 public:
  explicit place_items_stage(batch_pool pool) : pool_(std::move(pool)) {}
  stream<placed<T>> operator()(async_generator<T> source) && {
    return place_items<T>(std::move(source), std::move(pool_));
  }

 private:
  batch_pool pool_;
};

}  // namespace detail

/// Returned by fill_batches().
template <class F>
class fill_batches_stage : public detail::library_stage {
 public:
  fill_batches_stage(batch_pool pool, F f, const fill_batches_options& options)
      : pool_(std::move(pool)), f_(std::move(f)), options_(options) {
    if (options_.limit > 1'000'000) throw configuration_error("fill_batches: .limit is beyond a million");
    if (pool_.layout().samples() == 0) throw configuration_error("fill_batches: the layout has no samples");
  }

  template <class T>
  stream<host_batch> operator()(async_generator<T> source) && {
    if constexpr (!std::is_invocable_v<const F&, T&&, const batch_row&>) {
      static_assert(detail::never_v<F>,
                    "fill_batches calls f(item, row) on several threads at once: it must take the item and a const "
                    "millrace::batch_row&, and be callable when const (a lambda that is not mutable)");
      return {};
    } else {
      const std::size_t samples = pool_.layout().samples();
      // Like map_concurrent(): a runtime's pool is not known yet.
      const unsigned threads = options_.on != nullptr ? options_.on->threads() : cpu_pool::usable_cores();
      const std::size_t limit = options_.limit != 0 ? options_.limit : 2 * std::size_t(threads);
      const std::size_t batches = (limit + samples - 1) / samples + 1;
      const std::size_t bytes = batches * pool_.layout().bytes();
      map_concurrent_options work;
      work.limit = options_.limit;
      work.on = options_.on;
      work.bytes = options_.bytes;
      const bool holds_places = detail::holds_places<T>(options_.failures);
      if (!holds_places) work.failures = options_.failures;
      auto placing = detail::apply_stage(stream<T>(std::move(source)), detail::place_items_stage<T>(std::move(pool_)));
      auto writing = detail::apply_stage(
          std::move(placing),
          map_concurrent_stage(detail::row_writer<T, F>(std::move(f_), holds_places, true), work, "fill_batches"));
      detail::seal_batches_stage sealing(options_.last, options_.on != nullptr,
                                         holds_places ? options_.failures : failure_policy(), batches, bytes);
      return detail::declare_policy(
                 detail::apply_stage(detail::stream_access::part_of_next(std::move(writing)), std::move(sealing)),
                 options_.failures)
          .declares(place_effect::batches, samples);
    }
  }

 private:
  batch_pool pool_;
  F f_;
  fill_batches_options options_;
};

/// A stage that calls a function to write each item straight into its row of a batch, on a pool, and yields the
/// batches. The pool is the runtime's, or that of `.on`:
///
///     batch_pool pool(layout, copies);                       // page-locked for the device
///     image_decoder images({.height = 224, .width = 224, .crop = crop::center{}});
///     const auto decode = [images](const sample& s, const batch_row& row) {
///       sample_rng numbers = s.random(purpose::augment);
///       images.into(row.field("image"), s["jpg"], numbers);
///       row.set("label", parse_label(s["cls"]));
///       row.key(s.key);
///       row.tag(s.from);
///     };
///     samples | fill_batches(pool, decode) | to_device(copies)
///
/// So a decoded sample is written once, where the device copies it from. Items keep their order; item i goes to row i
/// mod layout.samples(). `f(item, row)` gets a row of zeros: what it does not write stays zero. It
/// runs on several threads at once and must be callable when const. When it returns a bool, false leaves the sample
/// out, and its batch is smaller for it. A batch holds samples of one epoch, if they have marks (epoch_mark). For the
/// padding of epochs() `f` is not called, and the row is zeros, of weight 0 (host_batch::weights(); a field that `f`
/// sets to 1 is the device's mask). If an index or equal_batches::fill() gives samples positions, one that is left out,
/// by false or by on_failure::skip, becomes such a row too: all ranks have equally many batches of equal size, also if
/// no sample of one could be decoded. Bound: `limit` items, and limit / samples + 1 batches (rounded up) until the
/// consumer takes them. Cancellation: dropping the generator removes jobs that no thread has begun; a job that has
/// begun keeps its batch's memory. Errors: what `f` throws comes after the full batches before it; the batch in the
/// making is dropped. Throws configuration_error for a layout without samples and, in the pipeline, where there is no
/// pool (on a bare loop).
template <class F>
fill_batches_stage<F> fill_batches(const batch_pool& pool, F f, const fill_batches_options& options = {}) {
  return fill_batches_stage<F>(pool, std::move(f), options);
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/device/fill_batches.ipp>
#endif
