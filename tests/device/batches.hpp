// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>

#include "tests/device/late_device.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/labelled_image.hpp"

/// Sources and consumers that the tests of to_device() share.
namespace millrace::test {

inline late_device::user_stream* const user = nullptr;

inline labelled_image numbered(int i) {
  millrace::image pixels(std::vector<std::uint8_t>(12, static_cast<std::uint8_t>(i)), 2, 2, 3);
  return labelled_image(sample("k" + std::to_string(i), origin()), std::move(pixels), i);
}

inline async_generator<labelled_image> images(int n, int* made = nullptr) {
  for (int i = 0; i < n; ++i) {
    if (made != nullptr) *made = i + 1;
    labelled_image x = numbered(i);
    co_yield give(x);
  }
}

// Batches from a pool, as decoders that write in place make them.
inline async_generator<host_batch> ready_batches(batch_pool pool, int n) {
  for (int i = 0; i < n; ++i) {
    batch_builder builder = pool.start();
    for (std::size_t r = 0; r < builder.capacity(); ++r) {
      const batch_row row = builder.row(r);
      row.set("label", static_cast<std::int64_t>(i * 100 + static_cast<int>(r)));
      row.done();
    }
    host_batch b = std::move(builder).seal();
    co_yield give(b);
  }
}

inline std::string labels_of(const tensor_view& t) {
  std::string text;
  for (std::int64_t v : t.values<std::int64_t>()) text += std::to_string(v) + " ";
  return text;
}

// Takes `n` batches (all when -1) and keeps them.
inline task<void> take(stream<device_batch>& source, std::deque<device_batch>& into, int n = -1) {
  while (n-- != 0) {
    std::optional<device_batch> b = co_await source.next();
    if (!b) co_return;
    into.push_back(std::move(*b));
  }
}

// After the loop or runtime of the stages has ended.
inline void check_all_returned(const late_device& d) {
  CHECK(d.control().wrong == "");
  CHECK(d.control().pinned.empty());
  CHECK(d.control().device.empty());
}

}  // namespace millrace::test
