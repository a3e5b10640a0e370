// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/records/lines.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::string_literals;

namespace {

async_generator<chunk> chunks_of(std::vector<std::string> shards, std::size_t piece) {
  for (std::size_t n = 0; n < shards.size(); ++n) {
    auto from = std::make_shared<const shard>("s" + std::to_string(n));
    const std::string& text = shards[n];
    std::size_t at = 0;
    do {
      const std::size_t size = std::min(piece, text.size() - at);
      chunk c(from, at, bytes::copy(std::string_view(text).substr(at, size)), at + size == text.size());
      at += size;
      co_yield give(c);
    } while (at < text.size());
  }
}

struct seen {
  std::vector<std::string> lines;
  std::vector<std::string> origins;
  std::vector<std::size_t> sizes;
};
task<seen> collect(stream<line_batch> in) {
  seen out;
  while (std::optional<line_batch> b = co_await in.next()) {
    out.sizes.push_back(b->size());
    out.origins.push_back(b->from.url() + ":" + std::to_string(b->from.offset) + ":" + std::to_string(b->from.ordinal));
    for (std::string_view l : *b) out.lines.emplace_back(l);
  }
  co_return out;
}
seen split(std::vector<std::string> shards, std::size_t piece, lines_options o) {
  testing::virtual_loop loop;
  return block_on(loop, collect(chunks_of(std::move(shards), piece) | lines(o)));
}

}  // namespace

TEST_CASE("lines are the same however the text is cut into pieces") {
  const std::vector<std::string> shards{"one\ntwo\r\n\nfour", "", "five\n", "\n"};
  const std::vector<std::string> expected{"one", "two", "", "four", "five", ""};
  for (std::size_t piece : {1, 2, 3, 5, 100}) {
    for (std::size_t size : {1, 2, 4, 100}) {
      const seen s = split(shards, piece, {.batch = size});
      INFO("piece " << piece << ", batch " << size);
      CHECK(s.lines == expected);
      for (std::size_t i = 0; i + 1 < s.sizes.size(); ++i) CHECK(s.sizes[i] == size);
    }
  }
}

TEST_CASE("a batch knows where its first line comes from") {
  for (std::size_t piece : {1, 4, 100}) {
    const seen s = split({"ab\ncd\r\nef\n", "gh"}, piece, {.batch = 1});
    CHECK(s.origins == std::vector<std::string>{"s0:0:0", "s0:3:1", "s0:7:2", "s1:0:0"});
  }
}

TEST_CASE("a batch knows where each of its lines comes from, over the ends of shards and pieces") {
  const std::vector<std::string> shards{"one\ntwo\r\n\nfour", "", "five\n", "\nsix"};
  const std::vector<std::string> expected{"s0:0:0 one", "s0:4:1 two",  "s0:9:2 ", "s0:10:3 four",
                                          "s2:0:0 five", "s3:0:0 ", "s3:1:1 six"};
  for (const std::size_t piece : {1, 2, 3, 5, 100}) {
    for (const std::size_t size : {1, 2, 3, 100}) {
      INFO("pieces of " << piece << ", batches of " << size);
      testing::virtual_loop loop;
      const auto places = [](stream<line_batch> in) -> task<std::vector<std::string>> {
        std::vector<std::string> got;
        while (std::optional<line_batch> b = co_await in.next()) {
          CHECK(b->origin_of(0).offset == b->from.offset);
          for (std::size_t i = 0; i < b->size(); ++i) {
            const origin o = b->origin_of(i);
            std::string text = o.url() + ":" + std::to_string(o.offset) + ":" + std::to_string(o.ordinal) + " ";
            got.push_back(text.append(b->lines[i]));
          }
        }
        co_return got;
      };
      CHECK(block_on(loop, places(chunks_of(shards, piece) | lines({.batch = size}))) == expected);
    }
  }
  line_batch own;
  own.lines = {"a", "b"};
  CHECK_FALSE(own.origin_of(1));
}

TEST_CASE("a line that is too long is an error with its place") {
  for (std::size_t piece : {3, 100}) {
    try {
      split({"short\n" + std::string(50, 'x') + "\n"}, piece, {.batch = 4, .max_line = 20});
      FAIL("no error");
    } catch (const decode_error& e) {
      CHECK(e.object() == "s0");
      CHECK(e.offset() == 6u);
    }
  }
  CHECK_THROWS_AS(lines({.batch = 0}), configuration_error);
}

TEST_CASE("lines of archives, and of what only begins like compressed data, are refused, whatever the pieces") {
  struct kind {
    const char* name;
    std::string begin;
  };
  const kind kinds[] = {{"gzip", "\x1f\x8b\x08\0\0"s},
                        {"bzip2", "BZh91AY&SY"},
                        {"bzip2", "BZh1\x17\x72\x45\x38\x50\x90"},
                        {"xz", "\xfd\x37zXZ\0"s},
                        {"zstd", "\x28\xb5\x2f\xfd"},
                        {"lz4", "\x04\x22\x4d\x18"},
                        {"zip", "PK\3\4"},
                        {"7z", "7z\xbc\xaf\x27\x1c"}};
  for (const kind& k : kinds) {
    for (const std::size_t piece : {1, 2, 3, 5, 100}) {
      CAPTURE(k.name, piece);
      try {
        split({"text\n", k.begin + "more\nlines\n"}, piece, {.batch = 1});
        FAIL("no error");
      } catch (const decode_error& e) {
        CHECK(e.object() == "s1");
        CHECK(e.offset() == 0u);
        CHECK_THAT(e.reason(), Catch::Matchers::StartsWith("this is a "s + k.name + " archive and no text"));
        CHECK((k.begin[0] == 'P' || k.begin[0] == '7'));
      } catch (const archive_error& e) {
        CHECK(e.object() == "s1");
        CHECK(e.offset() == 0u);
        CHECK_THAT(e.reason(), Catch::Matchers::Contains("the "s + k.name + " data"));
      }
    }
  }
}

TEST_CASE("lines of a tar are refused", "[lines]") {
  std::string tar;
  tar::writer w(tar);
  w.add("a.txt", "one\ntwo\n");
  w.finish();
  for (const std::size_t piece : {7, 600, 100000}) {
    CHECK_THROWS_WITH(split({tar}, piece, {}),
                      Catch::Matchers::Contains("this is a tar archive and no text: read it by untar()"));
  }
}

TEST_CASE("a text of NULs is refused as one", "[lines]") {
  CHECK_THROWS_WITH(split({std::string(4096, '\0')}, 700, {}),
                    Catch::Matchers::Contains("s0 at byte 0: the text begins with 512 NULs"));
}

TEST_CASE("shuffle() shuffles lines, not their batches, and each knows its place", "[lines]") {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "line " + std::to_string(i) + "\n";
  const auto run = [](stream<line_batch> in) -> task<std::vector<std::string>> {
    std::vector<std::string> out;
    while (std::optional<line_batch> b = co_await in.next()) {
      out.push_back(std::to_string(b->size()));
      for (std::size_t i = 0; i < b->size(); ++i) {
        const origin at = b->origin_of(i);
        if (b->lines[i] != "line " + std::to_string(at.ordinal)) throw std::runtime_error("a line has another's place");
        out.emplace_back(b->lines[i]);
      }
    }
    co_return out;
  };
  testing::virtual_loop loop;
  auto shuffled = chunks_of({text}, 50) | lines({.batch = 32}) | shuffle({.window = 200, .startup = 1});
  std::vector<std::string> got = block_on(loop, run(std::move(shuffled)));
  CHECK(std::count(got.begin(), got.end(), "32") == 9);
  CHECK(std::count(got.begin(), got.end(), "12") == 1);
  std::size_t neighbours = 0;
  for (std::size_t i = 1; i < 33; ++i) {
    const int number = std::stoi(got[i].substr(5));
    neighbours += number < 32;
  }
  CHECK(neighbours < 16);  // of a batch that was moved as a whole it would be none or all
  CHECK(neighbours > 0);
  std::sort(got.begin(), got.end());
  CHECK(std::unique(got.begin(), got.end()) - got.begin() == 302);
}

TEST_CASE("text that begins almost like compressed data is text") {
  for (const std::string text :
       {"BZhang,1", "BZh9 is a file's first word", "070701", "PK", "\x1f", "\xfd\x37zXZ", "7z"}) {
    for (const std::size_t piece : {1, 4, 100}) {
      CAPTURE(text, piece);
      CHECK(split({text + "\n" + text}, piece, {.batch = 1}).lines == std::vector<std::string>{text, text});
      CHECK(split({"a\n\x1f\x8b"}, piece, {.batch = 1}).lines.size() == 2);  // elsewhere it may stand
    }
  }
}
