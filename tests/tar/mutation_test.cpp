// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/tar/reader.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/test_data.hpp"
#include "tests/tar/archives.hpp"

namespace {

using namespace millrace;
using test::outcome;

constexpr tar::reader_options limits{.max_member_bytes = 20000};

std::vector<std::string> seeds() {
  using test::pax_header;
  using test::pax_record;
  using test::raw_member;
  std::vector<std::string> all;
  all.push_back(raw_member({}, "abc") + raw_member({.name = "dir/b.jpg"}, std::string(2000, 'b')) + test::end_block());
  all.push_back(pax_header(pax_record("mtime", "1700000000.5") + pax_record("path", "c.jpg")) +
                raw_member({}, std::string(600, 'c')) + pax_header(pax_record("size", "700")) +
                raw_member({}, std::string(700, 'd')) + test::end_block());
  all.push_back(raw_member({.type = 'L'}, std::string(120, 'l') + '\0') + raw_member({.type = 'K'}, "t") +
                raw_member({}, "x") + raw_member({.type = 'D'}, "dump") + test::end_block());
  const std::string folder = test::test_data_folder();
  for (const char* file : {"gnu-multi-hdrs", "pax", "sparse-formats", "hdr-only", "nil-uid", "xattrs", "star", "v7"}) {
    if (!folder.empty()) all.push_back(test::read_file(folder + "/tar/go/" + file + ".tar"));
  }
  return all;
}

/// Changes some bytes, mostly where headers are, and makes the checksums right again more often than not: a wrong one
/// would end the reading before the change is seen.
std::string mutated(std::string text, rng& random) {
  const std::uint64_t changes = 1 + random.below(6);
  for (std::uint64_t i = 0; i < changes; ++i) {
    const std::size_t block = static_cast<std::size_t>(random.below(text.size() / 512)) * 512;
    static const std::size_t fields[] = {0, 99, 124, 130, 135, 156, 257, 263, 345, 482, 508};
    const bool in_header = random.below(4) != 0;
    std::size_t at =
        block + static_cast<std::size_t>(in_header ? fields[random.below(std::size(fields))] + random.below(4)
                                                   : random.below(512));
    static const char values[] = {'\0', ' ', '0', '1',  '7',    '8',    'x', 'g',
                                  'L',  'S', '=', '\n', '\x80', '\xff', '/', 'D'};
    switch (random.below(5)) {
      case 0:
        text[at] = static_cast<char>(random.next());
        break;
      case 1:
        text[at] = static_cast<char>(text[at] ^ (1 << random.below(8)));
        break;
      case 2:  // another size
        text.replace(block + 124, 12, test::octal_size(random.below(4000)));
        break;
      default:
        text[at] = values[random.below(std::size(values))];
    }
    if (random.below(8) != 0) text.replace(block, 512, test::header_block::sealed(text.substr(block, 512)));
  }
  if (random.below(4) == 0) text.resize(1 + static_cast<std::size_t>(random.below(text.size())));
  return text;
}

}  // namespace

TEST_CASE("tar reader withstands mutated archives") {
  const std::vector<std::string> originals = seeds();
  rng random(20240607);
  int errors = 0;
  int whole = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::string text = mutated(originals[random.below(originals.size())], random);
    tar::reader_options options = limits;
    options.concatenated = random.below(4) == 0;
    const outcome one = test::read_tar(text, options, {1 + static_cast<std::size_t>(random.below(2000)), 0});
    const outcome two =
        test::read_tar(text, options, {1 + static_cast<std::size_t>(random.below(700)), random.next() | 1});
    if (one != two) {
      CAPTURE(i, test::describe(one), test::describe(two));
      FAIL("two ways to cut the same archive gave two results");
    }
    std::uint64_t last = 0;
    for (const test::member& m : one.members) {
      const bool sane =
          m.name.size() <= 4096 && m.body.size() <= limits.max_member_bytes && m.header_offset >= last &&
          m.header_offset < m.data_offset && m.data_offset + m.size <= text.size() &&
          (m.body.empty() || m.body.size() == m.size) &&
          (m.body.empty() || text.compare(static_cast<std::size_t>(m.data_offset), m.body.size(), m.body) == 0);
      if (!sane) {
        CAPTURE(i, test::describe(one));
        FAIL("a member that is not in the archive");
      }
      last = m.data_offset + m.size;
    }
    if (!one.error.empty() && one.error_offset.value_or(text.size() + 1) > text.size()) {
      CAPTURE(i, test::describe(one));
      FAIL("an error outside the archive");
    }
    (one.error.empty() ? whole : errors) += 1;
  }
  CHECK(errors > 1000);
  CHECK(whole > 1000);
}

TEST_CASE("tar reader withstands noise") {
  rng random(7);
  for (int i = 0; i < 500; ++i) {
    std::string text(1 + static_cast<std::size_t>(random.below(4000)), '\0');
    for (char& c : text) c = static_cast<char>(random.next());
    const outcome got = test::read_tar(text, limits, {1 + static_cast<std::size_t>(random.below(999)), 0});
    CHECK(!got.error.empty());
  }
}
