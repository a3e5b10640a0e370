// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/wait_list.hpp>

#include <memory>
#include <optional>

#include "tests/support/catch.hpp"

namespace {

using millrace::wait_list;

class numbered : public millrace::waiter {
 public:
  explicit numbered(int n) : number(n) {}
  const int number;
};

}  // namespace

TEST_CASE("waiters leave in the order in which they came, or from where one looks", "[base]") {
  numbered a(1), b(2), c(3), d(4);
  wait_list<numbered> list;
  CHECK(list.empty());
  CHECK(list.count() == 0);
  for (numbered* n : {&a, &b, &c, &d}) list.push(*n);
  CHECK(list.count() == 4);
  CHECK(list.front().number == 1);
  CHECK(list.pop(2).number == 3);
  CHECK_FALSE(c.linked());
  CHECK(list.pop().number == 1);
  list.push(a);
  CHECK(list.pop(2).number == 1);
  CHECK(list.pop(1).number == 4);
  CHECK(list.pop().number == 2);
  CHECK(list.empty());
}

TEST_CASE("waiters that end leave no trace, and neither does a list", "[base]") {
  auto list = std::make_unique<wait_list<numbered>>();
  numbered a(1);
  std::optional<numbered> b(2);
  numbered c(3);
  list->push(a);
  list->push(*b);
  list->push(c);
  b.reset();
  CHECK(list->count() == 2);
  a.unlink();
  a.unlink();
  CHECK(list->front().number == 3);
  list.reset();
  CHECK_FALSE(c.linked());
  c.unlink();
}
