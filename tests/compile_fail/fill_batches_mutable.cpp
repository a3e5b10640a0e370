// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: fill_batches calls f\(item, row\) on several threads at once: it must take the item and a const
#include <cstdint>

#include <millrace/device/fill_batches.hpp>
#include <millrace/flow/sources.hpp>

int main() {
  namespace mill = millrace;
  mill::cpu_pool cores(1);
  mill::batch_pool pool(mill::batch_layout(2, {{"number", mill::dtype::i64}}));
  std::int64_t seen = 0;
#ifdef MILLRACE_MUST_FAIL
  const auto write = [seen](int x, const mill::batch_row& row) mutable { row.set("number", seen += x); };
#else
  const auto write = [seen](int x, const mill::batch_row& row) { row.set("number", seen + x); };
#endif
  auto batches = mill::iota(3) | mill::fill_batches(pool, write, {.on = &cores});
}
