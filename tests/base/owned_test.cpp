// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/owned.hpp>

#include <utility>
#include <vector>

#include "tests/support/catch.hpp"

using millrace::make_owned;
using millrace::owned;

namespace {

int alive = 0;

struct counted {
  counted() { ++alive; }
  explicit counted(int v) : value(v) { ++alive; }
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;
  virtual ~counted() { --alive; }
  int value = 0;
};
struct derived final : counted {
  using counted::counted;
};

int freed = 0;
struct free_handle {
  void operator()(void* handle) const noexcept { freed += *static_cast<int*>(handle); }
};

}  // namespace

TEST_CASE("owned: the object ends with its owner, once") {
  alive = 0;
  {
    owned<counted> a = make_owned<counted>(7);
    CHECK(a);
    CHECK(a != nullptr);
    CHECK(a->value == 7);
    CHECK((*a).value == 7);
    CHECK(alive == 1);
    owned<counted> b(std::move(a));
    CHECK(a == nullptr);  // NOLINT: what a moved-from owner is, is promised
    CHECK_FALSE(a);
    CHECK(b.get()->value == 7);
    owned<counted> c;
    CHECK(c == nullptr);
    c = std::move(b);
    CHECK(alive == 1);
    c = make_owned<counted>(8);
    CHECK(alive == 1);
    CHECK(c->value == 8);
    owned<counted>& itself = c;
    c = std::move(itself);
    CHECK(alive == 1);
    REQUIRE(c != nullptr);
    CHECK(c->value == 8);
  }
  CHECK(alive == 0);
}

TEST_CASE("owned: reset ends the object after the owner has forgotten it; release gives it away") {
  alive = 0;
  owned<counted> a = make_owned<counted>(1);
  a.reset(new counted(2));
  CHECK(alive == 1);
  CHECK(a->value == 2);
  counted* const given = a.release();
  CHECK(a == nullptr);
  CHECK(alive == 1);
  delete given;
  a.reset();
  CHECK(alive == 0);

  struct looks_back {
    explicit looks_back(owned<looks_back>& h) : home(h) {}
    ~looks_back() { seen = home.get(); }
    owned<looks_back>& home;
    const void*& seen = last_seen();
    static const void*& last_seen() {
      static const void* p = nullptr;
      return p;
    }
  };
  owned<looks_back> self;
  self = make_owned<looks_back>(self);
  looks_back::last_seen() = &self;
  self.reset();
  CHECK(looks_back::last_seen() == nullptr);
}

TEST_CASE("owned: of a base class, of a handle of a C library, in containers") {
  alive = 0;
  {
    owned<counted> base = make_owned<derived>(3);
    CHECK(base->value == 3);
    std::vector<owned<counted>> many;
    for (int i = 0; i < 10; ++i) many.push_back(make_owned<derived>(i));
    CHECK(alive == 11);
    many.erase(many.begin() + 3);
    CHECK(alive == 10);
    CHECK(many[3]->value == 4);
  }
  CHECK(alive == 0);
  freed = 0;
  int handle = 5;
  { const owned<void, free_handle> closed(&handle); }
  { const owned<void, free_handle> none; }
  CHECK(freed == 5);
}
