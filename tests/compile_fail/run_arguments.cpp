// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: run consumes the pipeline: write run\(std::move\(pipeline\)\)
// expect: run takes a pipeline: make one of a range with from_range\(std::move\(range\)\)
// expect: run takes a whole pipeline, which begins with a source: run\(source \| stage\)
// expect: run consumes the pipeline: write rt\.run\(std::move\(pipeline\)\)
// errors: 4
// not: deleted function
#include <utility>
#include <vector>

#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>

int main() {
  auto pipeline = millrace::iota(3);
  std::vector<int> range;
#ifdef MILLRACE_MUST_FAIL
  auto a = millrace::run(pipeline, {.prefetch = 2});
  auto b = millrace::run(range);
  auto c = millrace::run(millrace::take(2), {.prefetch = 2});
  millrace::runtime rt;
  auto d = rt.run(pipeline);
#else
  auto a = millrace::run(std::move(pipeline), {.prefetch = 2});
#endif
}
