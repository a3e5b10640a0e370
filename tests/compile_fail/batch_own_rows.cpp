// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: batch: items with layout\(\) and write_to\(\) are rows of a batch: include
// expect: <millrace/device/batch_rows.hpp>
#include <cstddef>
#include <millrace/device/batch_pool.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>
#ifndef MILLRACE_MUST_FAIL
#include <millrace/device/batch_rows.hpp>
#endif

struct number {
  int value;
  millrace::batch_layout layout(std::size_t samples) const { return {samples, {{"value", millrace::dtype::i32}}}; }
  void write_to(const millrace::batch_row& row) const { row.set("value", value); }
};

int main() {
  namespace mill = millrace;
  auto batches = mill::iota(3) | mill::map([](int n) { return number{n}; }) | mill::batch(2);
}
