// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Nanoseconds per item and stage of pipelines over ints, beside a plain loop that does the same and beside bare
// coroutines with symmetric transfer: what the stages cost that neither wait nor copy, without an account of the
// stages' time and with one, as run() keeps it, on an event loop with a real clock. CPU time of the one thread; many
// short rounds in turns, the median with the lowest and the highest. Always built with -O2 when optimised:
//   c++ -std=c++20 -O2 -Iinclude -I. bench/flow_bench.cpp -o flow_bench -luring
//
//   flow_bench [thousands of items a round, default 300] [rounds, default 31]

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include <time.h>

#include "bench/common/bare_generator.hpp"
#include "bench/common/measure.hpp"

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loop/make_event_loop.hpp>

namespace {

namespace mill = millrace;

constexpr std::size_t batch_size = 256;

int scramble(int x) { return x * 31 + 7; }
bool wanted(int x) { return x % 8 != 0; }

std::int64_t sum(const std::vector<int>& items) {
  std::int64_t s = 0;
  for (int x : items) s += x;
  return s;
}
std::int64_t sum(int x) { return x; }

template <class T>
mill::task<std::int64_t> add_up(mill::stream<T> source) {
  std::int64_t total = 0;
  while (std::optional<T> item = co_await source.next()) total += sum(*item);
  co_return total;
}
mill::event_loop& loop() {
  static const auto made = mill::make_event_loop();
  return *made;
}
template <class T>
std::int64_t run(mill::stream<T> source, mill::stage_record* account = nullptr) {
  return mill::block_on({loop(), account}, add_up(std::move(source)));
}

std::int64_t plain_loop(int count) {
  std::int64_t total = 0;
  for (int i = 0; i < count;) {
    std::vector<int> items;
    items.reserve(batch_size);
    while (items.size() < batch_size && i < count) {
      const int x = scramble(i++);
      if (wanted(x)) items.push_back(x);
    }
    total += sum(items);
  }
  return total;
}
std::int64_t bare_stages(int count) {
  return bench::bare_total(
             bench::bare_batch(bench::bare_filter(bench::bare_map(bench::bare_iota(count), scramble), wanted),
                               batch_size))
      .get();
}
std::int64_t three_stages(int count) {
  return run(mill::iota(count) | mill::map(scramble) | mill::filter(wanted) | mill::batch(batch_size));
}
std::int64_t three_stages_on_account(int count) {
  mill::stage_recorder recorder;
  return run(mill::iota(count) | mill::map(scramble) | mill::filter(wanted) | mill::batch(batch_size),
             recorder.find_or_add("sink", nullptr));
}
std::int64_t three_stages_all_measured(int count) {
  loop().sample_metrics(1);
  const std::int64_t sum = three_stages_on_account(count);
  loop().sample_metrics(mill::metrics_clock::usual);
  return sum;
}
std::int64_t ten_maps(int count) {
  const auto twice = mill::map(scramble) | mill::map(scramble);
  return run(mill::iota(count) | twice | twice | twice | twice | twice);
}
std::int64_t shuffled(int count) { return run(mill::iota(count) | mill::shuffle({.window = 4096})); }
std::int64_t buffered(int count) { return run(mill::iota(count) | mill::buffer()); }
std::int64_t concurrent(int count) {
  auto work = [](int x) -> mill::task<int> { co_return scramble(x); };
  return run(mill::iota(count) | mill::map_concurrent(work));
}

double cpu_ns() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

struct contender {
  const char* name;
  std::int64_t (*run)(int);
  int stages;
  int share;  // runs 1 / share of the items
};
constexpr std::array contenders{
    contender{"plain loop: map, filter, batch", plain_loop, 3, 1},
    contender{"bare coroutines, symmetric transfer", bare_stages, 3, 1},
    contender{"map | filter | batch", three_stages, 3, 1},
    contender{"the same on account, as in run()", three_stages_on_account, 3, 1},
    contender{"the same, every turn measured", three_stages_all_measured, 3, 1},
    contender{"ten maps", ten_maps, 10, 1},
    contender{"shuffle", shuffled, 1, 1},
    contender{"buffer", buffered, 1, 1},
    contender{"map_concurrent, ready tasks", concurrent, 1, 10},
};

}  // namespace

int main(int argc, char** argv) {
  const int items = (argc > 1 ? std::atoi(argv[1]) : 300) * 1000;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 31;
  if (items <= 0 || rounds <= 0) {
    std::fprintf(stderr, "usage: flow_bench [thousands of items a round] [rounds]\n");
    return 2;
  }
  bench::print_machine();
  std::array<bench::figure, contenders.size()> times;
  std::int64_t sink = 0;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const contender& c = contenders[i];
      const int count = items / c.share;
      const double start = cpu_ns();
      sink += c.run(count);
      times[i].add((cpu_ns() - start) / count / c.stages);
    }
  }
  std::printf("%-36s %10s %18s\n", "ns per item and stage", "median", "spread");
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    std::printf("%-36s %10.2f %8.2f - %7.2f\n", contenders[i].name, times[i].median(), times[i].lowest(),
                times[i].highest());
  }
  const bench::figure& bare = times[1];
  std::printf("\nmedians of the quotients within a round\n");
  bench::goal_at_most("map | filter | batch / bare coroutines", bench::ratio(times[2], bare), 1.15);
  bench::goal_at_most("on account / bare coroutines", bench::ratio(times[3], bare), 3);
  return sink == 42 ? 1 : 0;
}
