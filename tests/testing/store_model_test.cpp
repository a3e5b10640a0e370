// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/store_model.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using testing::store_counts;
using testing::store_model;
using testing::store_model_options;
using testing::virtual_loop;

namespace {

/// Answers begin after 20 ms, but for one of two that is up to twice as quick.
store_model_options even() {
  store_model_options o;
  o.first_byte.median = o.first_byte.p90 = o.first_byte.p99 = o.first_byte.p999 = 20ms;
  return o;
}

task<storage::part> read(std::shared_ptr<const storage> from, std::string url, std::uint64_t offset,
                         std::size_t length) {
  return from->read(shard(std::move(url)), std::string(), offset, length, slab_pool(MiB));
}

task<void> read_and_drop(std::shared_ptr<const storage> from, std::string url, std::size_t length, int& came) {
  const storage::part p = co_await read(std::move(from), std::move(url), 0, length);
  ++came;
}

}  // namespace

TEST_CASE("times to the first byte have the tail of an object store") {
  rng random(7);
  const testing::latency_curve curve;
  std::vector<duration> times;
  for (int i = 0; i < 100'000; ++i) times.push_back(curve.draw(random));
  std::sort(times.begin(), times.end());
  const auto near = [&](std::size_t rank, duration wanted) {
    return times[rank] > wanted * 9 / 10 && times[rank] < wanted * 11 / 10;
  };
  CHECK(near(50'000, 20ms));
  CHECK(near(90'000, 50ms));
  CHECK(near(99'000, 200ms));
  CHECK(near(99'900, 1s));
  CHECK(times.front() >= 10ms);
  CHECK(times.back() <= 2500ms);
}

TEST_CASE("a prefix takes its burst and then its rate, and is split when it is refused for long") {
  const testing::request_limit limit{.each_second = 100, .burst = 0.5, .split_after = 10s};
  testing::request_bucket bucket;
  time_point now = time_point() + 1s;
  int taken = 0;
  while (bucket.take(limit, now)) ++taken;
  CHECK(taken == 50);
  const auto in_a_second = [&] {
    int n = 0;
    for (int i = 0; i < 1000; ++i) {
      now += 1ms;
      n += bucket.take(limit, now) ? 1 : 0;
    }
    return n;
  };
  CHECK(in_a_second() == Approx(100).margin(1));
  CHECK(bucket.parts() == 1);
  for (int i = 0; i < 9; ++i) in_a_second();
  CHECK(bucket.parts() == 2);
  CHECK(in_a_second() == Approx(200).margin(1));
  now += 60s;  // quiet: refusals count anew
  while (bucket.take(limit, now)) continue;
  for (int i = 0; i < 9; ++i) in_a_second();
  CHECK(bucket.parts() == 2);
}

TEST_CASE("a model of a store lists, and reads contents of memory, of a function and of zeros") {
  virtual_loop loop;
  store_model_options o = even();
  o.list_page = 2;
  store_model store(o);
  store.put("s3://b/train/1", bytes::copy("one\ntwo\nthree\n"));
  store.put("s3://b/train/2", 3 * MiB);
  store.put("s3://b/train/3", 1000, [](std::uint64_t offset, std::span<char> to) {
    for (char& c : to) c = static_cast<char>('a' + offset++ % 26);
  });
  store.put("s3://b/train/train.millrace.index", 10);
  store.put("s3://b/other/1", 10);
  const std::shared_ptr<const storage> client = store.client(0);

  std::vector<shard> all = block_on(loop, collect(stream<shard>(client->list("s3://b/train/"))));
  REQUIRE(all.size() == 3);
  CHECK(all[1].url == "s3://b/train/2");
  CHECK(all[1].size == std::uint64_t(3 * MiB));
  CHECK(store.counts().pages == 3);
  CHECK(loop.elapsed() >= 30ms);

  CHECK(block_on(loop, read(client, "s3://b/train/3", 25, 3)).data.view() == "zab");
  CHECK(block_on(loop, read(client, "s3://b/train/2", 3 * MiB - 2, MiB)).data.view() == std::string_view("\0\0", 2));
  std::vector<std::string> lines_of_one;
  all.resize(1);
  for (const line_batch& b : block_on(loop, collect(from_range(all) | fetch(client) | lines()))) {
    for (const std::string_view line : b.lines) lines_of_one.emplace_back(line);
  }
  CHECK(lines_of_one == std::vector<std::string>{"one", "two", "three"});
  CHECK(store.counts_of_prefixes().at("s3://b/train/").reads == store.counts().reads);

  CHECK_THROWS_AS(block_on(loop, read(client, "s3://b/train/9", 0, 1)), s3::error);
  const std::string old = all[0].etag;
  CHECK(store.put("s3://b/train/1", bytes::copy("other")) != old);
  CHECK_THROWS_AS(block_on(loop, client->read(all[0], old, 0, 5, slab_pool(MiB))), changed_error);
}

TEST_CASE("bytes come as fast as connection, host and store allow") {
  store_model_options o = even();
  o.connection_rate = 10e6;
  o.host_rate = 30e6;
  o.store_rate = 50e6;
  o.clients_of_host = 1;
  const auto seconds = [&](int hosts, int each) {
    store_model store(o);
    store.put("s3://b/p/1", 100'000'000);
    virtual_loop loop;
    int came = 0;
    std::vector<spawned<void>> reading;
    for (int h = 0; h < hosts; ++h) {
      const std::shared_ptr<const storage> client = store.client(static_cast<std::uint64_t>(h));
      for (int i = 0; i < each; ++i) reading.emplace_back(loop, read_and_drop(client, "s3://b/p/1", 1'000'000, came));
    }
    while (came < hosts * each) loop.run_for(1ms);
    return std::chrono::duration<double>(loop.elapsed()).count();
  };
  const auto near = [](double took, double wanted) { return took > wanted + 0.009 && took < wanted + 0.051; };
  CHECK(near(seconds(1, 1), 0.1));
  CHECK(near(seconds(1, 6), 0.2));
  CHECK(near(seconds(5, 2), 0.2));
}

TEST_CASE("the memory of a client is that of its parts until they are dropped") {
  virtual_loop loop;
  store_model store(even());
  store.put("s3://b/p/1", 10 * MiB);
  const std::shared_ptr<const storage> client = store.client(3);
  {
    const storage::part one = block_on(loop, read(client, "s3://b/p/1", 0, MiB));
    const storage::part two = block_on(loop, read(client, "s3://b/p/1", MiB, 1000));
    CHECK(store.peak_memory(3) == MiB + 1000);
  }
  block_on(loop, read(client, "s3://b/p/1", 0, MiB));
  CHECK(store.peak_memory(3) == MiB + 1000);
  CHECK(store.peak_memory(4) == 0);
}

TEST_CASE("a model refuses what is too much, and counts it") {
  virtual_loop loop;
  store_model_options o = even();
  o.reads = {.each_second = 10, .burst = 0.2};
  store_model store(o);
  store.put("s3://b/p/1", 10);
  store.put("s3://b/q/1", 10);
  retry_options once;
  once.max_attempts = 1;
  once.patience = duration(0);
  const std::shared_ptr<const storage> client = store.client(0, once);
  int came = 0;
  {
    const spawned<void> first(loop, read_and_drop(client, "s3://b/p/1", 10, came));
    const spawned<void> second(loop, read_and_drop(client, "s3://b/p/1", 10, came));
    loop.run_for(0ms);
    CHECK_THROWS_WITH(block_on(loop, read(client, "s3://b/p/1", 0, 10)), Catch::Matchers::Contains("SlowDown"));
    loop.run_for(1s);
  }
  CHECK(came == 2);
  CHECK(store.counts().requests == 3);
  CHECK(store.counts().refused == 1);
  CHECK(store.counts().bytes == 20);
  block_on(loop, read(client, "s3://b/q/1", 0, 10));  // another prefix
  store.set_reads({.each_second = 0});
  for (int i = 0; i < 20; ++i) block_on(loop, read(client, "s3://b/p/1", 0, 10));
}
