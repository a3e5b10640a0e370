// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/dataset.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/device/fill_batches.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/train/epoch_plan.hpp>
#include <millrace/train/shard_epochs.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::tar_dataset;
using test::delivered;
using test::delivered_by;
using test::harm;

namespace {

constexpr failure_policy bear{.then = on_failure::skip, .report = false};

test::settings small(std::uint64_t epochs, std::size_t batch) {
  test::settings o{.seed = 3, .epochs = epochs, .batch = batch};
  o.tracks = 12;
  o.slice = 4;
  o.failures = bear;
  return o;
}

std::string failure_of(const tar_dataset& data, const test::settings& o) {
  try {
    delivered_by(data.open(o), o.batch);
    return "no error";
  } catch (const error& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE(
    "a shard that cannot be had leaves entries of weight 0 in the places of its samples, on any number of ranks") {
  const std::pair<harm, std::string> kinds[] = {
      {harm::missing, "there is no such object"},
      {harm::denied, "access denied"},
      {harm::cut, "is of another version of this shard: the object is "},
      {harm::changed, "it is no longer the version"},
      {harm::broken, ""},  // the bytes are others: invalid headers, or wrong checksums
  };
  for (const auto& [kind, reason] : kinds) {
    for (const std::uint32_t world : {1U, 2U, 5U}) {
      INFO("kind " << static_cast<int>(kind) << ", " << world << " ranks");
      tar_dataset data({17, 20, 1, 9}, 400);
      data.store->bad["mem:101.tar"] = kind;
      std::map<std::uint64_t, std::string> got;
      std::uint64_t lost = 0;
      for (std::uint32_t r = 0; r < world; ++r) {
        test::settings o = small(2, 4);
        o.rank = {.index = r, .world_size = world};
        const delivered one = delivered_by(data.open(o), 4);
        const std::uint64_t due = (47 + 4 * world - 1) / (4 * world);
        CHECK(one.batches == std::vector<std::uint64_t>(2, due));
        for (const auto& [position, key] : one.samples) CHECK(got.emplace(position, key).second);
        std::uint64_t here = 0;
        for (const std::uint64_t position : one.empty) {
          if (position % 4294967296 == 47) continue;
          CHECK(got.emplace(position, "lost").second);
          ++here;
        }
        REQUIRE(one.lost.size() == (here == 0 ? 0 : 1));
        if (here == 0) continue;
        CHECK(one.lost[0].shard == "mem:101.tar");
        CHECK(one.lost[0].samples == here);
        CHECK_THAT(one.lost[0].reason, Contains(reason));
        CHECK(epoch_state::parse(one.state).holes == std::map<std::uint64_t, std::uint64_t>{{1, here}});
        lost += here;
      }
      CHECK(lost == 40);
      std::map<std::uint64_t, std::string> wanted;
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        const std::vector<std::string> keys = data.order(3, epoch, {.tracks = 12, .slice = 4});
        for (std::size_t g = 0; g < keys.size(); ++g) {
          wanted[epoch << 32 | g] = keys[g].substr(0, 3) == "s1/" ? "lost" : keys[g];
        }
      }
      CHECK(got == wanted);
    }
  }
}

TEST_CASE("one sample with a wrong checksum is one loss; a limit and a rate end the stream, and name what failed") {
  tar_dataset data({30, 30}, 300);
  const shard_index::field f = (*data.indexes)[1].field_at(7, 1);
  data.store->objects["mem:101.tar"][static_cast<std::size_t>(f.offset)] ^= 1;
  test::settings o = small(3, 4);
  const delivered one = delivered_by(data.open(o), 4);
  CHECK(one.samples.size() == 3 * 59);
  REQUIRE(one.lost.size() == 1);
  CHECK(one.lost[0].samples == 3);
  CHECK_THAT(one.lost[0].reason, Contains("the CRC32C of field \"txt\""));
  o.failures.limit = 3;
  CHECK(failure_of(data, o) == "no error");
  o.failures.limit = 2;
  CHECK_THAT(failure_of(data, o), Contains("epochs: 3 of ") && Contains("more than the limit of 2") &&
                                      Contains("mem:101.tar at byte ") && Contains("s1/7"));
  o.failures.limit = 1000;
  o.failures.rate = 0.01;
  CHECK_THAT(failure_of(data, o), Contains("epochs: 3 of 180 items failed, more than the share of 0.01"));
  o.failures.rate = 1;
  o.failures.then = on_failure::stop;
  CHECK(delivered_by(data.open(o), 4).samples.size() < 60);
  o.rank = {.index = 0, .world_size = 2};
  CHECK_THAT(failure_of(data, o), Contains("on_failure::stop is for one rank"));
}

TEST_CASE("order, batches and states stay right whatever shards are bad, when, and on how many ranks", "[slow]") {
  std::vector<tar_dataset> sets;
  sets.emplace_back(std::vector<std::size_t>{13, 5, 0, 20}, 300);
  sets.emplace_back(std::vector<std::size_t>{1, 1, 1}, 300);
  sets.emplace_back(std::vector<std::size_t>{9, 9, 9, 9, 9, 9}, 300);
  rng random(20260412);
  for (std::uint64_t c = 0; c < 1500; ++c) {
    INFO("case " << c);
    const tar_dataset& data = sets[random.below(sets.size())];
    const std::uint64_t samples = data.indexes->samples();
    data.store->delay_us = random.below(3) * 500;
    test::settings o = small(1 + random.below(3), 1);
    o.seed = random.below(1000);
    o.tracks = 1 + random.below(24);
    o.slice = 1 + random.below(9);
    std::vector<std::vector<std::string>> orders;
    for (std::uint64_t e = 0; e < o.epochs; ++e) {
      orders.push_back(data.order(o.seed, e, {.tracks = o.tracks, .slice = o.slice}));
    }
    std::uint64_t reached = 0;                     // samples of all epochs that have come, or were lost
    std::map<std::uint64_t, std::uint64_t> holes;  // of rank 0
    std::string state;
    for (bool over = false; !over;) {
      // Other shards are bad after each resume.
      data.store->bad.clear();
      for (std::size_t n = 0; n < data.indexes->size(); ++n) {
        if (random.below(3) == 0) {
          data.store->bad["mem:" + (*data.indexes)[n].name()] = static_cast<harm>(random.below(5));
        }
      }
      o.rank.world_size = static_cast<std::uint32_t>(1 + random.below(5));
      o.batch = 1 + random.below(7);
      o.ahead = 1 + random.below(60);
      o.bytes = 1 + random.below(100 * KiB);
      o.resume = state;
      const std::size_t most = random.below(4) == 0 ? 10000 : random.below(6);
      std::map<std::uint64_t, std::string> got;
      std::vector<std::uint64_t> counts;
      std::string next;
      for (o.rank.index = 0; o.rank.index < o.rank.world_size; ++o.rank.index) {
        const delivered one = delivered_by(data.open(o), o.batch, most, c + 1);
        if (o.rank.index == 0) {
          counts = one.batches;
          next = one.state;
        }
        if (one.batches != counts) FAIL("the ranks' batches differ");
        epoch_state here = epoch_state::parse(one.state);
        const epoch_state first = epoch_state::parse(next);
        if (here.epoch != first.epoch || here.position != first.position) FAIL("the ranks' states differ");
        for (const auto& [position, key] : one.samples) {
          if (!got.emplace(position, key).second) FAIL("position " << position << " came twice");
        }
        for (const std::uint64_t position : one.empty) {
          const std::uint64_t in_epoch = position % 4294967296;
          if (in_epoch == samples) continue;
          const std::string& key = orders.at(position >> 32).at(in_epoch);
          if (!got.emplace(position, "lost " + key).second) FAIL("position " << position << " came twice");
          if (o.rank.index == 0) ++holes[static_cast<std::uint64_t>(std::stoi(key.substr(1)))];
        }
      }
      state = next;
      const epoch_state at = epoch_state::parse(state);
      if (at.holes != holes) FAIL("the state says other losses: " << state);
      const std::uint64_t before = reached;
      reached = at.epoch * samples + at.position;
      if (got.size() != reached - before) FAIL(got.size() << " came between " << before << " and " << state);
      std::uint64_t due = before;
      for (const auto& [position, key] : got) {
        if ((position >> 32) * samples + position % 4294967296 != due++) FAIL("position " << position << " is early");
        const std::string& right = orders.at(position >> 32).at(position % 4294967296);
        const bool bad = data.store->bad.count("mem:" + std::to_string(100 + std::stoi(right.substr(1))) + ".tar") != 0;
        if (key != (bad ? "lost " : "") + right) FAIL("at " << position << " came " << key << " and not " << right);
      }
      over = at.epoch == o.epochs;
    }
  }
}

TEST_CASE("a state names the shards that lost most, stays small, and is refused where its losses are no numbers") {
  epoch_state s;
  CHECK_THAT(s.text(), !Contains("holes"));
  s.holes = {{3, 17}, {40, 2}};
  s.other_holes = 5;
  CHECK_THAT(s.text(), Contains("\"holes\":\"3:17 40:2 5\",\"check\":"));
  CHECK(epoch_state::parse(s.text()) == s);
  const std::string text = s.text();
  for (const char* wrong : {"", "3:17", "3:17 ", "3 17", ":5 1", "3:17 3:18 5", "3:-1 5", "x", "5 6", "3:17  5"}) {
    INFO(wrong);
    std::string other = text;
    other.replace(other.find("3:17 40:2 5"), 11, wrong);
    CHECK_THROWS_AS(epoch_state::parse(other), configuration_error);
  }

  const tar_dataset data(std::vector<std::size_t>(60, 3), 50);
  for (int n = 0; n < 50; ++n) data.store->bad["mem:" + std::to_string(100 + n) + ".tar"] = harm::missing;
  test::settings o = small(2, 4);
  const delivered one = delivered_by(data.open(o), 4, 45);  // the first epoch
  const epoch_state at = epoch_state::parse(one.state);
  CHECK(one.state.size() < 1000);
  CHECK(at.holes.size() == 32);
  CHECK(at.other_holes == 150 - 32 * 3);
  o.resume = one.state;
  const delivered two = delivered_by(data.open(o), 4);
  CHECK(epoch_state::parse(two.state).other_holes + 32 * 6 >= 300 - 18 * 3);
  std::uint64_t all = 0;
  for (const lost_shard& l : two.lost) all += l.samples;
  CHECK(all == 300);
  // Losses of another data set are not taken over; those of a shard that there is not are no state of this one.
  o.resume = {};
  epoch_state strange = at;
  strange.holes = {{60, 1}};
  const std::string other = strange.text();
  o.resume = other;
  CHECK_THAT(failure_of(data, o), Contains("losses of shard 60 of 60"));
}

TEST_CASE("a run lists its losses in its statistics, and in the log at its end") {
  tar_dataset data({17, 20, 1, 9}, 400);
  data.store->bad["mem:101.tar"] = harm::denied;
  std::vector<std::string> lines;
  runtime_options how;
  const auto add = [&](const log_record& r) { lines.emplace_back(r.text); };
  how.log = add;
  runtime rt(how);
  test::settings o = small(2, 4);
  o.failures.report = true;
  auto run = rt.run(data.open(o) | batch(4));
  std::size_t batches = 0;
  while (run.next()) ++batches;
  CHECK(batches == 24);
  REQUIRE(run.stats().lost.size() == 1);
  CHECK(run.stats().lost[0].samples == 40);
  CHECK_THAT(run.stats().table(), Contains("lost 40 samples of mem:101.tar: access denied\n"));
  REQUIRE(lines.size() >= 2);
  CHECK_THAT(lines.front(), Contains("epochs: left out: ") && Contains("access denied"));
  CHECK(lines.back() == "millrace: epochs: lost 40 samples of mem:101.tar: access denied");

  // A state has those before its position, whatever was made ahead of it.
  const std::vector<std::string> order = data.order(3, 0, {.tracks = 12, .slice = 4});
  const auto lost_before = [&order](std::ptrdiff_t position) {
    return static_cast<std::uint64_t>(std::count_if(order.begin(), order.begin() + position,
                                                    [](const std::string& key) { return key.substr(0, 3) == "s1/"; }));
  };
  auto ahead = rt.run(data.open(o) | batch(4), {.prefetch = 6});
  REQUIRE(ahead.next());
  REQUIRE(lost_before(24) > lost_before(4));
  while (ahead.stats().lost.empty() || ahead.stats().lost[0].samples < lost_before(24)) std::this_thread::yield();
  const epoch_state at = epoch_state::parse(ahead.state());
  CHECK((at.holes.empty() ? 0 : at.holes.at(1)) == lost_before(4));
}

TEST_CASE("batches that are filled keep their number and size where samples are lost or cannot be decoded") {
  tar_dataset data({17, 20, 1}, 400);
  data.store->bad["mem:102.tar"] = harm::missing;
  const batch_pool pool(batch_layout(4, {{"size", dtype::i64}}));
  test::settings o = small(2, 4);
  const std::vector<std::string> order = data.order(3, 0, {.tracks = 12, .slice = 4});
  // All of batch 2, the first of batch 5, and, by `false`, the last of batch 0.
  const auto write = [&order](const sample& s, const batch_row& row) {
    row.key(s.key);
    row.set("size", static_cast<std::int64_t>(s.key.size()));
    for (std::size_t i = 8; i < 12; ++i) {
      if (s.key == order[i]) throw decode_error("no image");
    }
    if (s.key == order[20]) throw decode_error("no image");
    return s.key != order[3];
  };
  runtime rt;
  std::size_t n = 0;
  auto run = rt.run(data.open(o) | fill_batches(pool, write, {.failures = bear}));
  CHECK(run.batches() == 10);
  for (const host_batch& b : run) {
    REQUIRE(b.size() == 4);
    CHECK(b.mark().epoch == n / 10);
    CHECK(b.mark().last == (n % 10 == 9));
    for (std::size_t i = 0; n < 10 && i < 4; ++i) {
      const std::size_t g = n * 4 + i;
      const bool lost = g >= 38 || order[g].substr(0, 3) == "s2/" || (g >= 8 && g < 12) || g == 20 || g == 3;
      INFO("position " << g);
      CHECK(b.weights()[i] == (lost ? 0.0F : 1.0F));
      CHECK(b.keys()[i] == (lost ? "" : order[g]));
      CHECK(b.field("size").values<std::int64_t>()[i] == std::int64_t(lost ? 0 : order[g].size()));
    }
    ++n;
    const epoch_state at = epoch_state::parse(run.state());
    CHECK(at.epoch == n / 10);
    CHECK(at.position == n % 10 * 4);
  }
  CHECK(n == 20);
  // The policy's limit holds, in the order of the samples.
  failure_policy little = bear;
  little.limit = 2;
  auto stopped = rt.run(data.open(o) | fill_batches(pool, write, {.failures = little}));
  n = 0;
  CHECK_THROWS_AS(
      [&] {
        while (stopped.next()) ++n;
      }(),
      too_many_failures);
  CHECK(n == 2);
}

TEST_CASE("without an index a broken shard ends alone where each has a pipeline of its own, and epochs keep apart") {
  tar_dataset data({17, 20, 1, 9, 30}, 400);
  const std::shared_ptr<const storage> store = data.store;
  const auto keys_of = [&](const failure_policy& policy, std::size_t width) {
    const auto open = [store](const shard& s) {
      return from_range(std::vector<shard>{s}) | fetch(store) | untar_plain() | group_samples();
    };
    auto in = shard_epochs(shards("mem:10{0..4}.tar"), {.seed = 4, .epochs = 3}) | map(open) |
              interleave({.width = width, .failures = policy});
    testing::virtual_loop loop;
    auto take = [](stream<sample> from) -> task<std::vector<std::string>> {
      std::vector<std::string> out;
      while (std::optional<sample> s = co_await from.next()) {
        out.push_back(std::to_string(s->mark.epoch) + " " + s->key);
      }
      co_return std::move(out);
    };
    return block_on(loop, take(std::move(in)));
  };
  for (const std::size_t width : {1U, 2U, 3U, 7U}) {
    INFO("width " << width);
    data.store->bad.clear();
    const std::vector<std::string> whole = keys_of({}, width);
    CHECK(whole.size() == 3 * 77);
    const auto by_epoch = [](const std::string& a, const std::string& b) { return a[0] < b[0]; };
    CHECK(std::is_sorted(whole.begin(), whole.end(), by_epoch));
    data.store->bad["mem:101.tar"] = harm::denied;
    CHECK_THROWS_AS(keys_of({}, width), io_error);
    std::vector<std::string> got = keys_of(bear, width);
    CHECK(std::is_sorted(got.begin(), got.end(), by_epoch));
    std::vector<std::string> wanted = whole;
    wanted.erase(std::remove_if(wanted.begin(), wanted.end(),
                                [](const std::string& k) { return k.find(" s1/") != std::string::npos; }),
                 wanted.end());
    std::sort(got.begin(), got.end());
    std::sort(wanted.begin(), wanted.end());
    CHECK(got == wanted);
    data.store->bad["mem:101.tar"] = harm::cut;  // what is whole of it comes
    got = keys_of(bear, width);
    CHECK(got.size() > wanted.size());
    CHECK(got.size() < whole.size());
    failure_policy little = bear;
    little.limit = 2;
    CHECK_THROWS_AS(keys_of(little, width), too_many_failures);
  }
}

TEST_CASE("what a training will cost is said before anything is read, and which tracks fit a small data set") {
  const tar_dataset data({400, 500, 3}, 3000);
  test::settings o{.seed = 3, .batch = 4, .rank = {.index = 0, .world_size = 2}};
  o.slice = 8;
  o.tracks = 960;
  const stream<sample> planned = data.open(o);
  const dataset known(data.store, data.indexes, {.slice = o.slice});
  const epoch_plan plan = epoch_plan::of_training(known, o.training(), {.price_of_1000_requests = 0.4});
  CHECK(plan.batches == planned.position()->batches());
  CHECK(plan.cost > 0);
  CHECK_THAT(planned.plan(), Contains("113 batches on each of 2 ranks") && Contains("960 tracks are many") &&
                                  Contains("chosen by what the store is measured to give, at most 64 of 8"));
  o.tracks = 0;
  o.bytes = 0;
  CHECK_THAT(data.open(o).plan(),
             Contains("Chosen: 6 tracks of slices of 8 samples, by the number of samples, their size and the number "
                      "of ranks; 134 MB of memory on each rank") &&
                 !Contains("are many"));
  CHECK(data.store->requests == 0);
  CHECK((from_range(std::vector<int>{1}) | map([](int i) { return i; })).plan().empty());

  // The requests are about those that are made; the first samples of tracks, which are read alone, beside.
  for (const std::uint64_t tracks : {12U, 60U, 960U}) {
    for (const std::size_t bytes : {16 * MiB, 2 * MiB}) {
      INFO(tracks << " tracks, " << bytes << " bytes");
      o.tracks = tracks;
      o.bytes = bytes;
      data.store->requests = data.store->read_bytes = 0;
      for (o.rank.index = 0; o.rank.index < 2; ++o.rank.index) delivered_by(data.open(o), 4);
      const auto made = static_cast<double>(data.store->requests);
      const dataset these(data.store, data.indexes, {.slice = o.slice});
      o.rank.index = 0;
      const epoch_plan of_these = epoch_plan::of_training(these, o.training());
      const auto due = static_cast<double>(of_these.requests);
      CHECK(due < made * 1.1);
      CHECK(due > (made - static_cast<double>(2 * tracks)) * 0.75);
      CHECK(static_cast<double>(of_these.bytes) == Approx(data.store->read_bytes).epsilon(0.15));
    }
  }

  std::vector<std::string> lines;
  runtime_options how;
  const auto add = [&](const log_record& r) { lines.emplace_back(r.text); };
  how.log = add;
  runtime rt(how);
  o.tracks = 960;
  for (o.rank.index = 0; o.rank.index < 2; ++o.rank.index) {
    auto run = rt.run(data.open(o) | batch(4));
    CHECK(run.next());
  }
  REQUIRE(lines.size() == 1);  // of the first rank
  CHECK_THAT(lines[0], Contains("epochs: 960 tracks are many for 903 samples") && Contains("with 64 tracks"));
}

TEST_CASE("only so many batches of every epoch are taken, the last of them says so, and a resume keeps to it") {
  const tar_dataset data({30, 0, 7, 61, 1, 24}, 200);  // 123 samples
  for (const std::uint32_t world : {1U, 3U}) {
    INFO(world << " ranks");
    for (std::uint32_t r = 0; r < world; ++r) {
      test::settings o = small(3, 4);
      o.rank = {.index = r, .world_size = world};
      o.take_batches = 5;
      stream<sample> in = data.open(o);
      CHECK(in.position()->batches() == 5);
      const delivered all = delivered_by(std::move(in), 4);
      CHECK(all.batches == std::vector<std::uint64_t>(3, 5));
      CHECK(all.samples.size() == 60);
      CHECK(all.padding == 0);
      for (const auto& [position, key] : all.samples) CHECK(position % 4294967296 < 20 * world);
      // Stopped within an epoch, and at its end.
      for (const std::size_t stop : {3U, 5U}) {
        const delivered before = delivered_by(data.open(o), 4, stop);
        CHECK(epoch_state::parse(before.state).epoch == stop / 5);
        test::settings on = o;
        on.resume = before.state;
        delivered after = delivered_by(data.open(on), 4);
        after.samples.insert(after.samples.begin(), before.samples.begin(), before.samples.end());
        CHECK(after.samples == all.samples);
      }
      o.take_batches = 1000;
      CHECK(data.open(o).position()->batches() == (123 + 4 * world - 1) / (4 * world));
    }
  }
  // Another size of batches: the rest of this epoch is what is left up to its new end.
  test::settings o = small(2, 4);
  o.take_batches = 5;
  const std::string state = delivered_by(data.open(o), 4, 3).state;
  o.resume = state;
  o.batch = 2;
  const delivered after = delivered_by(data.open(o), 2);  // an epoch of ten samples, of which twelve were taken
  CHECK(after.samples.front().first == (std::uint64_t{1} << 32));
  CHECK(after.samples.size() == 10);

  runtime rt;
  std::size_t n = 0;
  o = small(2, 4);
  o.take_batches = 5;
  for (const std::vector<sample>& b : rt.run(data.open(o) | batch(4))) {
    CHECK(b.back().mark.last == (n % 5 == 4));
    CHECK(b.back().mark.epoch == n / 5);
    ++n;
  }
  CHECK(n == 10);
}

TEST_CASE("run_options::skipped gets every item that is left out: its shard, byte, key and the reason") {
  const tar_dataset data({30, 25, 40}, 300);
  data.store->bad["mem:101.tar"] = harm::missing;
  std::vector<std::string> told;
  std::vector<std::string> log;
  const auto keep = [&](const skipped_item& i) {
    told.push_back(i.stage + ' ' + i.shard + ' ' + std::to_string(i.offset.value_or(9)) + ' ' + i.key + ": " +
                   i.reason);
  };
  const auto add = [&](const log_record& r) { log.emplace_back(r.text); };
  runtime rt({.log = add});
  const auto judge = [](sample s) {
    if (s.key.back() == '3') throw std::runtime_error("bad " + s.key);
    return s;
  };
  test::settings o = small(1, 5);
  o.failures.report = true;
  std::size_t entries = 0;
  for (const auto& b : rt.run(data.open(o) | map_concurrent(judge, {.failures = o.failures}) | batch(5),
                              {.skipped = keep})) {
    entries += b.size();
  }
  CHECK(entries == 95);
  std::vector<std::string> wanted;
  for (std::size_t shard = 0; shard < 3; ++shard) {
    const shard_index& index = (*data.indexes)[shard];
    for (std::size_t i = 0; i < index.samples(); ++i) {
      const std::string at = " mem:" + index.name() + ' ' + std::to_string(index.offset(i)) + ' ';
      const std::string key = 's' + std::to_string(shard) + '/' + std::to_string(i);
      if (shard == 1) {
        wanted.push_back("epochs" + at + ": there is no such object");
      } else if (key.back() == '3') {
        wanted.push_back("map_concurrent" + at + key + ": bad " + key);
      }
    }
  }
  std::sort(told.begin(), told.end());
  std::sort(wanted.begin(), wanted.end());
  CHECK(told == wanted);
  CHECK(log.size() < told.size());

  // Without an index a shard ends where it is broken: that is one item.
  told.clear();
  std::size_t samples = 0;
  const dataset streamed(std::shared_ptr<const storage>(data.store), "mem:", {.shards = 1, .window = 1});
  for (const auto& b : rt.run(epochs(streamed, {.batch = 5, .failures = bear}) | batch(),
                              {.skipped = keep})) {
    for (const sample& s : b) samples += s.weight() != 0 ? 1 : 0;
  }
  CHECK(samples == 70);
  CHECK(told == std::vector<std::string>{"epochs mem:101.tar 0 : there is no such object"});
}

TEST_CASE("what run_options::skipped throws ends the stream, and where nothing is left out it is not called") {
  const tar_dataset data({9, 8}, 300);
  const auto refuse = [](const skipped_item& i) { throw std::runtime_error("told of " + i.stage); };
  runtime rt({.log = [](const log_record&) {}});
  std::size_t batches = 0;
  for (const auto& b : rt.run(data.open(small(1, 5)) | batch(5), {.skipped = refuse})) batches += b.size() / 5;
  CHECK(batches == 4);
  data.store->bad["mem:101.tar"] = harm::missing;
  auto run = rt.run(data.open(small(1, 5)) | batch(5), {.skipped = refuse});
  const auto all = [&] {
    for (const auto& b : run) batches += b.size();
  };
  CHECK_THROWS_WITH(all(), Contains("told of epochs"));
}
