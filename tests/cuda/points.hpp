// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>

/// A small source for the tests of to_device() on the GPU.
namespace millrace::test {

struct point {
  point(std::int64_t i, std::vector<float> v) : id(i), values(std::move(v)) {}
  std::int64_t id;
  std::vector<float> values;
};
inline void collate(const point& p, sample_writer& out) {
  out.key("p" + std::to_string(p.id));
  out.write("values", p.values);
  out.write("id", p.id);
}

inline async_generator<point> points(int n) {
  for (int i = 0; i < n; ++i) {
    point p(i, std::vector<float>(50, static_cast<float>(i) / 4));
    co_yield give(p);
  }
}

inline task<device_batch> next_of(stream<device_batch>& source) {
  std::optional<device_batch> b = co_await source.next();
  device_batch result;
  if (b) result = std::move(*b);
  co_return result;
}

}  // namespace millrace::test
