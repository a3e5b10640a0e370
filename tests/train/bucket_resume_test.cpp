// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/bucket_by_length.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::tar_dataset;

// Batches of about one length after epochs(), and their resume.
namespace {

class length {
 public:
  std::size_t operator()(const sample& s) const { return s["bin"].size(); }
};

class training {
 public:
  std::vector<std::vector<std::string>> batches;
  std::vector<std::string> states;  // that of the beginning first
  std::vector<bool> last;           // of the epoch
};

training trained(runtime& rt, const tar_dataset& data, const test::settings& options, const bucket_options& how) {
  training out;
  auto run = rt.run(data.open(options) | bucket_by_length(length(), how));
  out.states.push_back(run.state());
  for (marked_batch<sample>& b : run) {
    out.batches.emplace_back();
    for (const sample& s : b) {
      out.batches.back().push_back(s.weight() == 0 ? "-" : std::to_string(s.mark.epoch) + " " + s.key);
    }
    out.states.push_back(run.state());
    out.last.push_back(b.mark.last);
  }
  return out;
}

template <class T>
std::vector<T> behind(const std::vector<T>& all, std::size_t n) {
  return std::vector<T>(all.begin() + static_cast<std::ptrdiff_t>(n), all.end());
}

const std::vector<std::size_t> shard_sizes{17, 3, 30, 8};

}  // namespace

TEST_CASE("a resume goes on with the very next batch of a window", "[bucket][resume]") {
  const tar_dataset data(shard_sizes, 300);
  runtime rt;
  const std::uint32_t world = GENERATE(1u, 3u);
  const auto how = GENERATE(bucket_options{.batch = 2, .window = 8}, bucket_options{.max_tokens = 700, .window = 12},
                            bucket_options{.batch = 4, .window = 8, .edges = {100, 200}});
  for (std::uint32_t r = 0; r < world; ++r) {
    test::settings options{
        .seed = 7, .epochs = 2, .batch = 2, .rank = {.index = r, .world_size = world}, .tracks = 12, .slice = 4};
    options.uneven = how.batch == 0 || how.edges.size() != 0;
    const training whole = trained(rt, data, options, how);
    REQUIRE(whole.batches.size() >= 8);
    for (std::size_t n = 0; n < whole.states.size(); ++n) {
      INFO("rank " << r << " of " << world << ", after batch " << n << ": " << whole.states[n]);
      options.resume = whole.states[n];
      const training rest = trained(rt, data, options, how);
      CHECK(rest.batches == behind(whole.batches, n));
      CHECK(rest.states == behind(whole.states, n));
      CHECK(rest.last == behind(whole.last, n));
    }
    CHECK(std::count(whole.last.begin(), whole.last.end(), true) == 2);
  }
}

TEST_CASE("every sample comes once an epoch, and ranks stand at the same place at the same step", "[bucket]") {
  const tar_dataset data(shard_sizes, 300);
  runtime rt;
  std::vector<training> all;
  for (std::uint32_t r = 0; r < 3; ++r) {
    all.push_back(trained(
        rt, data, {.seed = 7, .epochs = 2, .batch = 2, .rank = {.index = r, .world_size = 3}, .tracks = 12, .slice = 4},
        {.batch = 2, .window = 8}));
    CHECK(all[r].states == all[0].states);
  }
  std::vector<std::string> seen, expected;
  for (const training& t : all) {
    for (const auto& b : t.batches) {
      CHECK(b.size() == 2);
      for (const std::string& key : b) {
        if (key != "-") seen.push_back(key);
      }
    }
  }
  for (std::uint64_t e = 0; e < 2; ++e) {
    for (const std::string& key : data.order(7, e, {.tracks = 12, .slice = 4})) {
      expected.push_back(std::to_string(e) + " " + key);
    }
  }
  std::sort(seen.begin(), seen.end());
  std::sort(expected.begin(), expected.end());
  CHECK(seen == expected);
}

TEST_CASE("a state inside a window is for the same windows alone", "[bucket][resume]") {
  const tar_dataset data(shard_sizes, 300);
  runtime rt;
  test::settings options{.seed = 7, .batch = 2, .tracks = 12, .slice = 4};
  const training whole = trained(rt, data, options, {.batch = 2, .window = 8});
  options.resume = whole.states[2];
  CHECK(epoch_state::parse(whole.states[2]).taken == 2);
  CHECK(epoch_state::parse(whole.states[2]).position == 0);
  CHECK(epoch_state::parse(whole.states[4]).taken == 0);
  CHECK(epoch_state::parse(whole.states[4]).position == 8);
  const char* const sentence = "the state is 2 batches into a window of bucket_by_length()";
  CHECK_THROWS_WITH(trained(rt, data, options, {.batch = 4, .window = 8}), Contains(sentence));
  CHECK_THROWS_WITH(rt.run(data.open(options) | batch(2)), Contains(sentence));
  test::settings other = options;
  other.rank.world_size = 2;
  CHECK_THROWS_WITH(trained(rt, data, other, {.batch = 2, .window = 8}), Contains(sentence));
  other = options;
  other.tracks = 6;
  CHECK_THROWS_WITH(trained(rt, data, other, {.batch = 2, .window = 8}), Contains("number of tracks"));
  epoch_state too_many = epoch_state::parse(whole.states[2]);
  too_many.taken = 9;
  const std::string text = too_many.text();
  options.resume = text;
  CHECK_THROWS_WITH(trained(rt, data, options, {.batch = 2, .window = 8}), Contains("9 batches of a window"));
}

TEST_CASE("windows that are not made of steps have no state between ranks", "[bucket][resume]") {
  const tar_dataset data(shard_sizes, 300);
  runtime rt;
  auto run =
      rt.run(data.open({.seed = 7, .batch = 2, .rank = {.index = 0, .world_size = 2}, .tracks = 12, .slice = 4}) |
             bucket_by_length(length(), {.batch = 3, .window = 3}));
  REQUIRE(run.next());
  CHECK_THROWS_WITH(run.state(), Contains("ends inside a step"));
}

TEST_CASE("batches on a device know the state of their window", "[bucket][to_device]") {
  const tar_dataset data(shard_sizes, 300);
  runtime rt;
  const test::settings options{.seed = 7, .batch = 2, .tracks = 12, .slice = 4};
  const bucket_options how{.batch = 2, .window = 8};
  const training whole = trained(rt, data, options, how);
  const auto lay_out = [](const sample& s, sample_writer& out) {
    out.key(s.key);
    out.padded("bin", s["bin"]);
  };
  auto run = rt.run(data.open(options) | bucket_by_length(length(), how) | to_device(host_device(), {}, lay_out));
  std::size_t n = 0;
  for (device_batch& b : run) {
    CHECK(run.state() == whole.states[++n]);
    CHECK(std::vector<std::string>(b.keys().begin(), b.keys().end())[0] == whole.batches[n - 1][0].substr(2));
  }
  CHECK(n == whole.batches.size());
}
