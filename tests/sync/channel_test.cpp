// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/sync/channel.hpp>

#include "tests/support/catch.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

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

}  // namespace

// Its queue allocates: noexcept would end the program where there is no memory.
static_assert(!std::is_nothrow_constructible_v<channel<int>, std::size_t>);

TEST_CASE("a channel is a bounded queue") {
  testing::virtual_loop loop;
  channel<int> c(3);
  started<void> sender(loop, send_all(c, 1, 10, 0ms));
  run_until_idle(loop);
  CHECK(c.size() == 3);
  CHECK_FALSE(sender.done());
  CHECK_FALSE(c.try_send(99));
  CHECK(c.try_receive() == std::optional<int>(1));
  run_until_idle(loop);
  CHECK(c.size() == 3);
  started<std::vector<int>> receiver(loop, receive_all(c, 1ms));
  loop.run_until([&] { return sender.done(); });
  c.close();
  loop.run_until([&] { return receiver.done(); });
  CHECK(receiver.take() == std::vector<int>{2, 3, 4, 5, 6, 7, 8, 9, 10});
}

TEST_CASE("a channel without room holds one item") {
  channel<int> c(0);
  CHECK(c.try_send(1));
  CHECK_FALSE(c.try_send(2));
  CHECK(c.try_receive() == std::optional<int>(1));
  CHECK_FALSE(c.try_receive());
}

TEST_CASE("closing delivers what is queued, then the end; senders are refused") {
  testing::virtual_loop loop;
  channel<int> c(2);
  std::vector<int> refused;
  started<void> sender(loop, send_all(c, 1, 4, 0ms, &refused));
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
  started<std::string> a(loop, receive_one(c));
  started<std::string> b(loop, receive_one(c));
  started<std::string> d(loop, receive_one(c));
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
  std::vector<started<std::string>> receivers;
  for (int i = 0; i < 5; ++i) receivers.emplace_back(loop, receive_one(c));
  run_until_idle(loop);
  started<void> sender(loop, send_all(c, 0, 5, 0ms));
  run_until_idle(loop);
  for (int i = 0; i < 5; ++i) CHECK(receivers[static_cast<std::size_t>(i)].take() == std::to_string(i));

  std::vector<started<void>> senders;
  for (int i = 0; i < 5; ++i) senders.emplace_back(loop, send_all(c, i, 1, 0ms));
  run_until_idle(loop);
  started<std::vector<int>> receiver(loop, receive_all(c, 0ms));
  run_until_idle(loop);
  c.close();
  run_until_idle(loop);
  CHECK(receiver.take() == std::vector<int>{0, 1, 2, 3, 4});
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
    started<void> sender(loop, local::send(c));
    CHECK(block_on(loop, local::receive(c)) == 12);
  }
  {
    channel<parcel> c(2);
    { started<void> sender(loop, local::send(c)); }
    started<void> sender(loop, local::send(c));
    run_until_idle(loop);
    sender = started<void>();
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
    std::vector<started<void>> tasks(8);
    int item = 0;
    for (int step = 0; step < 60; ++step) {
      const auto slot = static_cast<std::size_t>(random.below(tasks.size()));
      if (random.below(3) == 0) {
        tasks[slot] = started<void>(loop, local::receive(c, received));
      } else if (tasks[slot].done() || random.below(4) == 0) {
        tasks[slot] = started<void>(loop, local::send(c, ++item, sent));
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
