// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Names of members as WebDataset's own expressions split them, evaluated by Python.

#include <millrace/shards/sample.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/test_data.hpp"

using namespace millrace;

namespace {

std::string hex(std::string_view text) {
  static const char* const digits = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    out += digits[static_cast<unsigned char>(c) >> 4];
    out += digits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

/// Names of whole and broken pieces of what the expressions look at.
std::vector<std::string> names() {
  const std::vector<std::string> parts = {
      "a",       "B",    ".",        ".",         "/",        "__",  "_",     "\n",          ".jpg",     ".JPG",
      ".tar.GZ", "./",   "../",      "..",        "__meta__", "__/", ".seg.", "a.b/",        ".__key__", "\\",
      " ",       "\xff", "\xc3\x84", ".\xc3\xa4", "\t",       "1.",  "\r",    "\xe2\x84\xaa"};
  std::vector<std::string> all = {""};
  rng random(23);
  for (int i = 0; i < 20000; ++i) {
    std::string name;
    for (std::uint64_t left = 1 + random.below(6); left > 0; --left) name += parts[random.below(parts.size())];
    all.push_back(name);
  }
  return all;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

TEST_CASE("sample names are what WebDataset's expressions make of them") {
  if (std::system("command -v python3 >/dev/null") != 0) MILLRACE_SKIP("no python3");
  test::temporary_folder folder;
  const std::vector<std::string> all = names();
  std::string text;
  for (const std::string& name : all) text += hex(name) + '\n';
  std::ofstream(folder.file("names")) << text;
  // base_plus_ext, tar_file_iterator and group_by_keys of tariterators.py.
  std::ofstream(folder.file("split.py"))
      << "import re\n"
         "def hexed(text):\n"
         "    return text.encode('utf-8', 'surrogateescape').hex()\n"
         "for line in open('names'):\n"
         "    name = bytes.fromhex(line.strip()).decode('utf-8', 'surrogateescape')\n"
         "    match = re.match(r'^((?:.*/|)[^.]+)[.]([^/]*)$', name)\n"
         "    if '/' not in name and name.startswith('__') and name.endswith('__') or \\\n"
         "            re.match(r'__[^/]*__($|/)', name) or not match:\n"
         "        print('skip')\n"
         "    else:\n"
         "        print(hexed(match.group(1)) + '.' + hexed(match.group(2).lower()))\n";
  const std::string split = folder.file("split");
  REQUIRE(std::system(("cd '" + folder.path() + "' && python3 split.py > split").c_str()) == 0);
  std::ifstream theirs(split);
  int samples = 0;
  for (const std::string& name : all) {
    std::string expected;
    REQUIRE(std::getline(theirs, expected));
    const sample_name n = sample_name::parse(name);
    std::string got = n.is_sample() ? hex(n.key()) + '.' + hex(n.lower_extension()) : "skip";
    // Letters beyond ASCII have no lower case here: the key alone is compared.
    if (!is_ascii(n.extension())) {
      got.erase(got.find('.'));
      expected.erase(std::min(expected.find('.'), expected.size()));
    }
    if (got != expected) {
      CAPTURE(name, got, expected);
      FAIL("differs from WebDataset's expressions");
    }
    samples += n.is_sample() ? 1 : 0;
  }
  CHECK(samples > 5000);
  CHECK(samples < 19000);
}

TEST_CASE("extensions are lowered in ASCII and nowhere else") {
  CHECK(sample_name::parse("a.SEG.Png").lower_extension() == "seg.png");
  CHECK(sample_name::parse("a.\xc3\x84PNG").lower_extension() == "\xc3\x84png");    // a with two dots
  CHECK(sample_name::parse("a.\xe2\x84\xaa").lower_extension() == "\xe2\x84\xaa");  // the sign of Kelvin
}
