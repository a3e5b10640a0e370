// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/device/batch_rows.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/sample.hpp>

namespace millrace::inline MILLRACE_ABI {

/// A sample that a Writer (image_row_writer, video_row_writer) decodes when it is written into a row of a batch. Until
/// then it holds the compressed data; shuffle() and buffer() keep many of them. A row_item. Copies share the writer.
template <class Writer>
class encoded_sample {
 public:
  encoded_sample(sample s, std::shared_ptr<const Writer> how) noexcept : encoded(std::move(s)), how_(std::move(how)) {}

  sample encoded;

  static constexpr bool writes_whole_rows = true;
  batch_layout layout(std::size_t samples) const { return how_->layout(samples); }
  void write_to(const batch_row& row) const { (*how_)(encoded, row); }

  friend const sample& place_of(const encoded_sample& e) noexcept { return e.encoded; }
  friend epoch_mark mark_of(const encoded_sample& e) noexcept { return e.encoded.mark; }
  friend void set_mark(encoded_sample& e, const epoch_mark& mark) noexcept { e.encoded.mark = mark; }
  friend std::size_t byte_size(const encoded_sample& e) noexcept { return byte_size(e.encoded); }
  friend const bytes* slice_of(const encoded_sample& e) noexcept { return slice_of(e.encoded); }
  friend encoded_sample compact_slices(encoded_sample e) {
    return encoded_sample(compact_slices(std::move(e.encoded)), std::move(e.how_));
  }

 private:
  std::shared_ptr<const Writer> how_;
};

namespace detail {

/// The samples with their writer.
template <class Writer>
async_generator<encoded_sample<Writer>> encoded_samples(async_generator<sample> source,
                                                        std::shared_ptr<const Writer> how) {
  for (;;) {
    std::optional<sample> s = co_await source.next();
    if (!s) co_return;
    encoded_sample<Writer> item(std::move(*s), how);
    s.reset();
    co_yield give(item);
  }
}

}  // namespace detail

}  // namespace millrace::inline MILLRACE_ABI
