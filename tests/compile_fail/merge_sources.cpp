// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: the sources of merge and concat must be generators of one item type
// expect: merge and concat consume their sources: write merge\(std::move\(a\), std::move\(b\)\)
// expect: merge consumes its sources: write merge\(std::move\(sources\)\)
// expect: concat consumes its sources: write concat\(std::move\(sources\)\)
// errors: 4
// not: push_back
#include <utility>
#include <vector>

#include <millrace/flow/combine.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/sources.hpp>

int main() {
  namespace mill = millrace;
  auto a = mill::iota(3);
  auto b = mill::iota(3);
  std::vector<mill::stream<int>> sources;
#ifdef MILLRACE_MUST_FAIL
  auto c = mill::merge(mill::iota(3), mill::iota(3L));
  auto d = mill::concat(a, mill::iota(3));
  auto e = mill::merge(sources, {.ahead = 2});
  auto f = mill::concat(sources);
#else
  auto c = mill::merge(mill::iota(3), mill::iota(3));
  auto d = mill::concat(std::move(a), mill::iota(3));
  auto e = mill::merge(std::move(sources), {.ahead = 2});
  auto f = mill::merge(std::move(b));
#endif
}
