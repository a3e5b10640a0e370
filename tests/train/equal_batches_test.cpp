// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/equal_batches.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/device/fill_batches.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/train/shard_epochs.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/train/rank_threads.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::tar_dataset;

namespace {

using names = std::vector<std::string>;
using batch_of_samples = std::vector<sample>;

stream<sample> samples_of(const tar_dataset& data, const shard_epochs_options& o) {
  std::vector<shard> list;
  for (const auto& [url, content] : data.store->objects) list.emplace_back(url, content.size());
  return shard_epochs(from_range(std::move(list)), o) | fetch(std::shared_ptr<const storage>(data.store)) |
         untar_plain() | group_samples() | shuffle({.window = 5});
}

/// A run on virtual time: the batch is made when it is asked for.
class virtual_run {
 public:
  explicit virtual_run(stream<batch_of_samples> in) : in_(std::move(in)) {}
  virtual_run(stream<batch_of_samples> in, std::uint64_t seed) : loop_(seed), in_(std::move(in)) {}
  std::optional<batch_of_samples> next() { return block_on(loop_, one(in_)); }

 private:
  static task<std::optional<batch_of_samples>> one(stream<batch_of_samples>& in) { co_return co_await in.next(); }
  testing::virtual_loop loop_;
  stream<batch_of_samples> in_;
};

task<std::vector<names>> keys_by_epoch(stream<sample> in, std::uint64_t epochs) {
  std::vector<names> all(static_cast<std::size_t>(epochs));
  while (std::optional<sample> s = co_await in.next()) all[static_cast<std::size_t>(s->mark.epoch)].push_back(s->key);
  co_return std::move(all);
}

/// Of each epoch, what a rank's batches held, one after the other; "-" for what only fills up.
std::vector<names> taken_by(equal_run<virtual_run>& run, std::size_t batch, std::uint64_t epochs) {
  std::vector<names> all(static_cast<std::size_t>(epochs));
  std::uint64_t epoch = 0;
  for (const batch_of_samples& b : run) {
    if (b.size() != batch) throw std::runtime_error("a batch has another size");
    if (b.front().mark.epoch < epoch) throw std::runtime_error("an epoch comes again");
    epoch = b.front().mark.epoch;
    for (const sample& s : b) {
      if (s.mark.epoch != epoch) throw std::runtime_error("a batch holds samples of two epochs");
      all[static_cast<std::size_t>(epoch)].push_back(s.weight() == 0 ? "-" : s.key);
    }
  }
  return all;
}

constexpr uneven all_kinds[] = {uneven::pad, uneven::stop, uneven::drop};

/// How many steps an epoch has whose ranks have so many samples.
std::size_t steps_of(const std::vector<std::size_t>& samples, std::size_t batch, uneven how) {
  std::vector<std::size_t> steps;
  for (const std::size_t n : samples) steps.push_back(how == uneven::drop ? n / batch : (n + batch - 1) / batch);
  const auto [least, most] = std::minmax_element(steps.begin(), steps.end());
  return how == uneven::pad ? *most : *least;
}

}  // namespace

TEST_CASE("drawn lists give all ranks equally many batches, of the samples that the rank has anyway, in their order") {
  rng random(5);
  for (int c = 0; c < 150; ++c) {
    std::vector<std::size_t> counts(1 + random.below(6));
    for (std::size_t& n : counts) n = random.below(3) == 0 ? 0 : random.below(30);
    const std::uint64_t data_seed = random.next();
    const std::uint64_t delay = random.below(2) * 500;
    const std::uint64_t loop_seed = random.next();
    const std::size_t world = 1 + random.below(std::min<std::size_t>(counts.size(), 4));
    const std::size_t size = 1 + random.below(7);
    const uneven how = all_kinds[random.below(3)];
    const shard_epochs_options drawn{.seed = random.below(100), .epochs = 3};
    INFO("case " << c << ": " << world << " ranks, batches of " << size << ", how " << static_cast<int>(how));
    std::vector<std::vector<names>> alone(world);  // what each has without the others
    std::vector<std::vector<names>> taken(world);
    test::thread_gather gather(world);
    const std::vector<std::string> errors = test::on_ranks(world, [&](std::size_t r) {
      const tar_dataset data(counts, 200, data_seed);
      shard_epochs_options o = drawn;
      o.rank = {.index = static_cast<std::uint32_t>(r), .world_size = static_cast<std::uint32_t>(world)};
      o.uneven = true;
      testing::virtual_loop loop;
      alone[r] = block_on(loop, keys_by_epoch(samples_of(data, o), 3));
      o.uneven = false;
      const equal_batches equal(size, how, gather.group(r));
      o.equal = &equal;
      data.store->delay_us = delay;
      virtual_run run(samples_of(data, o) | equal.fill() | batch(size), loop_seed + r);
      auto together = equal.of(run);
      taken[r] = taken_by(together, size, 3);
      if (together.next()) throw std::runtime_error("a batch after the end");
    });
    REQUIRE(errors == std::vector<std::string>(world));
    for (std::size_t e = 0; e < 3; ++e) {
      std::vector<std::size_t> samples;
      for (std::size_t r = 0; r < world; ++r) samples.push_back(alone[r][e].size());
      const std::size_t steps = steps_of(samples, size, how);
      for (std::size_t r = 0; r < world; ++r) {
        names wanted = alone[r][e];
        wanted.resize(steps * size, "-");
        REQUIRE(taken[r][e] == wanted);
      }
    }
  }
}

TEST_CASE("batches that were made ahead for an epoch that has ended are passed over, on devices too") {
  const tar_dataset shape({23, 2}, 300);
  const batch_pool pool(batch_layout(4, {{"size", dtype::i64}}));
  const auto write = [](const sample& s, const batch_row& row) {
    row.set("size", static_cast<std::int64_t>(s["txt"].size()));
    row.key(s.key);
  };
  for (const uneven how : all_kinds) {
    test::thread_gather gather(2);
    std::vector<std::vector<std::size_t>> batches(2, std::vector<std::size_t>(3));
    std::vector<float> weight(2, 0);
    const std::vector<std::string> errors = test::on_ranks(2, [&](std::size_t r) {
      const tar_dataset data({23, 2}, 300);
      shard_epochs_options o{.seed = 1, .epochs = 3};
      o.rank = {.index = static_cast<std::uint32_t>(r), .world_size = 2};
      const equal_batches equal(4, how, gather.group(r));
      o.equal = &equal;
      runtime rt;
      auto run = rt.run(samples_of(data, o) | equal.fill() | fill_batches(pool, write), {.prefetch = 4});
      for (const host_batch& b : equal.of(run)) {
        ++batches[r][static_cast<std::size_t>(b.mark().epoch)];
        for (const float w : b.weights()) weight[r] += w;
      }
    });
    REQUIRE(errors == std::vector<std::string>(2));
    const std::size_t steps = how == uneven::pad ? 6 : how == uneven::stop ? 1 : 0;
    CHECK(batches == std::vector<std::vector<std::size_t>>(2, std::vector<std::size_t>(3, steps)));
    const float all = how == uneven::pad ? 75.0F : how == uneven::stop ? 18.0F : 0.0F;
    CHECK(weight[0] + weight[1] == all);
    // One gather a step, and one that compares the ranks at the start.
    CHECK(gather.gathers() == 3 * (steps + 1) + 1);
  }
}

TEST_CASE("a sample that cannot be decoded keeps its place in a batch: ranks have batches of equal size all the same") {
  const batch_pool pool(batch_layout(4, {{"size", dtype::i64}}));
  for (const bool throws : {true, false}) {
    // Of shard 0 one sample of three; of shard 1 all.
    const auto bad = [](const sample& s) { return s.key[1] == '1' || s.key.back() % 3 == 0; };
    const auto write = [=](const sample& s, const batch_row& row) {
      if (bad(s) && throws) throw archive_error("it cannot be decoded");
      row.set("size", static_cast<std::int64_t>(s["txt"].size()));
      row.key(s.key);
      return !bad(s);
    };
    test::thread_gather gather(2);
    std::vector<std::vector<std::size_t>> sizes(2);
    std::vector<std::size_t> good(2, 0);
    const std::vector<std::string> errors = test::on_ranks(2, [&](std::size_t r) {
      const tar_dataset data({23, 9}, 300);
      shard_epochs_options o{.seed = 1, .epochs = 2};
      o.rank = {.index = static_cast<std::uint32_t>(r), .world_size = 2};
      const equal_batches equal(4, uneven::pad, gather.group(r));
      o.equal = &equal;
      runtime rt({.log = [](const log_record&) {}});
      auto run = rt.run(samples_of(data, o) | equal.fill() |
                        fill_batches(pool, write, {.failures = {.then = on_failure::skip}}));
      for (const host_batch& b : equal.of(run)) {
        sizes[r].push_back(b.size());
        for (std::size_t i = 0; i < b.size(); ++i) {
          if (b.weights()[i] != 0) ++good[r];
          if ((b.weights()[i] != 0) == b.keys()[i].empty()) throw std::runtime_error("the mask is wrong");
        }
      }
    });
    REQUIRE(errors == std::vector<std::string>(2));
    CHECK(sizes == std::vector<std::vector<std::size_t>>(2, std::vector<std::size_t>(12, 4)));
    std::size_t left = 0;
    for (int i = 0; i < 23; ++i) left += std::to_string(i).back() % 3 == 0 ? 0 : 1;
    CHECK(good[0] + good[1] == 2 * left);
  }
}

TEST_CASE("an error of one rank is an error of all, in the same step") {
  test::thread_gather gather(3);
  std::vector<std::size_t> batches(3);
  const std::vector<std::string> errors = test::on_ranks(3, [&](std::size_t r) {
    const tar_dataset data({9, 9, 9}, 300);
    if (r == 1) data.store->missing = "mem:100.tar", data.store->cut = "mem:101.tar";
    shard_epochs_options o{.seed = 1, .epochs = 3};
    o.rank = {.index = static_cast<std::uint32_t>(r), .world_size = 3};
    const equal_batches equal(4, uneven::pad, gather.group(r));
    o.equal = &equal;
    virtual_run run(samples_of(data, o) | equal.fill() | batch(4));
    for (const batch_of_samples& b : equal.of(run)) batches[r] += b.size() / 4;
  });
  CHECK(errors[0] == "another rank has failed: this one cannot continue alone");
  CHECK_THAT(errors[1], Contains("mem:10"));
  CHECK(errors[2] == errors[0]);
  CHECK(batches == std::vector<std::size_t>(3, batches[0]));
}

TEST_CASE("ranks with other lists, seeds or numbers get an error before the first batch") {
  const auto told = [](const std::function<void(shard_epochs_options&, tar_dataset&)>& change) {
    test::thread_gather gather(2);
    return test::on_ranks(2, [&](std::size_t r) {
      tar_dataset data({9, 9, 9}, 300);
      shard_epochs_options o{.seed = 1, .epochs = 2};
      o.rank = {.index = static_cast<std::uint32_t>(r), .world_size = 2};
      const equal_batches equal(4, uneven::pad, gather.group(r));
      if (r == 1) change(o, data);
      o.equal = &equal;
      virtual_run run(samples_of(data, o) | equal.fill() | batch(4));
      if (equal.of(run).next()) throw std::runtime_error("it goes on");
    });
  };
  const std::vector<std::string> seeds = told([](shard_epochs_options& o, tar_dataset&) { o.seed = 2; });
  CHECK(seeds == std::vector<std::string>(2, "the ranks do not agree: the seed is 1 on rank 0, 2 on rank 1"));
  const std::vector<std::string> lists = told(
      [](shard_epochs_options&, tar_dataset& d) { d.store->objects["mem:103.tar"] = d.store->objects["mem:102.tar"]; });
  CHECK_THAT(lists[0], Contains("the digest of the list is"));
  CHECK(lists[1] == lists[0]);
  const std::vector<std::string> empty = told([](shard_epochs_options&, tar_dataset& d) { d.store->objects.clear(); });
  CHECK(empty[0] == "another rank has failed: this one cannot continue alone");
  CHECK(empty[1] == "shard_epochs: the list has no shards");
}

TEST_CASE("what would hang, or give ranks other samples than it seems, is refused") {
  const tar_dataset data({9, 9}, 300);
  const rank_group alone;
  shard_epochs_options two{.rank = {.index = 0, .world_size = 2}};
  CHECK_THROWS_WITH(samples_of(data, two), Contains("a training that waits for all of them in every step would hang"));
  CHECK_THROWS_AS(equal_batches(0, uneven::pad, alone), configuration_error);
  {
    const equal_batches equal(4, uneven::pad, rank_group({.index = 1, .world_size = 2}, [](auto, auto) {}));
    shard_epochs_options o{.equal = &equal};
    CHECK_THROWS_WITH(samples_of(data, o), "epochs: it is given rank 0 of 1, and the rank_group of .equal is rank 1 "
                                           "of 2: give it the group, .ranks");
  }
  const auto failure = [&](const std::function<void(const equal_batches&, shard_epochs_options&)>& body) {
    const equal_batches equal(4, uneven::pad, alone);
    shard_epochs_options o;
    try {
      body(equal, o);
    } catch (const usage_error& e) {
      return std::string(e.what());
    }
    return std::string("not refused");
  };
  // One run only.
  CHECK_THAT(failure([&](const equal_batches& equal, shard_epochs_options& o) {
               o.equal = &equal;
               const stream<sample> first = samples_of(data, o);
               const stream<sample> second = samples_of(data, o);
             }),
             Contains(".equal is for one run"));
  // fill() without .equal, .equal without fill(), and batches of another size.
  CHECK_THAT(failure([&](const equal_batches& equal, shard_epochs_options& o) {
               virtual_run run(samples_of(data, o) | equal.fill() | batch(4));
               equal.of(run).next();
             }),
             Contains("epochs() was not given it"));
  CHECK_THAT(failure([&](const equal_batches& equal, shard_epochs_options& o) {
               o.equal = &equal;
               virtual_run run(samples_of(data, o) | batch(4));
               equal.of(run).next();
             }),
             Contains("a batch has another size"));
  CHECK_THAT(failure([&](const equal_batches& equal, shard_epochs_options& o) {
               o.equal = &equal;
               virtual_run run(samples_of(data, o) | equal.fill() | batch(3));
               equal.of(run).next();
             }),
             Contains("a batch has another size"));
  // Batches that are not taken through of() would never end.
  CHECK_THAT(failure([&](const equal_batches& equal, shard_epochs_options& o) {
               o.equal = &equal;
               virtual_run run(samples_of(data, o) | equal.fill() | batch(4));
               while (run.next()) {
               }
             }),
             Contains("are not taken through of(run)"));
}
