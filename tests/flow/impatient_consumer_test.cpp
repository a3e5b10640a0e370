// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/io/timeout.hpp>

// "Dropping a next() that waits loses nothing", of whole pipelines: a consumer that gives every next() a random
// time-out and goes on afterwards gets what a patient one gets, and no stage waits for ever.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/combine.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/io/sleep.hpp>

#include "tests/flow/support.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;
using ints = mill::async_generator<int>;
using mill::testing::virtual_loop;

namespace {

/// Up to `most` milliseconds, often none.
mill::duration pause(mill::rng& random, std::uint64_t most) {
  return mill::duration(static_cast<std::int64_t>(random.below(most + 1)) * 1'000'000);
}

ints source(mill::rng& random, int first, int count) {
  for (int i = first; i < first + count; ++i) {
    co_await mill::sleep_for(pause(random, 3));
    co_yield i;
  }
}
mill::async_generator<ints> sources(mill::rng& random, int count) {
  for (int i = 0; i < count; ++i) {
    co_await mill::sleep_for(pause(random, 3));
    ints one = source(random, 100 * i, 3 + i % 4);
    co_yield mill::give(one);
  }
}

class doubled {
 public:
  explicit doubled(mill::rng& random) noexcept : random_(&random) {}
  mill::task<int> operator()(int x) const {
    co_await mill::sleep_for(pause(*random_, 3));
    co_return 2 * x;
  }

 private:
  mill::rng* random_;
};

struct fan_out {
  mill::rng* random;
  ints operator()(int x) const { return source(*random, 10 * x, x % 3); }
};

int folded(std::vector<int> batch) {
  int sum = 0;
  for (int x : batch) sum = sum * 31 + x;
  return sum;
}

constexpr int kinds = 15;
/// Those whose order is that of arrival: what comes is compared, not when.
bool by_arrival(int kind) { return kind == 4 || kind == 6 || kind == 7 || kind == 14; }

mill::stream<int> pipeline(int kind, mill::rng& random) {
  const doubled slow(random);
  const mill::interleave_options narrow{.width = 3, .ahead = 1};
  const mill::interleave_options arriving{.width = 3, .order = mill::order::arrival, .ahead = 1};
  const mill::map_concurrent_options one{.limit = 1};
  const mill::map_concurrent_options four{.limit = 4};
  const mill::map_concurrent_options unordered{.limit = 4, .order = mill::order::arrival};
  ints in = source(random, 0, 30);
  switch (kind) {
    case 0:
      return std::move(in) | mill::buffer({.items = 1});
    case 1:
      return std::move(in) | mill::buffer({.items = 3});
    case 2:
      return std::move(in) | mill::map_concurrent(slow, one);
    case 3:
      return std::move(in) | mill::map_concurrent(slow, four);
    case 4:
      return std::move(in) | mill::map_concurrent(slow, unordered);
    case 5:
      return sources(random, 7) | mill::interleave(narrow);
    case 6:
      return sources(random, 7) | mill::interleave(arriving);
    case 7:
      return mill::merge(source(random, 100, 9), source(random, 200, 12), source(random, 300, 1));
    case 8:
      return mill::merge(source(random, 100, 9));
    case 9:
      return std::move(in) | mill::shuffle({.window = 8, .seed = 3, .startup = 0.5});
    case 10:
      return std::move(in) | mill::batch(4) | mill::map(&folded);
    case 11:
      return mill::concat(source(random, 0, 5), source(random, 50, 0), source(random, 100, 7)) | mill::take(10);
    case 12:
      return std::move(in) | mill::flat_map(fan_out{&random}) | mill::buffer({.items = 1});
    case 13:
      return sources(random, 5) | mill::interleave(narrow) | mill::map_concurrent(slow, one) |
             mill::buffer({.items = 1});
    default:
      return sources(random, 5) | mill::interleave(arriving) | mill::map_concurrent(slow, unordered);
  }
}

mill::task<std::optional<int>> next_of(mill::stream<int>& g) { co_return co_await g.next(); }

mill::task<std::vector<int>> taken_impatiently(mill::stream<int> g, mill::rng& random) {
  std::vector<int> all;
  for (int in_vain = 0; in_vain < 1000; ++in_vain) {  // as often in a row only where a stage waits for ever
    mill::task<std::optional<int>> asking = mill::with_timeout(pause(random, 3), next_of(g));
    std::optional<int> item;
    bool late = false;
    try {
      item = co_await std::move(asking);
    } catch (const mill::timeout_error&) {
      late = true;
    }
    if (late) {
      co_await mill::sleep_for(pause(random, 5));
      continue;
    }
    if (!item) co_return all;
    all.push_back(*item);
    in_vain = 0;
    co_await mill::sleep_for(pause(random, 2));
  }
  co_return all;
}

mill::task<std::vector<int>> taken(mill::stream<int> g) {
  std::vector<int> all;
  while (std::optional<int> item = co_await g.next()) all.push_back(*item);
  co_return all;
}

}  // namespace

TEST_CASE("a consumer that drops its next() again and again gets every item, in order", "[flow]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (int kind = 0; kind < kinds; ++kind) {
      INFO("seed " << seed << ", pipeline " << kind);
      mill::rng random(100 * seed + static_cast<std::uint64_t>(kind));
      std::vector<int> all;
      std::vector<int> came;
      {
        virtual_loop loop;
        all = mill::block_on(loop, taken(pipeline(kind, random)));
      }
      {
        virtual_loop loop(7 * seed + 1);
        came = mill::block_on(loop, taken_impatiently(pipeline(kind, random), random));
      }
      if (by_arrival(kind)) {
        std::sort(all.begin(), all.end());
        std::sort(came.begin(), came.end());
      }
      REQUIRE(all.size() >= 8);
      REQUIRE(came == all);
    }
  }
}
