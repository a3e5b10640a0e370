// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/coro/executor.hpp>

#include "tests/support/catch.hpp"

#include <deque>
#include <memory>
#include <set>
#include <vector>

using millrace::ready_node;
using millrace::run_queue;

TEST_CASE("a run queue is first in, first out") {
  run_queue queue;
  ready_node a;
  ready_node b;
  ready_node c;
  CHECK(queue.empty());
  queue.push(a);
  queue.push(b);
  queue.push(c);
  queue.push(a);  // stays where it is
  CHECK(a.linked());
  CHECK(&queue.pop() == &a);
  CHECK_FALSE(a.linked());
  queue.push(a);
  CHECK(&queue.pop() == &b);
  CHECK(&queue.pop() == &c);
  CHECK(&queue.pop() == &a);
  CHECK(queue.empty());
}

TEST_CASE("nodes leave a run queue when they are dropped, from every place") {
  run_queue queue;
  ready_node a;
  auto first = std::make_unique<ready_node>();
  auto middle = std::make_unique<ready_node>();
  auto last = std::make_unique<ready_node>();
  ready_node b;
  queue.push(*first);
  queue.push(a);
  queue.push(*middle);
  queue.push(b);
  queue.push(*last);
  first.reset();
  middle.reset();
  last.reset();
  a.unlink();
  a.unlink();
  CHECK(&queue.pop() == &b);
  CHECK(queue.empty());
}

TEST_CASE("nodes may outlive the queue") {
  ready_node a;
  ready_node b;
  {
    run_queue queue;
    queue.push(a);
    queue.push(b);
  }
  CHECK_FALSE(a.linked());
  CHECK_FALSE(b.linked());
}

TEST_CASE("a shuffled queue loses nothing and repeats itself for a seed") {
  std::vector<int> orders[3];
  for (int round = 0; round < 3; ++round) {
    run_queue queue;
    queue.shuffle(round < 2 ? 5u : 6u);
    std::deque<ready_node> nodes(50);
    for (ready_node& n : nodes) queue.push(n);
    std::set<const ready_node*> seen;
    while (!queue.empty()) {
      const ready_node& n = queue.pop();
      CHECK(seen.insert(&n).second);
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (&nodes[i] == &n) orders[round].push_back(static_cast<int>(i));
      }
    }
    CHECK(seen.size() == 50);
  }
  CHECK(orders[0] == orders[1]);
  CHECK(orders[0] != orders[2]);
}
