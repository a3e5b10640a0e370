// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/stages.md.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace std::chrono_literals;

namespace {

// begin coroutine
mill::async_generator<std::string> joined(mill::async_generator<std::string> lines) {
  std::string whole;
  while (std::optional<std::string> line = co_await lines.next()) {
    whole += *line;
    if (!whole.empty() && whole.back() == '\\') {  // continues in the next line
      whole.pop_back();
      continue;
    }
    co_yield mill::give(whole);
    whole.clear();
  }
}
// end coroutine

// begin options
auto at_least(std::size_t length) {
  return mill::filter([length](const std::string& line) { return line.size() >= length; });
}
// end options

// begin held
mill::async_generator<std::string> sorted_by_hundreds(mill::async_generator<std::string> lines) {
  std::vector<std::string> held;
  for (bool ended = false; !ended;) {
    while (held.size() < 100 && !ended) {
      std::optional<std::string> line = co_await lines.next();
      ended = !line;
      if (line) held.push_back(std::move(*line));
    }
    std::sort(held.begin(), held.end());
    for (std::string& line : held) co_yield mill::give(line);
    held.clear();
  }
}
mill::stream<std::string> sorted(mill::async_generator<std::string> lines) {
  return mill::stream(sorted_by_hundreds(std::move(lines))).named("sorted").bounded(100, 100 * mill::KiB);
}
// end held

// begin words
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words(1);
  for (char c : line) {
    if (c == ' ') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}
// end words

// begin look_up
mill::task<std::string> look_up(std::string word) {
  co_await mill::sleep_for(10ms);  // a request to a server
  co_return word + "!";
}
// end look_up

// begin item
class page {
 public:
  explicit page(std::string content) : text(std::move(content)) {}
  std::string text;
  friend std::size_t byte_size(const page& p) noexcept { return p.text.size(); }
};
// end item

}  // namespace

TEST_CASE("the guide's own stage joins lines", "[guide]") {
  mill::testing::virtual_loop loop;
  std::vector<std::string> some{"a\\", "b", "cc", "long enough"};
  // begin use
  auto lines = mill::from_range(std::move(some)) | mill::named("joined", joined) | at_least(2);
  // end use
  CHECK(block_on(loop, collect(std::move(lines))) == std::vector<std::string>{"ab", "cc", "long enough"});
}

TEST_CASE("the guide's stage that holds items says so", "[guide]") {
  mill::testing::virtual_loop loop;
  auto lines = mill::from_range(std::vector<std::string>{"b", "c", "a"}) | mill::named("joined", joined) | sorted;
  CHECK(lines.bounds().size() == 1);
  CHECK(lines.bounds().back().items == 100);
  CHECK(block_on(loop, collect(std::move(lines))) == std::vector<std::string>{"a", "b", "c"});
}

TEST_CASE("the guide's words are looked up eight at a time, and the first four taken", "[guide]") {
  mill::testing::virtual_loop loop;
  auto lines = mill::from_range(std::vector<std::string>{"one two", "three four five", "six"});
  // begin many
  auto answers = std::move(lines)                               //
                 | mill::flat_map(words_of)                     // several items of one
                 | mill::map_concurrent(look_up, {.limit = 8})  // several items at a time
                 | mill::take(4);                               // then everything upstream is dropped
  // end many
  CHECK(block_on(loop, collect(std::move(answers))) == std::vector<std::string>{"one!", "two!", "three!", "four!"});
  CHECK(loop.elapsed() == 10ms);
}

TEST_CASE("the guide's pages are buffered by bytes", "[guide]") {
  mill::testing::virtual_loop loop;
  auto lines = mill::from_range(std::vector<std::string>{"one", "two"});
  // begin buffer
  auto pages = std::move(lines)                                                     //
               | mill::map([](std::string text) { return page(std::move(text)); })  //
               | mill::buffer({.items = 16, .bytes = 64 * mill::MiB});              // whichever is reached first
  // end buffer
  CHECK(pages.bounds().back().bytes == 64 * mill::MiB);
  CHECK(block_on(loop, collect(std::move(pages))).size() == 2);
}
