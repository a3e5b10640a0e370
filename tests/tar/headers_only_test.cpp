// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/tar/reader.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"
#include "tests/tar/archives.hpp"

namespace {

using namespace millrace;

/// The members by their headers: the reader is fed `piece` bytes at each place where it wants some, and no others.
test::outcome walked(const std::string& text, std::size_t piece, std::uint64_t& fed) {
  test::outcome out;
  tar::reader reader("test.tar", {.object_bytes = text.size(), .headers_only = true});
  try {
    tar::entry e;
    std::uint64_t at = 0;
    for (bool finished = false; !finished || !reader.done();) {
      while (reader.next(e)) {
        CHECK(e.body.empty());
        out.members.push_back({e.name, e.type, "", e.header_offset, e.data_offset, e.size});
      }
      if (reader.done()) break;
      const std::uint64_t next = reader.skip();
      if (next > at) {
        at = next;
      } else if (at < text.size()) {
        const std::string_view some = std::string_view(text).substr(static_cast<std::size_t>(at), piece);
        reader.feed(bytes::copy(some));
        at += some.size();
        fed += some.size();
      } else {
        REQUIRE_FALSE(finished);
        finished = true;
        reader.finish();
      }
    }
  } catch (const archive_error& e) {
    out.error = e.reason();
    out.error_offset = e.offset();
  }
  return out;
}

void check_same(const std::string& text) {
  test::outcome wanted = test::read_tar(text, {.object_bytes = text.size()});
  for (test::member& m : wanted.members) m.body.clear();
  wanted.warning.clear();
  for (const std::size_t piece : {1u, 100u, 512u, 700u, 5000u}) {
    std::uint64_t fed = 0;
    CHECK(describe(walked(text, piece, fed)) == describe(wanted));
  }
}

}  // namespace

TEST_CASE("an archive's headers tell its members without their bodies") {
  std::string text;
  for (int i = 0; i < 10; ++i) {
    text += test::pax_header(test::pax_record("path", "long/" + std::to_string(i))) +
            test::raw_member({}, std::string(100001, 'b')) + test::raw_member({.name = "link", .type = '2'}, "");
  }
  text += test::end_block();
  check_same(text);
  std::uint64_t fed = 0;
  CHECK(walked(text, 512, fed).members.size() == 20);
  CHECK(fed < 30000);
  // The last body may lack what fills up its block, or be cut.
  const std::string cut = test::raw_member({}, std::string(1000, 'c'));
  for (const std::size_t n : {1512u, 1513u, 1511u, 600u, 512u, 300u, 0u}) check_same(cut.substr(0, n));
}

TEST_CASE("broken archives are refused by their headers as they are by all their bytes", "[slow]") {
  rng random(5);
  const std::string text = test::raw_member({.name = "a"}, std::string(700, 'a')) +
                           test::raw_member({.type = 'L'}, std::string(120, 'l') + '\0') + test::raw_member({}, "x") +
                           test::raw_member({.name = "dir/", .type = '5'}, "") +
                           test::pax_header(test::pax_record("size", "1500")) +
                           test::raw_member({}, std::string(1500, 'd')) + test::end_block();
  for (int i = 0; i < 2000; ++i) {
    std::string changed = text;
    const std::size_t block = static_cast<std::size_t>(random.below(text.size() / 512)) * 512;
    static const std::size_t fields[] = {0, 124, 130, 135, 156, 257};
    changed[block + fields[random.below(6)]] = "\0 07xLSg"[random.below(8)];
    if (random.below(2) == 0) {
      changed.replace(block, 512, test::header_block::sealed(changed.substr(block, 512)));
    }
    if (random.below(4) == 0) changed.resize(static_cast<std::size_t>(random.below(changed.size())));
    check_same(changed);
  }
}
