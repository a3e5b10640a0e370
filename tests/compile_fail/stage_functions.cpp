// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: the function given to map returns nothing: it must return the next stage's item
// expect: the function given to map_concurrent returns nothing
// expect: the function given to filter must return a bool
// expect: the function given to flat_map must return a range or an async_generator
// expect: cannot be called with the items that come from the left side of \| \(it takes an item by value, by const& or
// expect: interleave takes a stream of generators
// errors: 6
// not: cannot be called with the async_generator
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/sources.hpp>

struct word {};

int main() {
  namespace mill = millrace;
#ifdef MILLRACE_MUST_FAIL
  auto a = mill::iota(3) | mill::map([](int) {});
  auto b = mill::iota(3) | mill::map_concurrent([](int) {});
  auto c = mill::iota(3) | mill::filter([](int) { return word(); });
  auto d = mill::iota(3) | mill::flat_map([](int x) { return x; });
  auto e = mill::iota(3) | mill::map([](int& x) { return x; });
  auto f = mill::iota(3) | mill::interleave();
#else
  auto a = mill::iota(3) | mill::map([](int x) { return x; });
  auto b = mill::iota(3) | mill::map_concurrent([](int x) { return x; });
  auto c = mill::iota(3) | mill::filter([](int) { return true; });
  auto d = mill::iota(3) | mill::flat_map([](int x) { return mill::iota(x); });
  auto e = mill::iota(3) | mill::map([](const int& x) { return x; });
  auto f = mill::iota(3) | mill::map([](int x) { return mill::iota(x); }) | mill::interleave();
#endif
}
