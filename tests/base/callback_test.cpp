// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/callback.hpp>

#include <string>
#include <type_traits>

#include "tests/support/catch.hpp"

using millrace::callback;

namespace {

int twice(int n) { return 2 * n; }

class counter {
 public:
  int operator()(int n) { return sum += n; }
  int less(int n) const noexcept { return sum - n; }
  int sum = 0;
};

int added(const counter& c, int n) { return c.sum + n; }

int of_default(callback<int(int)> f = nullptr) { return f == nullptr ? -1 : f(1); }

}  // namespace

// A temporary that has state would be gone at the first call.
static_assert(std::is_convertible_v<counter&, callback<int(int)>>);
static_assert(!std::is_convertible_v<counter, callback<int(int)>>);
static_assert(!std::is_convertible_v<std::string&, callback<int(int)>>);
static_assert(std::is_trivially_copyable_v<callback<int(int)>>);

TEST_CASE("a callback calls a function, an object, a lambda without captures, or a member of an object") {
  CHECK(of_default() == -1);
  CHECK(of_default(nullptr) == -1);
  CHECK(of_default(twice) == 2);
  CHECK(of_default(&twice) == 2);
  CHECK(of_default([](int n) { return n + 40; }) == 41);
  counter c;
  CHECK(of_default(c) == 1);
  CHECK(of_default(c) == 2);
  const auto reads = [&](int n) { return c.sum * n; };
  CHECK(of_default(reads) == 2);
  CHECK(callback<int(int)>::to<&counter::operator()>(c)(3) == 5);
  const counter& same = c;
  CHECK(callback<int(int)>::to<&counter::less>(same)(1) == 4);
  CHECK(callback<int(int)>::to<&added>(same)(1) == 6);
}

TEST_CASE("a callback passes references on, and forgets results that nothing wants") {
  std::string text;
  const auto append = [](std::string& to) { return to += 'x'; };
  const callback<void(std::string&)> call = append;
  const callback<void(std::string&)> copy = call;
  call(text);
  copy(text);
  CHECK(text == "xx");
}
