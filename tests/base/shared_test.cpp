// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/base/shared.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/support/catch.hpp"

using millrace::make_shared_object;
using millrace::shared;

namespace {

int alive = 0;

struct counted {
  counted() { ++alive; }
  explicit counted(int v) : value(v) { ++alive; }
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;
  ~counted() { --alive; }  // not virtual
  int value = 0;
};
struct other_base {
  std::uint64_t words[3] = {1, 2, 3};
};
struct derived final : other_base, counted {
  using counted::counted;
  std::string text = "a text that is long enough to be on the heap";
};

struct refusing {
  explicit refusing(bool refuse) {
    if (refuse) throw std::runtime_error("refused");
  }
  counted inner;
};

}  // namespace

TEST_CASE("shared: the object ends with its last owner, once") {
  alive = 0;
  {
    shared<counted> a = make_shared_object<counted>(7);
    CHECK(a);
    CHECK(a != nullptr);
    CHECK(a->value == 7);
    CHECK((*a).value == 7);
    CHECK(a.use_count() == 1);
    const shared<counted> b = a;
    CHECK(b == a);
    CHECK(a.use_count() == 2);
    CHECK(alive == 1);
    shared<counted> c(std::move(a));
    CHECK(a == nullptr);  // NOLINT: what a moved-from owner is, is promised
    CHECK_FALSE(a);
    CHECK(a.use_count() == 0);
    CHECK(c == b);
    CHECK(c.use_count() == 2);
    a = c;
    CHECK(c.use_count() == 3);
    a = make_shared_object<counted>(8);
    CHECK(a != c);
    CHECK(alive == 2);
    CHECK(c.use_count() == 2);
    a = std::move(c);
    CHECK(c == nullptr);  // NOLINT
    CHECK(alive == 1);
    CHECK(a.use_count() == 2);
    a.reset();
    CHECK(a == nullptr);
    CHECK(b.use_count() == 1);
    CHECK(b->value == 7);
  }
  CHECK(alive == 0);
  static_assert(std::is_nothrow_move_constructible_v<shared<counted>>);
  static_assert(std::is_nothrow_move_assignable_v<shared<counted>>);
  static_assert(std::is_nothrow_copy_constructible_v<shared<counted>>);
}

TEST_CASE("shared: empty ones") {
  const shared<int> none;
  const shared<int> null = nullptr;
  CHECK(none == nullptr);
  CHECK(none == null);
  CHECK(null.get() == nullptr);
  CHECK(none.use_count() == 0);
  const shared<int> copy = none;  // NOLINT
  CHECK_FALSE(copy);
  shared<int> a = make_shared_object<int>(3);
  a = nullptr;
  CHECK_FALSE(a);
  a = {};
  a.reset();
  CHECK_FALSE(a);
}

TEST_CASE("shared: assigned to itself it stays") {
  alive = 0;
  shared<counted> a = make_shared_object<counted>(1);
  shared<counted>& itself = a;
  a = itself;
  REQUIRE(a);
  CHECK(a.use_count() == 1);
  a = std::move(itself);
  REQUIRE(a);
  CHECK(a.use_count() == 1);
  CHECK(a->value == 1);
  CHECK(alive == 1);
}

TEST_CASE("shared: an object that owns another is let go after that was taken over") {
  struct node {
    explicit node(shared<node> n) : next(std::move(n)) { ++alive; }
    ~node() { --alive; }
    shared<node> next;
  };
  alive = 0;
  shared<node> head = make_shared_object<node>(make_shared_object<node>(make_shared_object<node>(nullptr)));
  CHECK(alive == 3);
  head = head->next;
  CHECK(alive == 2);
  head = std::move(head->next);
  CHECK(alive == 1);
  CHECK(head->next == nullptr);
  head.reset();
  CHECK(alive == 0);
}

TEST_CASE("shared: reset ends the object after the owner has forgotten it") {
  struct looks_back {
    looks_back(shared<looks_back>& h, bool& saw) : home(h), saw_nothing(saw) {}
    ~looks_back() { saw_nothing = home.get() == nullptr; }
    shared<looks_back>& home;
    bool& saw_nothing;
  };
  bool saw_nothing = false;
  shared<looks_back> self;
  self = make_shared_object<looks_back>(self, saw_nothing);
  self.reset();
  CHECK(saw_nothing);
}

TEST_CASE("shared: as a base without virtual destructor, as const, as void") {
  alive = 0;
  shared<derived> whole = make_shared_object<derived>(5);
  shared<counted> base = whole;
  shared<const counted> constant = base;
  shared<void> any = whole;
  shared<const void> any_constant = constant;
  CHECK(base->value == 5);
  CHECK(constant == whole);
  CHECK(static_cast<void*>(base.get()) != any.get());  // the second base is elsewhere in the object
  CHECK(any.get() == whole.get());
  CHECK(any_constant.get() == base.get());
  CHECK(whole.use_count() == 5);
  derived* const address = whole.get();
  whole = nullptr;
  base = nullptr;
  constant.reset();
  any_constant = nullptr;
  CHECK(alive == 1);
  CHECK(any.get() == address);
  CHECK(any.use_count() == 1);
  any.reset();
  CHECK(alive == 0);

  shared<const counted> moved = make_shared_object<derived>(6);
  shared<derived> from = make_shared_object<derived>(7);
  moved = std::move(from);
  CHECK(from == nullptr);  // NOLINT
  CHECK(moved.use_count() == 1);
  CHECK(moved->value == 7);
  CHECK(make_shared_object<const counted>(8)->value == 8);

  static_assert(!std::is_convertible_v<shared<const counted>, shared<counted>>);
  static_assert(!std::is_convertible_v<shared<counted>, shared<derived>>);
  static_assert(!std::is_convertible_v<shared<void>, shared<counted>>);
  static_assert(!std::is_convertible_v<counted*, shared<counted>>);
  static_assert(std::is_convertible_v<shared<derived>, shared<const void>>);
}

TEST_CASE("shared: a constructor that throws leaves nothing behind") {
  alive = 0;
  CHECK_THROWS_AS(make_shared_object<refusing>(true), std::runtime_error);
  CHECK(alive == 0);
  const auto made = make_shared_object<refusing>(false);
  CHECK(alive == 1);
}

TEST_CASE("shared: object and count are one allocation, aligned for both") {
  struct unallocated {
    static void* operator new(std::size_t) = delete;  // what allocated it by itself would not compile
    std::uint64_t words[4] = {1, 2, 3, 4};
  };
  CHECK(make_shared_object<unallocated>()->words[3] == 4);
  struct alignas(64) wide {
    char bytes[64] = {};
  };
  const auto aligned = make_shared_object<wide>();
  CHECK(reinterpret_cast<std::uintptr_t>(aligned.get()) % 64 == 0);
}

TEST_CASE("shared: a std::shared_ptr converts, and both own the object") {
  alive = 0;
  int deleted = 0;
  {
    std::shared_ptr<derived> theirs(new derived(4), [&deleted](derived* d) {
      ++deleted;
      delete d;
    });
    shared<const counted> ours = theirs;
    CHECK(ours->value == 4);
    CHECK(ours.get() == theirs.get());
    CHECK(theirs.use_count() == 2);
    const shared<const counted> more = ours;
    CHECK(theirs.use_count() == 2);
    CHECK(ours.use_count() == 2);
    theirs.reset();
    CHECK(alive == 1);
    CHECK(more->value == 4);
    ours = nullptr;
    CHECK(alive == 1);
    CHECK(deleted == 0);
  }
  CHECK(alive == 0);
  CHECK(deleted == 1);

  const shared<void> any = std::make_shared<derived>(5);
  CHECK(alive == 1);
  const shared<counted> none = std::shared_ptr<derived>();
  CHECK(none == nullptr);
  CHECK(none.use_count() == 0);
  const auto takes = [](shared<const counted> c) { return c->value; };
  CHECK(takes(std::make_shared<derived>(6)) == 6);

  // Of a part of something larger that it keeps alive.
  auto pair = std::make_shared<std::pair<int, std::string>>(1, "part");
  const shared<const std::string> part = std::shared_ptr<std::string>(pair, &pair->second);
  pair.reset();
  CHECK(*part == "part");

  static_assert(!std::is_convertible_v<std::shared_ptr<const counted>, shared<counted>>);
  static_assert(!std::is_convertible_v<std::shared_ptr<int>, shared<counted>>);
  static_assert(!std::is_convertible_v<std::weak_ptr<counted>, shared<counted>>);
  static_assert(!std::is_convertible_v<std::unique_ptr<counted>, shared<counted>>);
}

TEST_CASE("shared: the standard's types are arguments like others") {
  // Found by their namespace, std::make_shared and its kin would make unqualified calls ambiguous.
  const auto text = make_shared_object<std::string>(std::string("abc"));
  CHECK(*text == "abc");
  const auto list = make_shared_object<std::vector<int>>(std::vector<int>{1, 2});
  CHECK(list->size() == 2);
}

TEST_CASE("shared: owners come and go on several threads") {
  struct watched {
    explicit watched(std::atomic<int>& e) : ended(e) {}
    ~watched() {
      if (written[0] + written[1] + written[2] + written[3] == 4 * 1000) ++ended;  // no lock but the count's own order
    }
    std::atomic<int>& ended;
    int written[4] = {};
  };
  std::atomic<int> ended{0};
  for (int round = 0; round < 20; ++round) {
    shared<watched> first = make_shared_object<watched>(ended);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([mine = first, t]() mutable {
        std::vector<shared<void>> some;
        for (int i = 0; i < 1000; ++i) {
          const shared<watched> one = mine;
          ++one->written[t];
          some.push_back(one);
          if (some.size() > 8) some.clear();
        }
        some.clear();
        mine.reset();
      });
    }
    first.reset();
    for (std::thread& t : threads) t.join();
  }
  CHECK(ended == 20);
}
