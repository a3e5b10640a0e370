// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/error.hpp>

#include "tests/support/catch.hpp"

#include <cerrno>
#include <string>
#include <thread>
#include <type_traits>

using millrace::error;
using millrace::where;

namespace {

std::string said(const where& at) { return error("broken", at).what(); }

}  // namespace

TEST_CASE("an error says where it happened") {
  CHECK(std::string(error("broken").what()) == "broken");
  CHECK(said(where{"s3://b/k", std::nullopt, ""}) == "s3://b/k: broken");
  CHECK(said(where{"s3://b/k", 512, ""}) == "s3://b/k at byte 512: broken");
  CHECK(said(where{"s3://b/k", 512, "0001.jpg"}) == "s3://b/k at byte 512, 0001.jpg: broken");
  CHECK(said(where{"s3://b/k", std::nullopt, "0001"}) == "s3://b/k, 0001: broken");
  CHECK(said(where{"", 0, ""}) == "at byte 0: broken");
  CHECK(said(where{"", std::nullopt, "0001"}) == "0001: broken");
}

TEST_CASE("the parts of an error can be asked for") {
  const error e("broken", where{"shard.tar", 7, "key"});
  CHECK(e.reason() == "broken");
  CHECK(e.object() == "shard.tar");
  CHECK(e.offset() == std::optional<std::uint64_t>(7));
  CHECK(e.key() == "key");
  const error bare("broken");
  CHECK(bare.object().empty());
  CHECK_FALSE(bare.offset());
  CHECK(bare.key().empty());
}

TEST_CASE("what is no printable UTF-8 is escaped byte by byte") {
  const auto shown = [](const char* name) { return said(where{std::string(), std::nullopt, name}); };
  CHECK(shown("Stra\xc3\x9f"
              "e/\xe7\x8c\xab/\xf0\x9f\x90\x88") ==
        "Stra\xc3\x9f"
        "e/\xe7\x8c\xab/\xf0\x9f\x90\x88: broken");
  CHECK(shown("\xff\xfe") == "\\xff\\xfe: broken");
  CHECK(shown("a\xc3") == "a\\xc3: broken");                           // cut
  CHECK(shown("\xe7\x8c") == "\\xe7\\x8c: broken");                    // cut
  CHECK(shown("\xc0\xaf") == "\\xc0\\xaf: broken");                    // overlong
  CHECK(shown("\xe0\x80\xaf") == "\\xe0\\x80\\xaf: broken");           // overlong
  CHECK(shown("\xed\xa0\x80") == "\\xed\\xa0\\x80: broken");           // half of a surrogate pair
  CHECK(shown("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80: broken");  // beyond Unicode
  CHECK(shown("\xc2\x9b") == "\\xc2\\x9b: broken");                    // a control sequence introducer
  CHECK(shown("gpj\xe2\x80\xae") == "gpj\\xe2\\x80\\xae: broken");     // right-to-left override
}

TEST_CASE("control characters of hostile names are escaped, other text is left alone") {
  const std::string nul(1, '\0');
  CHECK(said(where{"a\nb", std::nullopt, "\x1b[31m" + nul + "\x7f"}) == "a\\x0ab, \\x1b[31m\\x00\\x7f: broken");
  CHECK(said(where{"", std::nullopt, "gr\xc3\xbc\xc3\x9f"}) == "gr\xc3\xbc\xc3\x9f: broken");
  CHECK(std::string(error("two\nlines").what()) == "two\\x0alines");
  CHECK(error("two\nlines").reason() == "two\nlines");
}

TEST_CASE("errors have types, and all are millrace::error") {
  static_assert(std::is_base_of_v<std::runtime_error, error>);
  CHECK_THROWS_AS(throw millrace::configuration_error("x"), error);
  CHECK_THROWS_AS(throw millrace::archive_error("x"), error);
  CHECK_THROWS_AS(throw millrace::decode_error("x"), error);
  const millrace::io_error e(std::errc::no_such_file_or_directory, "no such file", where{"/data/x", std::nullopt, ""});
  CHECK(e.code() == std::errc::no_such_file_or_directory);
  CHECK(e.code().value() == ENOENT);
  CHECK_FALSE(millrace::io_error("no code").code());
  CHECK(std::string(e.what()) == "/data/x: no such file");
}

TEST_CASE("notes complete an error's message and nothing else") {
  millrace::io_error e(std::errc::io_error, "broke off", millrace::where{"x.tar", 512, "a"});
  const std::string bare = "x.tar at byte 512, a: broke off";
  CHECK(e.what() == bare);
  const char* const before = e.what();
  e.add_note("after 3 members");
  const char* const with_one = e.what();
  CHECK(with_one == bare + " (after 3 members)");
  e.add_note("in epoch 2\n");
  CHECK(e.what() == bare + " (after 3 members; in epoch 2\\x0a)");
  CHECK(before == bare);  // what was read before stays readable
  CHECK(with_one == bare + " (after 3 members)");
  CHECK(e.reason() == "broke off");
  CHECK(e.code() == std::errc::io_error);
  millrace::io_error copy = e;
  copy.add_note("copied");
  CHECK(copy.what() == bare + " (after 3 members; in epoch 2\\x0a; copied)");
  e = copy;
  CHECK(e.what() == std::string(copy.what()));
}

TEST_CASE("notes on an error that travels are there where it arrives") {
  try {
    try {
      throw millrace::archive_error("cut");
    } catch (millrace::error& e) {
      e.add_note("after 3 members");
      throw;
    }
  } catch (const millrace::archive_error& e) {
    CHECK(e.what() == std::string("cut (after 3 members)"));
  }
}

TEST_CASE("an error without a place is given one by who knows it, and keeps the first") {
  millrace::io_error e(std::errc::io_error, "broke off");
  const millrace::where at{"x.tar\n", 512, "a"};
  const std::string bare = "x.tar\\x0a at byte 512, a: broke off";
  const char* const before = e.what();
  e.add_place(millrace::where());
  CHECK(e.what() == before);
  e.add_note("after 3 members");
  e.add_place(at);
  CHECK(e.what() == bare + " (after 3 members)");
  CHECK(e.what() == std::string(millrace::error("broke off", at).what()) + " (after 3 members)");
  CHECK(before == std::string("broke off"));  // what was read before stays readable
  e.add_place(millrace::where{"y.tar", 0, "b"});
  e.add_note("in epoch 2");
  CHECK(e.what() == bare + " (after 3 members; in epoch 2)");
  CHECK(e.object() == "x.tar\n");
  CHECK(e.offset() == 512u);
  CHECK(e.key() == "a");
  CHECK(e.reason() == "broke off");
  const millrace::io_error copy = e;
  CHECK(copy.what() == std::string(e.what()));
  CHECK(copy.key() == "a");
  millrace::error placed("cut", millrace::where{"", std::nullopt, "k"});
  placed.add_place(at);
  CHECK(placed.what() == std::string("k: cut"));
  CHECK(placed.object().empty());
  millrace::error first("cut");
  first.add_place(at);
  first.add_note("note");
  CHECK(first.what() == std::string("x.tar\\x0a at byte 512, a: cut (note)"));
}

TEST_CASE("notes can be added by several threads while others read") {
  millrace::error e("shared");
  std::thread other([&e] {
    for (int i = 0; i < 50; ++i) e.add_note("one");
  });
  for (int i = 0; i < 50; ++i) {
    e.add_note("two");
    CHECK(std::string(e.what()).back() == ')');
  }
  other.join();
  CHECK(std::string(e.what()).size() == std::string("shared ()").size() + 100 * 5 - 2);
}
