// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Who shows a progress line and the stage table: process 0, on a terminal.

#include <millrace/loader/run.hpp>

#include <cstdint>
#include <string>
#include <utility>

#include <millrace/base/log.hpp>
#include <millrace/flow/combine.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/shards.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using into = test::captured_stderr::into;

namespace {

rank process(std::uint32_t index) {
  rank r;
  r.index = index;
  r.world_size = 2;
  r.source = "test";
  return r;
}

stream<std::size_t> names_of(std::uint32_t index) {
  return shards("train-{0..8}.tar") | split_by_rank(process(index)) | map([](const shard& s) { return s.url.size(); });
}

/// What a run writes to standard error.
template <class T>
std::string shown(into where, stream<T> pipeline, const run_options& options = {}) {
  test::captured_stderr captured(where);
  {
    auto r = run(std::move(pipeline), options);
    while (r.next()) continue;
  }
  return captured.text();
}

bool has_line(const std::string& text) { return text.find("s: 5 items (") != std::string::npos; }
bool has_table(const std::string& text) { return text.find("training thread: ") != std::string::npos; }

#define NEEDS_TERMINALS() \
  if (!test::captured_stderr::has_terminals()) MILLRACE_SKIP("this machine lends no terminals")

}  // namespace

TEST_CASE("on a terminal the process whose share of the shards is the first shows its progress, the others do not") {
  NEEDS_TERMINALS();
  const std::string first = shown(into::terminal, names_of(0));
  CHECK(has_line(first));
  CHECK(has_table(first));
  CHECK_THAT(first, Contains("split_by_rank"));
  CHECK(shown(into::terminal, names_of(1)) == "millrace: rank 1 of 2 (test) reads 4 of 9 shards\n");
}

TEST_CASE("it is not shown where standard error is no terminal") {
  CHECK(shown(into::pipe, names_of(0)) == "millrace: rank 0 of 2 (test) reads 5 of 9 shards\n");
  CHECK(shown(into::pipe, names_of(1)) == "millrace: rank 1 of 2 (test) reads 4 of 9 shards\n");
}

TEST_CASE("a pipeline that knows of no rank shows its progress on a terminal") {
  NEEDS_TERMINALS();
  CHECK(has_table(shown(into::terminal, shards("train-{0..8}.tar"))));
  CHECK(shown(into::pipe, shards("train-{0..8}.tar")) == "");
}

TEST_CASE("a rank given to run() goes before that of the pipeline") {
  NEEDS_TERMINALS();
  CHECK(has_table(shown(into::terminal, names_of(1), {.rank = process(0)})));
  CHECK_FALSE(has_table(shown(into::terminal, names_of(0), {.rank = process(1)})));
  CHECK_FALSE(has_table(shown(into::terminal, shards("train-{0..8}.tar"), {.rank = process(1)})));
}

TEST_CASE("progress::on and progress::off mean every process, wherever it writes") {
  CHECK(has_table(shown(into::pipe, names_of(1), {.show = progress::on})));
  CHECK_FALSE(has_table(shown(into::pipe, names_of(0), {.show = progress::off})));
  NEEDS_TERMINALS();
  CHECK(has_table(shown(into::terminal, names_of(1), {.show = progress::on})));
  CHECK_FALSE(has_table(shown(into::terminal, names_of(0), {.show = progress::off})));
}

TEST_CASE("where standard error is no terminal, progress and the table are lines of the log") {
  std::string said;
  test::captured_stderr captured(into::pipe);
  {
    runtime rt({.log = [](void* to, const log_record& r) {
                  *static_cast<std::string*>(to) += std::string(to_text(r.level)) + ' ' + std::string(r.text) + '\n';
                },
                .log_context = &said});
    auto r = rt.run(names_of(0), {.show = progress::on});
    while (r.next()) continue;
  }
  CHECK(captured.text() == "millrace: rank 0 of 2 (test) reads 5 of 9 shards\n");
  CHECK_THAT(said, Contains("info 0 s: 5 items ("));
  CHECK_THAT(said, Contains("info stage "));
  CHECK(has_table(said));
}

TEST_CASE("the rank is handed down through sources that become one") {
  NEEDS_TERMINALS();
  CHECK_FALSE(has_table(shown(into::terminal, concat(names_of(1), names_of(1)))));
  CHECK(has_table(shown(into::terminal, concat(names_of(0), names_of(0)))));
}
