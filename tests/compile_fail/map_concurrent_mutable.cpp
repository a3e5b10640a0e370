// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: map_concurrent calls a plain function on several threads at once: it must be callable when const
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/sources.hpp>

int main() {
  millrace::cpu_pool pool(1);
  int calls = 0;
#ifdef MILLRACE_MUST_FAIL
  auto piped =
      millrace::iota(3) | millrace::map_concurrent([calls](int x) mutable { return x + calls++; }, {.on = &pool});
#else
  auto piped = millrace::iota(3) | millrace::map_concurrent([calls](int x) { return x + calls; }, {.on = &pool});
#endif
}
