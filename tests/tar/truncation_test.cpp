// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/tar/reader.hpp>

#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/test_data.hpp"
#include "tests/tar/archives.hpp"

namespace {

using namespace millrace;
using test::outcome;

/// "end", "truncated" (the input ends too early) or "header" (something in it is wrong).
std::string result_of(const outcome& o, std::size_t input_size) {
  if (o.error.empty()) return "end";
  return o.error_offset == input_size && o.error.find("cut") != std::string::npos ? "truncated" : "header";
}

std::string input_of(const std::string& folder, const std::string& name) {
  if (name == "(empty input)") return std::string();
  const std::string zeros = " + 10 zero blocks";
  if (name.size() > zeros.size() && name.substr(name.size() - zeros.size()) == zeros) {
    return test::read_file(folder + name.substr(0, name.size() - zeros.size())) + std::string(5120, '\0');
  }
  return test::read_file(folder + name);
}

/// "1536", "all", "1536+511 garbage bytes".
std::string prefix_of(const std::string& input, const std::string& what) {
  std::string text = what.rfind("all", 0) == 0 ? input : input.substr(0, std::stoul(what));
  const std::size_t plus = what.find('+');
  if (plus != std::string::npos) text.append(std::stoul(what.substr(plus + 1)), 'x');
  return text;
}

}  // namespace

TEST_CASE("tar reader ends where Go's reader ends on cut archives") {
  const std::string folder = test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data folder");
  int rows = 0;
  int differing = 0;
  for (const auto& row : test::read_table(folder + "/tar/go/TRUNCATION.tsv")) {
    CAPTURE(row[0], row[1]);
    const std::string text = prefix_of(input_of(folder + "/tar/go/", row[0]), row[1]);
    const outcome got = test::read_tar(text);
    CAPTURE(test::describe(got));
    for (const test::split& how : test::splits()) CHECK((test::read_tar(text, {}, how) == got));
    ++rows;
    if (row[0] == "(empty input)") {
      // No archive at all is an error here: an answer of 0 bytes must not pass for a shard.
      CHECK(got.error == "the object is empty, not an archive");
      ++differing;
      continue;
    }
    if (row[0] == "sparse-formats.tar" && text.size() >= 512) {
      CHECK(got.error == "sparse members are not supported");
      CHECK(got.error_offset == 0u);
      ++differing;
      continue;
    }
    if (row[0] == "pax-path-hdr.tar" && row[1] == "all") {
      // Go ends quietly when an extended header has no member after it; that is a cut archive.
      CHECK(row[3] == "end");
      CHECK(result_of(got, text.size()) == "truncated");
      ++differing;
      continue;
    }
    CHECK(result_of(got, text.size()) == row[3]);
    // The table counts headers; this reader yields whole members only.
    const std::size_t headers = std::stoul(row[2]);
    if (row[3] == "truncated") {
      CHECK(got.members.size() + 1 >= headers);
      CHECK(got.members.size() <= headers);
    } else {
      CHECK(got.members.size() == headers);
    }
  }
  CHECK(rows == 36);
  CHECK(differing == 10);
}

TEST_CASE("tar reader gives whole members and the place of the cut for every prefix") {
  const std::string text = test::raw_member({}, std::string(700, 'a')) +
                           test::pax_header(test::pax_record("path", "long/name.jpg")) +
                           test::raw_member({}, std::string(512, 'b')) +
                           test::raw_member({.name = "././@LongLink", .type = 'L'}, std::string(150, 'n') + '\0') +
                           test::raw_member({}, "c") + test::raw_member({.name = "dump", .type = 'D'}, "12345") +
                           test::raw_member({.name = "empty"}, "") + test::end_block();
  const outcome whole = test::read_tar(text);
  REQUIRE(whole.error.empty());
  REQUIRE(whole.members.size() == 5);
  for (std::size_t length = 1; length < text.size(); ++length) {
    const outcome got = test::read_tar(text.substr(0, length), {}, {61, 0});
    CAPTURE(length, test::describe(got));
    std::size_t complete = 0;
    std::size_t group_end = 0;  // where the members that are whole end, padding included
    for (const test::member& m : whole.members) {
      if (m.data_offset + m.size > length) break;
      ++complete;
      group_end = (m.data_offset + m.size + 511) / 512 * 512;
    }
    REQUIRE(got.members.size() == complete);
    for (std::size_t i = 0; i < complete; ++i) REQUIRE(got.members[i] == whole.members[i]);
    if (length <= group_end || length == text.size() - 512) {
      REQUIRE(got.error.empty());
      REQUIRE(!got.warning.empty());
    } else {
      REQUIRE(got.error_offset == length);
      REQUIRE(got.error.find("cut") != std::string::npos);
    }
  }
}

TEST_CASE("tar reader warns of an archive without its end-of-archive block") {
  const std::string member = test::raw_member({}, "body");
  CHECK(test::read_tar(member).warning.find("no end-of-archive block") == 0);
  CHECK(test::read_tar(member + std::string(512, '\0')).warning.find("only half") == 0);
  CHECK(test::read_tar(member + test::end_block()).warning.empty());
}
