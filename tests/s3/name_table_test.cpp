// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/s3/config/detail/name_table.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"

using millrace::s3::detail::name_table;

TEST_CASE("name_table: finds what was put under a name, in the order of names", "[s3][name_table]") {
  name_table<int> table;
  CHECK(table.empty());
  CHECK(table.find("a") == nullptr);
  table["m"] = 1;
  table["z"] = 2;
  table["a"] = 3;
  table["m"] = 4;
  CHECK(table.size() == 3);
  REQUIRE(table.find("m") != nullptr);
  CHECK(*table.find("m") == 4);
  CHECK(*table.find("a") == 3);
  CHECK(*table.find("z") == 2);
  CHECK(table.find("") == nullptr);
  CHECK(table.find("b") == nullptr);
  CHECK(table.find("zz") == nullptr);
  std::string names;
  for (const auto& one : table.entries()) names += one->name;
  CHECK(names == "amz");
  table[""] = 5;
  CHECK(*table.find("") == 5);
  CHECK(table["new"] == 0);
}

TEST_CASE("name_table: entries stay where they are", "[s3][name_table]") {
  struct fixed {
    fixed() = default;
    fixed(const fixed&) = delete;
    fixed& operator=(const fixed&) = delete;
    bool keep = false;
  };
  name_table<fixed> table;
  fixed& first = table["name 500"];
  first.keep = true;
  for (int i = 0; i < 1000; ++i) table["name " + std::to_string(i)].keep |= i % 100 == 0;
  CHECK(table.size() == 1000);
  CHECK(&table["name 500"] == &first);
  table.erase_if([](const fixed& f) { return !f.keep; });
  CHECK(table.size() == 10);
  CHECK(table.find("name 500") == &first);
  CHECK(table.find("name 501") == nullptr);
  const name_table<fixed> moved = std::move(table);
  CHECK(moved.find("name 500") == &first);
}

TEST_CASE("name_table: as std::map", "[s3][name_table]") {
  millrace::rng random(7);
  name_table<std::size_t> table;
  std::map<std::string, std::size_t> expected;
  for (std::size_t i = 0; i < 3000; ++i) {
    std::string name;
    for (std::uint64_t n = random.below(4); n > 0; --n) name += static_cast<char>(random.below(256));
    table[name] = i;
    expected[name] = i;
  }
  auto want = expected.begin();
  bool same = table.size() == expected.size();
  for (const auto& one : table.entries()) {
    same = same && one->name == want->first && one->value == want->second && table.find(want->first) == &one->value;
    if (same) ++want;
  }
  CHECK(same);
}
