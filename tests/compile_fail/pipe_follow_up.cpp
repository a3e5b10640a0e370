// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// expect: the function given to this stage cannot be called

// One mistake is one error, whatever the refused pipeline is used for.

#include <string>

#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>

int main() {
  namespace mill = millrace;
#ifdef MILLRACE_MUST_FAIL
  const auto size = [](const std::string& text) { return text.size(); };
#else
  const auto size = [](int x) { return std::size_t(x); };
#endif
  auto wrong = mill::iota(3) | mill::named("sizes", mill::map(size)) | mill::take(2);
  auto running = mill::run(std::move(wrong) | mill::take(1));
}
