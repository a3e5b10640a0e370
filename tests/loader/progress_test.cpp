// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Who shows progress and the stage table: process 0, on a terminal; and what else is there stays as it is.

#include <millrace/loader/run.hpp>

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/log.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/flow/combine.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/detail/run_state.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/testing/virtual_loop.hpp>

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

/// What a terminal has in its rows, those that have scrolled away included. The last column is as terminals have it: a
/// row that is full is left by the next character.
class screen {
 public:
  screen(const std::string& text, std::size_t columns) : columns_(columns) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\x1b') {
        const std::size_t end = text.find_first_not_of("[;0123456789", i + 1);
        REQUIRE(end != std::string::npos);
        command(text.substr(i + 1, end - i));
        i = end;
      } else {
        put(text[i]);
      }
    }
  }
  /// Without blanks at their ends.
  std::vector<std::string> rows() const {
    std::vector<std::string> out = rows_;
    for (std::string& row : out) row.erase(row.find_last_not_of(' ') + 1);
    if (out.back().empty()) out.pop_back();
    return out;
  }

 private:
  void put(char c) {
    if (c == '\r') {
      column_ = 0;
      return;
    }
    if (c == '\n' || column_ >= columns_) {
      if (c != '\n') column_ = 0;
      if (++row_ == rows_.size()) rows_.emplace_back();
    }
    if (c == '\n') return;
    std::string& row = rows_[row_];
    if (row.size() <= column_) row.resize(column_ + 1, ' ');
    row[column_++] = c;
  }
  void command(const std::string& what) {
    if (what == "[K") {  // erases the rest of the row
      if (rows_[row_].size() > column_) rows_[row_].resize(column_);
    } else if (what.ends_with('t')) {  // another size: [8;rows;columnst
      columns_ = std::stoul(what.substr(what.rfind(';') + 1));
    } else {
      FAIL("the terminal does not know this command: " << what);
    }
  }

  std::size_t columns_;
  std::vector<std::string> rows_{""};
  std::size_t row_ = 0, column_ = 0;
};

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
    const auto add = [&](const log_record& r) {
      said += std::string(to_text(r.level)) + ' ' + std::string(r.text) + '\n';
    };
    runtime rt({.log = add});
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

TEST_CASE("lines of the program on a terminal stay whole, whatever the library says between them") {
  NEEDS_TERMINALS();
  using namespace std::chrono_literals;
  test::captured_stderr captured(into::terminal, 60);
  {
    std::FILE* const out = ::fdopen(::dup(STDERR_FILENO), "w");  // what standard output is
    REQUIRE(out != nullptr);
    testing::virtual_loop loop;
    detail::run_metrics metrics;
    const run_options options;
    detail::progress_line progress(loop, metrics, options, 0);
    const auto say = [](std::FILE* to, const char* text) {
      std::fputs(text, to);
      std::fflush(to);
    };

    loop.run_for(1s);
    say(out, "42\n");
    say(stderr, "43\n44\n");
    loop.run_for(1s);
    say(out, "a line that is longer than the terminal is wide, and goes on in the next row\n");
    say(out, "a part");
    loop.run_for(2s);
    say(out, ", and its rest\n");
    say(stderr, "a part that ends at the last column, where no row begins--->");
    detail::log_line(loop, "millrace: 1");
    say(out, "a part, ");
    detail::log_line(loop, "millrace: 2");
    detail::log_line(loop, "millrace: 3");
    captured.resize(30);
    say(out, "\x1b[8;24;30t");
    say(out, "45\n");
    loop.run_for(4s);
    say(out, "a part, in a narrow terminal");
    detail::log_line(loop, "millrace: 4");
    std::fclose(out);
  }
  const std::string shown = "0 s: 0 items (0/s), waited 0.0%";
  const std::vector<std::string> expected = {
      shown, "42", "43", "44", shown,
      "a line that is longer than the terminal is wide, and goes on", " in the next row",
      "a part", shown, ", and its rest",
      "a part that ends at the last column, where no row begins--->", "millrace: 1",
      "a part,", "millrace: 2", "millrace: 3",
      "45", shown.substr(0, 30), shown.substr(30),
      "a part, in a narrow terminal", "millrace: 4"};
  std::vector<std::string> rows = screen(captured.raw(), 60).rows();
  rows.resize(expected.size());  // the table follows
  CHECK(rows == expected);
}

TEST_CASE("progress is logged soon, and then every 30 seconds") {
  using namespace std::chrono_literals;
  test::captured_stderr captured(into::pipe);
  {
    testing::virtual_loop loop;
    detail::run_metrics metrics;
    const run_options options{.show = progress::on};
    detail::progress_line progress(loop, metrics, options, 0);
    const auto at = [&loop](duration when) {
      loop.run_for(when - loop.elapsed());
      std::fputs("|", stderr);
    };
    for (const duration when : {1s, 2s, 4s, 8s, 16s, 32s, 61s, 62s, 92s, 121s, 122s}) at(when);
  }
  std::string text = captured.text();
  const std::string line = "0 s: 0 items (0/s), waited 0.0%\n";
  for (std::size_t i; (i = text.find(line)) != std::string::npos;) text.replace(i, line.size(), ".");
  CHECK(text.substr(0, text.find("stage")) == ".|.|.|.|.|.||.|.||.|.");
}
