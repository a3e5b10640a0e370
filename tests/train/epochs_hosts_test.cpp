// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// How many ranges epochs() asks for at a time, and how long they are: what the store's host has taught.

#include <millrace/train/dataset.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/spawned.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/index/detail/indexed_object.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/known_hosts.hpp"
#include "tests/train/epochs_data.hpp"

using namespace millrace;
using namespace std::chrono_literals;
using millrace::detail::host_share;
using millrace::detail::range_scheduler;

namespace {

/// What is known of the host "far".
class known {
 public:
  known(executor& loop, const host_share::bounds& b) {
    const auto ask = [&]() -> task<void> {
      const coroutine_context here = co_await this_context();
      const host_share share(here, "far", b);
      requests = share.requests();
      part = share.part();
      measured = share.has_measured();
    };
    block_on(loop, ask());
  }
  std::size_t requests = 0;
  std::size_t part = 0;
  bool measured = false;
};

constexpr host_share::bounds usual{.bytes = 128 * MiB, .longest = 8 * MiB, .requests = 64};

test::settings options_of(std::uint64_t epochs) {
  test::settings o;
  o.seed = 3;
  o.batch = 8;
  o.tracks = 16;
  o.slice = 8;
  o.epochs = epochs;
  return o;
}

test::tar_dataset far_data() {
  test::tar_dataset data({300, 250, 280}, 20'000, 5);
  data.store->host_name = "far";
  data.store->first_byte = 20ms;
  data.store->delay_us = 10'000;
  return data;
}

test::delivered read(testing::virtual_loop& loop, const test::tar_dataset& data, const test::settings& o) {
  test::delivered out;
  block_on(loop, test::take_batches_of(data.open(o), o.batch, SIZE_MAX / 65536, out));
  return out;
}

TEST_CASE("epochs() learns of its store's host, and a later reader begins with that") {
  const test::tar_dataset data = far_data();
  testing::virtual_loop loop;
  test::known_hosts runtime(loop);
  CHECK_FALSE(known(loop, usual).measured);
  read(loop, data, options_of(3));
  const known after(loop, usual);
  CHECK(after.measured);
  CHECK(after.requests == 64);
  CHECK(data.store->most_busy == 64);
}

TEST_CASE("what epochs() yields is the same whatever its store's host has taught, and with few requests") {
  const test::tar_dataset data = far_data();
  testing::virtual_loop alone;
  const test::delivered expected = read(alone, data, options_of(2));
  testing::virtual_loop loop;
  test::known_hosts runtime(loop);
  const test::delivered first = read(loop, data, options_of(2));
  const test::delivered second = read(loop, data, options_of(2));
  test::settings few = options_of(2);
  few.requests = 3;
  few.part = 4 * KiB;
  data.store->most_busy = 0;
  const test::delivered slow = read(loop, data, few);
  CHECK(data.store->most_busy == 3);
  CHECK(first.samples == expected.samples);
  CHECK(second.samples == expected.samples);
  CHECK(slow.samples == expected.samples);
  CHECK(first.state == expected.state);
  CHECK(slow.state == expected.state);
}

TEST_CASE("what is on a local disk is read beside the requests of the store's host, which learns nothing of it") {
  test::tar_dataset data = far_data();
  testing::virtual_loop alone;
  const test::delivered expected = read(alone, data, options_of(2));
  test::settings few = options_of(2);
  few.requests = 3;
  few.part = 64 * KiB;
  data.store->local_below = data.prefix;  // all of it
  data.store->most_busy = 0;
  testing::virtual_loop loop;
  test::known_hosts runtime(loop);
  const test::delivered all = read(loop, data, few);
  CHECK(data.store->most_busy == 0);
  CHECK(data.store->most_busy_local == range_scheduler::most_local);
  CHECK_FALSE(known(loop, usual).measured);
  CHECK(all.samples == expected.samples);
  CHECK(all.state == expected.state);
  read(loop, data, options_of(2));  // short ranges: as many bytes as eight long ones
  CHECK(data.store->most_busy == 0);
  CHECK(data.store->most_busy_local > 2 * range_scheduler::most_local);
  CHECK(data.store->most_busy_local <= options_of(2).requests);
  data.store->local_below = data.prefix + "101";  // one shard of three
  data.store->most_busy_local = 0;
  const test::delivered some = read(loop, data, few);
  CHECK(data.store->most_busy == 3);
  CHECK(data.store->most_busy_local > 1);
  CHECK(data.store->busy_local == 0);
  CHECK(known(loop, usual).measured);
  CHECK(some.samples == expected.samples);
  CHECK(some.state == expected.state);
}

TEST_CASE("what a resume without an index reads on a local disk again is none of the host's requests") {
  const test::tar_dataset data = far_data();
  data.store->local_below = data.prefix;
  test::settings o = options_of(1);
  o.streamed = true;
  o.shards = 3;
  o.window = 200;
  o.requests = 3;
  const auto read_some = [&](testing::virtual_loop& loop, std::size_t stop) {
    std::vector<shard> all;
    for (const auto& [url, content] : data.store->objects) all.emplace_back(url, content.size(), data.store->etag);
    test::delivered out;
    block_on(loop, test::take_batches_of(
                       test::train_on(from_range(std::move(all)), std::shared_ptr<const storage>(data.store), o),
                       o.batch, stop, out));
    return out;
  };
  testing::virtual_loop loop;
  test::known_hosts runtime(loop);
  o.resume = read_some(loop, 40).state;
  CHECK_FALSE(known(loop, usual).measured);
  data.store->requests = 0;
  read_some(loop, 3);
  CHECK(data.store->requests > 10);
  CHECK_FALSE(known(loop, usual).measured);
}

TEST_CASE("an object on a local disk that is indexed is none of the host's requests, unless it is read again") {
  const test::tar_dataset data = far_data();
  data.store->local_below = data.prefix;
  const auto& [url, content] = *data.store->objects.begin();
  const shard object(url, content.size(), data.store->etag);
  testing::virtual_loop loop;
  test::known_hosts runtime(loop);
  const auto read_one = [&](bool again) {
    const auto reading = [](std::shared_ptr<const storage> from, shard of, bool anew) -> task<void> {
      detail::indexed_object source(std::move(from), std::move(of), 64 * KiB, anew);
      for (std::uint64_t at = 0; at < 10 * 64 * KiB; at += 64 * KiB) co_await source.read(at, 64 * KiB);
    };
    block_on(loop, reading(data.store, object, again));
  };
  read_one(false);
  CHECK_FALSE(known(loop, usual).measured);
  read_one(true);
  CHECK(known(loop, usual).measured);
}

TEST_CASE("ranges on a local disk are as long as .part allows, whatever the host's are") {
  test::tar_dataset data({400}, 60'000, 5);
  data.store->host_name = "far";
  data.store->first_byte = 1ms;
  testing::virtual_loop loop;
  test::known_hosts runtime(loop);
  test::settings o = options_of(1);
  o.tracks = 4;
  o.slice = 128;
  o.bytes = 512 * MiB;
  read(loop, data, o);  // which shows that short parts are as fast
  const std::size_t part = known(loop, usual).part;
  CHECK(part < 3 * MiB);
  data.store->local_below = data.prefix;
  read(loop, data, o);
  CHECK(data.store->longest_local > 3 * MiB);
}

TEST_CASE("beside the samples of the first step, few bytes of slices are asked for") {
  test::tar_dataset data({200, 200}, 400'000, 5);
  data.store->first_byte = 20ms;
  testing::virtual_loop loop;
  for (const bool resumed : {false, true}) {
    data.store->answered = false;
    data.store->asked_first = 0;
    test::settings o = options_of(1);
    test::delivered out;
    if (resumed) {
      block_on(loop, test::take_batches_of(data.open(o), o.batch, 10, out));
      o.resume = out.state;
      data.store->answered = false;
      data.store->asked_first = 0;
      out = {};
    }
    block_on(loop, test::take_batches_of(data.open(o), o.batch, 2, out));
    CHECK(data.store->asked_first <= 16 * MiB);
    CHECK(data.store->asked_first > 10 * MiB);
  }
}

TEST_CASE("the first step waits for no slice, and not for the one that follows in a track either") {
  // Steps take two samples of each track, slices have five: in every third step a track goes on in its next slice.
  test::tar_dataset data({160, 160}, 400'000, 5);
  data.store->first_byte = 20ms;
  data.store->rate = 10'000'000;  // a sample takes 40 ms, a slice 200
  testing::virtual_loop loop;
  test::settings o = options_of(1);
  o.batch = 32;
  o.slice = 5;
  for (const std::size_t steps : {0, 1, 2, 3, 4, 5}) {
    test::settings resumed = o;
    if (steps != 0) {
      test::delivered before;
      block_on(loop, test::take_batches_of(data.open(o), o.batch, steps, before));
      resumed.resume = before.state;
    }
    test::delivered out;
    const time_point begun = loop.now();
    block_on(loop, test::take_batches_of(data.open(resumed), o.batch, 1, out));
    CAPTURE(steps);
    CHECK(out.samples.size() == o.batch);
    CHECK(loop.now() - begun < 20ms + 2 * 41ms + 20ms);
  }
}

TEST_CASE("a consumer that is slow does not make the store look slow") {
  const test::tar_dataset data = far_data();
  testing::virtual_loop loop;
  test::known_hosts runtime(loop);
  read(loop, data, options_of(3));
  const known before(loop, usual);
  const auto take_slowly = [](stream<sample> in) -> task<void> {
    for (int n = 0; n < 800; ++n) {
      const std::optional<sample> s = co_await in.next();
      co_await sleep_for(20ms);
    }
  };
  test::settings o = options_of(3);
  o.ahead = 40;
  block_on(loop, take_slowly(data.open(o)));
  const known after(loop, usual);
  CHECK(after.measured);
  // A trial of fewer may have begun with the last reads that count: nothing else changes the number.
  CHECK((after.requests == before.requests || after.requests == before.requests * 85 / 100));
  CHECK(after.part == before.part);
}

TEST_CASE("training and validation of one host share its requests") {
  const test::tar_dataset data = far_data();
  testing::virtual_loop loop;
  test::known_hosts runtime(loop);
  test::settings o = options_of(4);
  o.requests = 6;
  const auto both = [&]() -> task<void> {
    stream<sample> training = data.open(o);
    stream<sample> validation = data.open(o);
    std::size_t n = 0;
    while (std::optional<sample> s = co_await training.next()) {
      if (++n % 10 == 0) static_cast<void>(co_await validation.next());
    }
  };
  data.store->most_busy = 0;
  block_on(loop, both());
  CHECK(data.store->most_busy > 6);
  CHECK(data.store->most_busy <= 12);
}

TEST_CASE("the making of an index counts among the reads of its store's host, and parts of full length teach it") {
  const bool stream = GENERATE(true, false);  // or headers alone
  const test::tar_dataset data = far_data();
  testing::virtual_loop loop;
  test::known_hosts runtime(loop);
  index_shard_options how;
  how.part = 64 * KiB;
  const auto format = tar_shards({.way = stream ? index_way::stream : index_way::headers, .hop = 512});
  std::size_t reading = 0, left = 0, in_share = 0;
  bool measured = false;
  const auto work = [&]() -> task<void> {
    const coroutine_context here = co_await this_context();
    host_share other(here, "far", usual);
    std::vector<host_share::request> mine;
    task<shard_index> making =
        index_shard(std::shared_ptr<const storage>(data.store), shard(data.prefix + "100.tar"), "100.tar", format, how);
    spawned<shard_index> made(here, std::move(making));
    co_await sleep_for(25ms);
    reading = other.host().in_flight();
    while (other.may_begin(true)) mine.push_back(other.begin());
    in_share = mine.size();
    mine.clear();
    const shard_index index = co_await made;
    CHECK(index.samples() == 300);
    left = other.host().in_flight();
    measured = other.has_measured();
  };
  block_on(loop, work());
  CHECK(reading == 1);
  CHECK(in_share == 5);  // of six to begin with
  CHECK(left == 0);
  CHECK(measured == stream);
}

}  // namespace
