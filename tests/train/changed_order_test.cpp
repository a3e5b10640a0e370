// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/data/epoch_mark.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <millrace/device/fill_batches.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/bucket_by_length.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/equal_batches.hpp>

#include "tests/support/catch.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/train/rank_threads.hpp"

// Stages after epochs() that change the order, or that end: batches are equal all the same, or the pipeline is refused.

using namespace millrace;
using Catch::Matchers::Contains;
using test::tar_dataset;

namespace {

using names = std::vector<std::string>;

const std::vector<std::size_t> counts{10, 11, 12, 13};  // 46 samples

test::settings settings_of(std::uint32_t index, std::uint32_t world, std::uint64_t epochs = 2) {
  return {
      .seed = 3, .epochs = epochs, .batch = 4, .rank = {.index = index, .world_size = world}, .tracks = 12, .slice = 4};
}

/// A batch as a training sees it.
class seen_batch {
 public:
  std::size_t size = 0;
  std::uint64_t epoch = 0;
  bool last = false;  // of the epoch
  names keys;         // of its samples
};
template <class Batch>
seen_batch seen(const Batch& b) {
  seen_batch out;
  const epoch_mark mark = detail::mark_of_item(b);
  out.size = b.size();
  out.epoch = mark.epoch;
  out.last = mark.last;
  for (const sample& s : b) {
    if (s.mark.epoch != mark.epoch || (s.from.from != nullptr && s.from.from->epoch != mark.epoch)) {
      out.keys.push_back("of another epoch");
    }
    if (s.weight() != 0) out.keys.push_back(s.key);
  }
  return out;
}

template <class Batch>
task<std::vector<seen_batch>> all_of(stream<Batch> in) {
  std::vector<seen_batch> all;
  while (std::optional<Batch> b = co_await in.next()) all.push_back(seen(*b));
  co_return std::move(all);
}
template <class Batch>
std::vector<seen_batch> on_virtual_time(stream<Batch> in) {
  testing::virtual_loop loop;
  return block_on(loop, all_of(std::move(in)));
}

/// All ranks have as many batches of 4 in each epoch as run.batches() says, the last one of each is marked, and every
/// sample comes once an epoch.
void check_equal(const std::vector<std::vector<seen_batch>>& ranks, std::size_t samples, std::uint64_t epochs) {
  const std::size_t steps = (samples + 4 * ranks.size() - 1) / (4 * ranks.size());
  std::multiset<std::string> keys;
  for (const std::vector<seen_batch>& batches : ranks) {
    REQUIRE(batches.size() == steps * epochs);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      INFO("batch " << i);
      CHECK(batches[i].size == 4);
      CHECK(batches[i].epoch == i / steps);
      CHECK(batches[i].last == (i % steps == steps - 1));
      for (const std::string& k : batches[i].keys) keys.insert(std::to_string(batches[i].epoch) + k);
    }
  }
  CHECK(keys.size() == samples * epochs);
  CHECK(std::set<std::string>(keys.begin(), keys.end()).size() == samples * epochs);
}

template <class Stages>
std::vector<std::vector<seen_batch>> ranks_of(const tar_dataset& data, std::uint32_t world, std::uint64_t epochs,
                                              const Stages& stages) {
  std::vector<std::vector<seen_batch>> all;
  for (std::uint32_t r = 0; r < world; ++r) {
    all.push_back(on_virtual_time(stages(data.open(settings_of(r, world, epochs)))));
  }
  return all;
}

/// Some wait longer than others, on virtual time.
task<sample> later(sample s) {
  co_await sleep_for(std::chrono::microseconds(detail::text_hash(s.key) % 2000));
  co_return std::move(s);
}
constexpr map_concurrent_options as_they_come{.limit = 24, .order = order::arrival};

std::size_t length_of(const sample& s) { return s.key.size(); }

template <class Pipeline>
std::string refusal(runtime& rt, Pipeline pipeline) {
  try {
    static_cast<void>(rt.run(std::move(pipeline)));
  } catch (const configuration_error& e) {
    return e.what();
  }
  return "accepted";
}

runtime quiet() {
  return runtime({.log = [](const log_record&) {}});
}

/// An item that knows where it is of, and cannot stand elsewhere.
class fixed {
 public:
  explicit fixed(const sample& s) : mark_(s.mark) {}
  friend epoch_mark mark_of(const fixed& f) noexcept { return f.mark_; }

 private:
  epoch_mark mark_;
};

}  // namespace

TEST_CASE("batches after shuffle and in order of arrival end with the epoch, equally many on all ranks", "[places]") {
  const tar_dataset data(counts, 900);
  const std::uint32_t world = GENERATE(1u, 2u, 3u);
  INFO(world << " ranks");
  check_equal(
      ranks_of(data, world, 3, [](stream<sample> s) { return std::move(s) | shuffle({.window = 16}) | batch(); }), 46,
      3);
  check_equal(
      ranks_of(data, world, 3,
               [](stream<sample> s) { return std::move(s) | shuffle({.window = 64, .bytes = 2000}) | batch(); }),
      46, 3);
  check_equal(ranks_of(data, world, 3,
                       [](stream<sample> s) { return std::move(s) | map_concurrent(later, as_they_come) | batch(); }),
              46, 3);
  // Whole batches that come in another order, and windows of items.
  check_equal(
      ranks_of(data, world, 3, [](stream<sample> s) { return std::move(s) | batch() | shuffle({.window = 3}); }), 46,
      3);
  check_equal(ranks_of(data, world, 3,
                       [](stream<sample> s) {
                         return std::move(s) | shuffle({.window = 16}) |
                                bucket_by_length(length_of, {.batch = 4, .window = 8});
                       }),
              46, 3);
  check_equal(ranks_of(data, world, 3,
                       [](stream<sample> s) {
                         return std::move(s) | bucket_by_length(length_of, {.batch = 4, .window = 8}) |
                                shuffle({.window = 3});
                       }),
              46, 3);
}

TEST_CASE("batches that are filled in place end with the epoch after a shuffle, too", "[places]") {
  const tar_dataset data(counts, 900);
  const batch_pool pool(batch_layout(4, {{"size", dtype::i64}}));
  const auto write = [](const sample& s, const batch_row& row) {
    row.set("size", static_cast<std::int64_t>(s["txt"].size()));
    row.key(s.key);
  };
  runtime rt = quiet();
  const bool whole = GENERATE(false, true);  // shuffled as batches
  std::vector<std::vector<seen_batch>> ranks;
  for (std::uint32_t r = 0; r < 3; ++r) {
    ranks.emplace_back();
    const auto filled = [&](stream<sample> s) {
      if (whole) return std::move(s) | fill_batches(pool, write) | shuffle({.window = 3});
      return std::move(s) | shuffle({.window = 16}) | fill_batches(pool, write);
    };
    for (const host_batch& b : rt.run(filled(data.open(settings_of(r, 3))))) {
      seen_batch one;
      one.size = b.size();
      one.epoch = b.mark().epoch;
      one.last = b.mark().last;
      for (const std::string& k : b.keys()) {
        if (!k.empty()) one.keys.push_back(k);
      }
      ranks.back().push_back(std::move(one));
    }
  }
  check_equal(ranks, 46, 2);
}

TEST_CASE("in order of arrival no item of an epoch comes before all of the one before", "[places]") {
  const tar_dataset data({2, 3}, 100);
  const auto bad = [](sample s) -> task<sample> {
    const bool lost = detail::text_hash(s.key) % 3 == 0;
    sample made = co_await later(std::move(s));
    if (lost) throw decode_error("it is bad");
    co_return std::move(made);
  };
  map_concurrent_options skips = as_they_come;
  skips.failures = {.then = on_failure::skip, .report = false};
  for (const bool loses : {false, true}) {
    const std::vector<std::vector<seen_batch>> ranks = ranks_of(data, 1, 8, [&](stream<sample> s) {
      return loses ? std::move(s) | map_concurrent(bad, skips) | batch()
                   : std::move(s) | map_concurrent(later, as_they_come) | batch();
    });
    if (!loses) check_equal(ranks, 5, 8);
    REQUIRE(ranks[0].size() == 16);
    for (std::size_t i = 0; i < 16; ++i) {
      CHECK(ranks[0][i].size == 4);
      CHECK(ranks[0][i].epoch == i / 2);
      CHECK(std::count(ranks[0][i].keys.begin(), ranks[0][i].keys.end(), "of another epoch") == 0);
    }
  }
}

TEST_CASE("items whose place cannot be changed are refused where a stage changes the order", "[places]") {
  const tar_dataset data(counts, 300);
  runtime rt = quiet();
  test::settings bare = settings_of(0, 1);
  bare.pad = false;
  const auto made = [](const sample& s) { return fixed(s); };
  CHECK_THAT(refusal(rt, data.open(bare) | map(made) | shuffle({.window = 4}) | batch(4)),
             Contains("shuffle, in a pipeline that begins with epochs()") && Contains("place cannot be changed"));
  CHECK_THAT(refusal(rt, data.open(bare) | map_concurrent(made, {.order = order::arrival}) | batch(4)),
             Contains("map_concurrent, in a pipeline that begins with epochs()"));
  CHECK(refusal(rt, data.open(bare) | map(made) | batch(4)) == "accepted");
}

TEST_CASE("a state inside a sample's items does not go on after a shuffle", "[places]") {
  const tar_dataset data(counts, 300);
  runtime rt = quiet();
  const auto two = [](const sample& s) { return std::vector<sample>(2, s); };
  test::settings o = settings_of(0, 1);
  o.batch = 1;
  auto run = rt.run(data.open(o) | flat_map(two) | batch(3));
  REQUIRE(run.next());
  o.resume = run.state();
  CHECK_THAT(refusal(rt, data.open(o) | shuffle({.window = 4}) | flat_map(two) | batch(3)),
             Contains("items into a sample of flat_map()"));
  CHECK(refusal(rt, data.open(o) | flat_map(two) | shuffle({.window = 4}) | batch(3)) == "accepted");
}

TEST_CASE("on_failure::stop is refused by name where other ranks would continue alone", "[places]") {
  const tar_dataset data(counts, 300);
  runtime rt = quiet();
  const failure_policy stop{.then = on_failure::stop};
  const auto same = [](sample s) { return s; };
  const batch_pool pool(batch_layout(4, {{"size", dtype::i64}}));
  const auto write = [](const sample&, const batch_row&) {};
  const auto two = settings_of(0, 2);
  CHECK_THAT(refusal(rt, data.open(two) | map(same, stop) | batch()),
             Contains("map, in a pipeline that begins with epochs(): on_failure::stop is for one rank"));
  CHECK_THAT(refusal(rt, data.open(two) | map_concurrent(same, {.failures = stop}) | batch()),
             Contains("map_concurrent, in a pipeline") && Contains("on_failure::stop"));
  CHECK_THAT(refusal(rt, data.open(two) | fill_batches(pool, write, {.failures = stop})),
             Contains("fill_batches, in a pipeline") && Contains("on_failure::stop"));
  CHECK(refusal(rt, data.open(settings_of(0, 1)) | map(same, stop) | batch()) == "accepted");
  test::settings uneven = two;
  uneven.uneven = uneven.streamed = true;
  CHECK(refusal(rt, test::train_on(shards("mem:10{0..3}.tar"), std::shared_ptr<const storage>(data.store), uneven) |
                        map(same, stop) | batch(4)) == "accepted");
}

TEST_CASE("take() counts anew after a resume, so there is no state", "[places]") {
  const tar_dataset data(counts, 300);
  runtime rt = quiet();
  auto run = rt.run(data.open(settings_of(0, 1)) | take(20) | batch());
  CHECK_THROWS_WITH(run.state(), Contains("take() after epochs() would count anew") && Contains("stop_after()"));
  // stop_after() ends a training that goes on.
  auto first = rt.run(data.open(settings_of(0, 1)) | batch());
  first.stop_after(5);
  std::size_t batches = 0;
  for (const auto& b : first) batches += b.size() / 4;
  CHECK(batches == 5);
  test::settings rest = settings_of(0, 1);
  rest.resume = first.state();
  for (const auto& b : rt.run(data.open(rest) | batch())) batches += b.size() / 4;
  CHECK(batches == 24);
}

TEST_CASE("an epoch that is all empty entries is a line in the log", "[places]") {
  const tar_dataset data(counts, 300);
  names lines;
  std::mutex mutex;
  const auto add = [&](const log_record& r) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(r.text);
  };
  runtime rt({.log = add});
  const auto said = [&](auto pipeline) {
    lines.clear();
    {
      auto run = rt.run(std::move(pipeline));
      for (const auto& b : run) static_cast<void>(b);
    }
    const std::lock_guard lock(mutex);
    return std::count_if(lines.begin(), lines.end(),
                         [](const std::string& l) { return l.find("has not one sample") != std::string::npos; });
  };
  const auto none = [](const sample&) { return false; };
  CHECK(said(data.open(settings_of(0, 2, 3)) | filter(none) | batch()) == 1);
  CHECK(std::count_if(lines.begin(), lines.end(), [](const std::string& l) {
          return l.find("epoch 0 has not one sample: all 6 batches") != std::string::npos;
        }) == 1);
  CHECK(said(data.open(settings_of(0, 1, 3)) | flat_map([](const sample&) { return std::vector<sample>(); }) |
             batch()) == 1);
  CHECK(said(data.open(settings_of(0, 2, 3)) | batch()) == 0);
  CHECK(said(data.open(settings_of(0, 2, 3)) | filter([](const sample& s) { return s.key == "s1/3"; }) | batch()) < 2);
  // The end of an epoch, after a resume, may be empty.
  test::settings o = settings_of(1, 12);  // one batch, of which rank 11 has the padding
  o.rank.index = 11;
  auto run = rt.run(data.open(o) | batch());
  REQUIRE(run.next());
  o.resume = run.state();
  CHECK(said(data.open(o) | batch()) == 0);
}

TEST_CASE("states of different steps are refused after flat_map() with .equal, with an index and without", "[places]") {
  const tar_dataset data(counts, 300);
  const bool indexed = GENERATE(true, false);
  const bool padded = GENERATE(false, true);   // rank 1 has ended before
  const bool grouped = GENERATE(true, false);  // else .equal alone has the ranks
  INFO((grouped ? "" : "no group, ") << (indexed ? "an index" : "no index")
                                     << (padded ? ", after the end of one rank" : ""));
  runtime rt = quiet();
  const auto some = [](const sample& s) { return std::vector<sample>(1 + detail::text_hash(s.key) % 3, s); };
  const auto train = [&](const names& resume, std::vector<names>& states, std::vector<std::size_t>& batches) {
    test::thread_gather gather(2);
    states.assign(2, {});
    batches.assign(2, 0);
    return test::on_ranks(2, [&](std::size_t r) {
      const rank_group group = gather.group(r);
      const equal_batches equal(3, uneven::pad, group);
      dataset_options how{.prefix = "mem:", .slice = 4};
      how.window = 5;
      if (!indexed) how.slice = 0;
      const std::shared_ptr<const storage> store = data.store;
      const dataset of = indexed ? dataset(store, data.indexes, {.prefix = "mem:", .slice = 4})
                                 : dataset(store, shards("mem:10{0..3}.tar"), {.window = 5});
      epochs_options o{.seed = 3, .epochs = 2, .batch = 2};
      if (indexed) o.tracks = 12;
      if (grouped) {
        o.ranks = group;
      } else {
        o.rank = group.mine();
      }
      o.equal = &equal;
      o.uneven = true;
      auto run =
          rt.run(epochs(of, o, resume.empty() ? std::string() : resume[r]) | flat_map(some) | equal.fill() | batch());
      states[r].push_back(run.state());
      for (const auto& b : equal.of(run)) {
        batches[r] += b.size() / 3;
        states[r].push_back(run.state());
      }
    });
  };
  std::vector<names> states, others;
  std::vector<std::size_t> batches;
  REQUIRE(train({}, states, batches) == names(2));
  REQUIRE(states[0].size() == states[1].size());
  const std::size_t last = padded ? states[0].size() - 1 : 8;
  const names refused = train({states[0][last], states[1][last - 2]}, others, batches);
  CHECK_THAT(refused[0], grouped ? Contains("the state is after step") : Contains("the step of the state is"));
  CHECK(refused[1] == refused[0]);
  CHECK(batches == std::vector<std::size_t>{0, 0});
  for (const std::size_t n : {last, std::size_t{5}}) {
    CHECK(train({states[0][n], states[1][n]}, others, batches) == names(2));
    CHECK(batches == std::vector<std::size_t>(2, states[0].size() - 1 - n));
    CHECK(others[0] == names(states[0].begin() + static_cast<std::ptrdiff_t>(n), states[0].end()));
  }
}
