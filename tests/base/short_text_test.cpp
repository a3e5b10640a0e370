// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/short_text.hpp>

#include <string>
#include <string_view>
#include <type_traits>

#include "tests/support/catch.hpp"

namespace mill = millrace;
using namespace std::string_view_literals;

namespace {

struct options {
  mill::short_text<16> name = {};
  int level = 0;
};
static_assert(std::is_trivially_destructible_v<options> && std::is_trivially_copyable_v<options>);

std::string shown(const options& o) { return std::string(o.name); }
std::string made(std::size_t n) { return std::string(n, 'x'); }

TEST_CASE("an option takes a text from wherever it comes, and keeps it") {
  const std::string named = "named";
  const char* pointer = "pointer";
  CHECK(shown({.name = "literal"}) == "literal");
  CHECK(shown({.name = named}) == "named");
  CHECK(shown({.name = pointer, .level = 1}) == "pointer");
  CHECK(shown({.name = "a view"sv.substr(2)}) == "view");
  CHECK(shown({.name = made(3)}) == "xxx");
  options o;
  CHECK(o.name.empty());
  {
    std::string passing = made(16);
    o.name = passing;
    passing.assign(16, 'y');
  }
  const options copy = o;
  o.name = {};
  CHECK(shown(copy) == made(16));
  CHECK_FALSE(copy.name.empty());
  CHECK(shown(o).empty());
  CHECK(shown({.name = "a\0b"sv}) == std::string("a\0b", 3));
}

TEST_CASE("a null pointer is no text") {
  const char* absent = nullptr;
  CHECK(shown({.name = absent}).empty());
}

TEST_CASE("a text that is too long is refused") {
  CHECK(shown({.name = made(16)}).size() == 16);
  CHECK_THROWS_AS(options{.name = made(17)}, mill::configuration_error);
  CHECK_THROWS_WITH(mill::short_text<16>(made(17)), "an option of 17 bytes, where 16 are the most");
}

}  // namespace
