// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/sync/channel.hpp>

#include "tests/support/catch.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>

#include "tests/coro/support.hpp"

using namespace millrace;
using namespace millrace::test;
using namespace std::chrono_literals;

namespace {

task<void> send_all(channel<int>& c, int first, int count, duration pause, std::vector<int>* refused = nullptr) {
  for (int i = first; i < first + count; ++i) {
    if (pause > 0ms) co_await virtual_sleep(pause);
    const bool sent = co_await c.send(i);
    if (!sent && refused != nullptr) refused->push_back(i);
  }
}
task<std::vector<int>> receive_all(channel<int>& c, duration pause) {
  std::vector<int> items;
  while (auto x = co_await c.receive()) {
    items.push_back(*x);
    if (pause > 0ms) co_await virtual_sleep(pause);
  }
  co_return items;
}
task<std::string> receive_one(channel<int>& c) {
  try {
    auto x = co_await c.receive();
    co_return x ? std::to_string(*x) : "end";
  } catch (const std::runtime_error& e) {
    co_return std::string(e.what());
  }
}

/// Its clock goes on with every look: who has run has been busy.
class counting_loop final : public executor {
 public:
  ~counting_loop() override { shut_down(); }
  std::int64_t now_ns() const noexcept override { return ++looks_; }
  void run_until_idle() {
    run_until([this] { return ready_empty(); });
  }

 protected:
  void poll(bool, std::optional<time_point>) override {}
  void wake() noexcept override {}

 private:
  mutable std::int64_t looks_ = 0;
};

/// Five coroutines, and which of them run.
class waiters {
 public:
  explicit waiters(counting_loop& loop) : loop_(loop) {}
  template <class Make>
  void start(Make make) {
    for (int i = 0; i < 5; ++i) {
      stage_record& own = stages_.emplace_back("waiter", nullptr, nullptr, nullptr);
      running_.push_back(spawned<void>({loop_, &own}, make(i)));
    }
    woken();
  }
  /// How many have run since the last time.
  int woken() {
    loop_.run_until_idle();
    int n = 0;
    for (stage_record& s : stages_) {
      if (s.busy_ns.exchange(0) > 0) ++n;
    }
    return n;
  }

 private:
  counting_loop& loop_;
  std::deque<stage_record> stages_;
  std::vector<spawned<void>> running_;
};

}  // namespace

// Its queue allocates: noexcept would end the program where there is no memory.
static_assert(!std::is_nothrow_constructible_v<channel<int>, std::size_t>);

TEST_CASE("a channel is a bounded queue") {
  testing::virtual_loop loop;
  channel<int> c(3);
  spawned<void> sender(loop, send_all(c, 1, 10, 0ms));
  run_until_idle(loop);
  CHECK(c.size() == 3);
  CHECK_FALSE(sender.done());
  CHECK_FALSE(c.try_send(99));
  CHECK(c.try_receive() == std::optional<int>(1));
  run_until_idle(loop);
  CHECK(c.size() == 3);
  spawned<std::vector<int>> receiver(loop, receive_all(c, 1ms));
  loop.run_until([&] { return sender.done(); });
  c.close();
  loop.run_until([&] { return receiver.done(); });
  CHECK(receiver.take() == std::vector<int>{2, 3, 4, 5, 6, 7, 8, 9, 10});
}

TEST_CASE("a channel without room for an item is refused") {
  CHECK_THROWS_AS(channel<int>(0), usage_error);
  CHECK_THROWS_WITH(channel<int>(0), "a channel needs room for one item");
}

TEST_CASE("closing delivers what is queued, then the end; senders are refused") {
  testing::virtual_loop loop;
  channel<int> c(2);
  std::vector<int> refused;
  spawned<void> sender(loop, send_all(c, 1, 4, 0ms, &refused));
  run_until_idle(loop);
  CHECK_FALSE(c.closed());
  c.close();
  c.close(std::make_exception_ptr(std::runtime_error("too late")));
  CHECK(c.closed());
  run_until_idle(loop);
  CHECK(refused == std::vector<int>{3, 4});
  CHECK_FALSE(c.try_send(9));
  CHECK(block_on(loop, receive_all(c, 0ms)) == std::vector<int>{1, 2});
  CHECK(block_on(loop, receive_one(c)) == "end");
}

TEST_CASE("closing with an error: what is queued first, then the error, for every receiver") {
  testing::virtual_loop loop;
  channel<int> c(2);
  CHECK(c.try_send(1));
  spawned<std::string> a(loop, receive_one(c));
  spawned<std::string> b(loop, receive_one(c));
  spawned<std::string> d(loop, receive_one(c));
  run_until_idle(loop);
  CHECK(a.take() == "1");
  CHECK_FALSE(b.done());
  CHECK(c.try_send(2));
  c.close(std::make_exception_ptr(std::runtime_error("broken")));
  run_until_idle(loop);
  CHECK(b.take() == "2");
  CHECK(d.take() == "broken");
  CHECK(block_on(loop, receive_one(c)) == "broken");  // no receiver takes a broken stream for one that ended
  CHECK_THROWS_WITH(c.try_receive(), "broken");
}

TEST_CASE("waiting receivers and senders are served in their order") {
  testing::virtual_loop loop;
  channel<int> c(1);
  std::vector<spawned<std::string>> receivers;
  for (int i = 0; i < 5; ++i) receivers.emplace_back(loop, receive_one(c));
  run_until_idle(loop);
  spawned<void> sender(loop, send_all(c, 0, 5, 0ms));
  run_until_idle(loop);
  for (int i = 0; i < 5; ++i) CHECK(receivers[static_cast<std::size_t>(i)].take() == std::to_string(i));

  std::vector<spawned<void>> senders;
  for (int i = 0; i < 5; ++i) senders.emplace_back(loop, send_all(c, i, 1, 0ms));
  run_until_idle(loop);
  spawned<std::vector<int>> receiver(loop, receive_all(c, 0ms));
  run_until_idle(loop);
  c.close();
  run_until_idle(loop);
  CHECK(receiver.take() == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("an item wakes one receiver, and a place one sender") {
  struct local {
    static task<void> receive(channel<int>& c) { co_await c.receive(); }
    static task<void> send(channel<int>& c, int i) { co_await c.send(i); }
  };
  counting_loop loop;
  channel<int> c(1);
  {
    waiters receivers(loop);
    receivers.start([&](int) { return local::receive(c); });
    for (int i = 0; i < 4; ++i) {
      CHECK(c.try_send(i));
      CHECK(receivers.woken() == 1);
    }
    c.close();
    CHECK(receivers.woken() == 1);
  }
  channel<int> full(1);
  CHECK(full.try_send(-1));
  waiters senders(loop);
  senders.start([&](int i) { return local::send(full, i); });
  for (int i = 0; i < 3; ++i) {
    CHECK(full.try_receive() == i - 1);
    CHECK(senders.woken() == 1);
  }
  full.close();
  CHECK(senders.woken() == 2);
}

TEST_CASE("a receiver or a sender that waits is not overtaken") {
  testing::virtual_loop loop;
  channel<int> c(1);
  {
    spawned<std::string> first(loop, receive_one(c));
    run_until_idle(loop);
    spawned<std::string> second(loop, receive_one(c));  // runs before the first one is woken
    CHECK(c.try_send(1));
    CHECK_FALSE(c.try_receive());
    run_until_idle(loop);
    CHECK_FALSE(second.done());
    CHECK(c.try_send(2));
    run_until_idle(loop);
    CHECK(first.take() == "1");
    CHECK(second.take() == "2");
  }
  CHECK(c.try_send(0));
  spawned<void> first(loop, send_all(c, 1, 1, 0ms));
  run_until_idle(loop);
  spawned<void> second(loop, send_all(c, 2, 1, 0ms));
  CHECK(c.try_receive() == std::optional<int>(0));
  CHECK_FALSE(c.try_send(3));
  run_until_idle(loop);
  CHECK(c.try_receive() == std::optional<int>(1));
  run_until_idle(loop);
  CHECK(c.try_receive() == std::optional<int>(2));
}

TEST_CASE("the waiter after two that were woken takes the item or the room that is left") {
  testing::virtual_loop loop;
  channel<int> c(2);
  spawned<std::string> first(loop, receive_one(c));
  run_until_idle(loop);
  spawned<std::string> second(loop, receive_one(c));
  CHECK(c.try_send(1));
  CHECK(c.try_send(2));
  run_until_idle(loop);
  CHECK(first.take() == "1");
  CHECK(second.take() == "2");
  CHECK(c.try_send(3));
  CHECK(c.try_send(4));
  spawned<void> a(loop, send_all(c, 5, 1, 0ms));
  run_until_idle(loop);
  spawned<void> b(loop, send_all(c, 6, 1, 0ms));
  CHECK(c.try_receive() == std::optional<int>(3));
  CHECK(c.try_receive() == std::optional<int>(4));
  run_until_idle(loop);
  CHECK(c.try_receive() == std::optional<int>(5));
  CHECK(c.try_receive() == std::optional<int>(6));
}

TEST_CASE("what was kept for a waiter that is dropped before it runs is the next one's") {
  testing::virtual_loop loop;
  channel<int> c(1);
  {
    std::vector<spawned<std::string>> receivers;
    for (int i = 0; i < 3; ++i) receivers.emplace_back(loop, receive_one(c));
    run_until_idle(loop);
    CHECK(c.try_send(7));
    receivers.erase(receivers.begin());
    run_until_idle(loop);
    CHECK(receivers[0].take() == "7");
    CHECK_FALSE(receivers[1].done());
    // One that was woken for the item, and one for the end.
    CHECK(c.try_send(8));
    spawned<std::string> behind(loop, receive_one(c));
    run_turns(loop, 0);
    c.close();
    receivers.erase(receivers.begin() + 1);
    run_until_idle(loop);
    CHECK(behind.take() == "8");
  }
  channel<int> full(1);
  CHECK(full.try_send(0));
  std::vector<spawned<void>> senders;
  for (int i = 1; i <= 3; ++i) senders.emplace_back(loop, send_all(full, i, 1, 0ms));
  run_until_idle(loop);
  CHECK(full.try_receive() == std::optional<int>(0));
  senders.erase(senders.begin());
  run_until_idle(loop);
  CHECK(senders[0].done());
  CHECK_FALSE(senders[1].done());
  CHECK(full.try_receive() == std::optional<int>(2));
  senders.clear();  // with a place that is kept
  CHECK(full.try_send(9));
}

TEST_CASE("what was kept for a waiter whose item cannot be moved is the next one's") {
  class heavy {
   public:
    heavy(int v, bool& t) noexcept : value(v), throws_(&t) {}
    heavy(heavy&& other) : value(other.value), throws_(other.throws_) {
      if (*throws_) throw std::runtime_error("cannot be moved");
    }
    int value;

   private:
    bool* throws_;
  };
  struct local {
    static task<int> receive(channel<heavy>& c) {
      auto item = co_await c.receive();
      co_return item->value;
    }
    static task<bool> send(channel<heavy>& c, bool& throws, int value) {
      heavy item(value, throws);
      co_return co_await c.send(std::move(item));
    }
  };
  testing::virtual_loop loop;
  bool throws = false;
  channel<heavy> c(1);
  spawned<int> first(loop, local::receive(c));
  run_until_idle(loop);
  CHECK(c.try_send(heavy(7, throws)));
  throws = true;
  run_until_idle(loop);
  CHECK_THROWS_WITH(first.take(), "cannot be moved");
  throws = false;
  CHECK(c.size() == 1);
  spawned<bool> sender(loop, local::send(c, throws, 8));
  run_until_idle(loop);
  CHECK_FALSE(sender.done());
  CHECK(block_on(loop, local::receive(c)) == 7);
  throws = true;  // when the sender, which was woken, goes on
  run_until_idle(loop);
  CHECK_THROWS_WITH(sender.take(), "cannot be moved");
  throws = false;
  CHECK(c.size() == 0);
  CHECK(c.try_send(heavy(9, throws)));
}

TEST_CASE("no waiter is forgotten, whatever is dropped") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    testing::virtual_loop loop(seed);
    INFO(loop.seed_text());
    rng random(seed, 0, 2);
    const std::size_t capacity = 1 + static_cast<std::size_t>(random.below(3));
    channel<int> c(capacity);
    struct local {
      static task<void> send(channel<int>& c) { co_await c.send(1); }
      static task<void> receive(channel<int>& c) { co_await c.receive(); }
    };
    std::vector<spawned<void>> senders(4);
    std::vector<spawned<void>> receivers(4);
    const auto waits = [](const spawned<void>& s) { return s && !s.done(); };
    for (int step = 0; step < 60; ++step) {
      const auto slot = static_cast<std::size_t>(random.below(4));
      spawned<void>& changed = random.below(2) == 0 ? senders[slot] : receivers[slot];
      if (random.below(4) == 0) {
        changed = spawned<void>();
      } else if (!waits(changed)) {
        changed = spawned<void>(loop, &changed == &senders[slot] ? local::send(c) : local::receive(c));
      }
      if (random.below(3) != 0) continue;
      run_until_idle(loop);
      if (std::any_of(receivers.begin(), receivers.end(), waits)) REQUIRE(c.size() == 0);
      if (std::any_of(senders.begin(), senders.end(), waits)) REQUIRE(c.size() == capacity);
    }
  }
}

TEST_CASE("items may be move-only and are destroyed once") {
  testing::virtual_loop loop;
  tracked::reset();
  struct parcel {
    parcel(std::unique_ptr<int> p, tracked t) : pointer(std::move(p)), object(std::move(t)) {}
    std::unique_ptr<int> pointer;
    tracked object;
  };
  struct local {
    static task<void> send(channel<parcel>& c) {
      for (int i = 0; i < 4; ++i) {
        co_await c.send(parcel(std::make_unique<int>(i), tracked(i)));
      }
      c.close();
    }
    static task<int> receive(channel<parcel>& c) {
      int total = 0;
      while (auto p = co_await c.receive()) total += *p->pointer + p->object.value;
      co_return total;
    }
  };
  {
    channel<parcel> c(2);
    spawned<void> sender(loop, local::send(c));
    CHECK(block_on(loop, local::receive(c)) == 12);
  }
  {
    channel<parcel> c(2);
    { spawned<void> sender(loop, local::send(c)); }
    spawned<void> sender(loop, local::send(c));
    run_until_idle(loop);
    sender = spawned<void>();
    CHECK(c.size() == 2);
  }
  CHECK(tracked::clean());
}

TEST_CASE("dropped receivers and senders lose no queued item, whatever the order of events") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    testing::virtual_loop loop(seed);
    INFO(loop.seed_text());
    rng random(seed, 0, 1);
    channel<int> c(1 + static_cast<std::size_t>(random.below(3)));
    std::vector<int> received;
    struct local {
      static task<void> send(channel<int>& c, int item, std::vector<int>& sent) {
        const bool taken = co_await c.send(item);
        if (taken) sent.push_back(item);
      }
      static task<void> receive(channel<int>& c, std::vector<int>& out) {
        while (auto x = co_await c.receive()) {
          out.push_back(*x);
          co_await yield_now();
        }
      }
    };
    std::vector<int> sent;
    std::vector<spawned<void>> tasks(8);
    int item = 0;
    for (int step = 0; step < 60; ++step) {
      const auto slot = static_cast<std::size_t>(random.below(tasks.size()));
      if (random.below(3) == 0) {
        tasks[slot] = spawned<void>(loop, local::receive(c, received));
      } else if (tasks[slot].done() || random.below(4) == 0) {
        tasks[slot] = spawned<void>(loop, local::send(c, ++item, sent));
      }
      run_turns(loop, static_cast<int>(random.below(3)));
    }
    tasks.clear();
    // A sender that was dropped after its item was queued never said so: what was received may hold more than `sent`.
    while (auto x = c.try_receive()) received.push_back(*x);
    std::vector<int> all = received;
    std::sort(all.begin(), all.end());
    REQUIRE(std::adjacent_find(all.begin(), all.end()) == all.end());
    for (int s : sent) REQUIRE(std::binary_search(all.begin(), all.end(), s));
    REQUIRE(loop.frames() == 0);
  }
}
