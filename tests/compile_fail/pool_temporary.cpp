// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: a temporary pool ends before the pipeline that works on it: give the pool a name
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/sources.hpp>

int main() {
#ifdef MILLRACE_MUST_FAIL
  [[maybe_unused]] auto stage = millrace::map_concurrent([](int x) { return x; }, {.on = millrace::cpu_pool(1)});
#else
  millrace::cpu_pool pool(1);
  [[maybe_unused]] auto stage = millrace::map_concurrent([](int x) { return x; }, {.on = pool});
#endif
}
