// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: deleted .*pool_ref
// expect: a pool outlives the pipeline: name it
#include <millrace/flow/iota.hpp>
#include <millrace/flow/map_concurrent.hpp>

int main() {
#ifdef MILLRACE_MUST_FAIL
  auto stage = millrace::map_concurrent([](int x) { return x; }, {.on = millrace::cpu_pool(1)});
#else
  millrace::cpu_pool pool(1);
  auto stage = millrace::map_concurrent([](int x) { return x; }, {.on = pool});
#endif
}
