// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/records/pack.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/rank_group.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/train/rank_threads.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::tar_dataset;

// Sequences of documents of epochs(): what a resume goes on with.
namespace {

/// A document of a length that its key tells, some of them empty.
token_document document_of(const sample& s) {
  std::vector<std::int32_t> tokens;
  if (s.weight() != 0) {
    std::int32_t seed = 0;
    for (const char c : s.key) seed = (seed * 31 + c) % 1009;
    for (std::int32_t i = 0; i < seed % 23; ++i) tokens.push_back(1000 * seed + i);
  }
  return token_document(std::move(tokens), s.mark);
}

class training {
 public:
  std::vector<std::string> batches;
  std::vector<std::string> states;  // that of the beginning first
};

training trained(runtime& rt, const tar_dataset& data, const test::settings& options, std::size_t length,
                 const pack_options& how) {
  training out;
  auto run = rt.run(data.open(options) | map([](sample s) { return document_of(s); }) | pack(length, how) | batch(2));
  out.states.push_back(run.state());
  for (const std::vector<packed_sequence>& b : run) {
    std::string text;
    for (const packed_sequence& s : b) {
      for (std::size_t i = 0; i < s.tokens.size(); ++i) {
        text += std::to_string(s.tokens[i]) + "/" + std::to_string(s.documents[i]);
        text += s.mask[i] != 0 ? " " : "! ";
      }
    }
    out.batches.push_back(text);
    out.states.push_back(run.state());
  }
  return out;
}

template <class T>
std::vector<T> behind(const std::vector<T>& all, std::size_t n) {
  return std::vector<T>(all.begin() + static_cast<std::ptrdiff_t>(n), all.end());
}

const std::vector<std::size_t> shard_sizes{17, 3, 30, 8};
const test::settings alone{.seed = 7, .epochs = 2, .batch = 4, .tracks = 12, .slice = 4};

}  // namespace

TEST_CASE("a resume goes on with the very next sequence, wherever in a document the one before it ended",
          "[pack][resume]") {
  const tar_dataset data(shard_sizes, 300);
  runtime rt;
  const std::size_t length = GENERATE(5u, 16u, 100u);
  const bool ends = GENERATE(false, true);
  pack_options how;
  if (ends) how.end = -7;
  const training whole = trained(rt, data, alone, length, how);
  REQUIRE(whole.batches.size() >= 5);
  std::size_t inside = 0;
  for (std::size_t n = 0; n < whole.states.size(); ++n) {
    INFO("after batch " << n << ": " << whole.states[n]);
    inside += whole.states[n].find("\"taken\"") != std::string::npos;
    test::settings options = alone;
    options.resume = whole.states[n];
    const training rest = trained(rt, data, options, length, how);
    CHECK(rest.batches == behind(whole.batches, n));
    CHECK(rest.states == behind(whole.states, n));
  }
  CHECK(inside > whole.states.size() / 2);
}

TEST_CASE("a state inside a document is refused where it would not hold", "[pack][resume]") {
  const tar_dataset data(shard_sizes, 300);
  runtime rt;
  const training whole = trained(rt, data, alone, 16, {});
  test::settings options = alone;
  for (const std::string& state : whole.states) {
    if (state.find("\"taken\"") != std::string::npos) options.resume = state;
  }
  REQUIRE_FALSE(options.resume.empty());
  pack_options other;
  other.end = 2;
  CHECK_THROWS_WITH(trained(rt, data, options, 16, other), Contains("pack()"));
  CHECK_THROWS_WITH(rt.run(data.open(options) | batch(4)), Contains("pack()"));
}

TEST_CASE("of several ranks each goes on from its own state, wherever in its documents that is", "[pack][resume]") {
  const tar_dataset data(shard_sizes, 300);
  runtime rt;
  const std::size_t length = GENERATE(5u, 40u);
  pack_options how;
  if (GENERATE(false, true)) how.end = -7;
  std::vector<std::string> ends;  // a state of each rank, in the middle of its training
  for (std::uint32_t r = 0; r < 3; ++r) {
    test::settings options = alone;
    options.rank = {.index = r, .world_size = 3};
    options.uneven = true;
    const training whole = trained(rt, data, options, length, how);
    REQUIRE(whole.batches.size() >= 3);
    std::size_t inside = 0;
    for (std::size_t n = 0; n < whole.states.size(); ++n) {
      INFO("rank " << r << " after batch " << n << ": " << whole.states[n]);
      inside += whole.states[n].find("\"taken\":0") == std::string::npos;
      options.resume = whole.states[n];
      const training rest = trained(rt, data, options, length, how);
      CHECK(rest.batches == behind(whole.batches, n));
      CHECK(rest.states == behind(whole.states, n));
    }
    CHECK(inside > whole.states.size() / 2);
    ends.push_back(whole.states[whole.states.size() / 2]);
  }

  const auto with = [](std::uint32_t index, std::uint32_t world, const std::string& state) {
    test::settings options = alone;
    options.rank = {.index = index, .world_size = world};
    options.uneven = true;
    options.resume = state;
    return options;
  };
  CHECK_THROWS_WITH(trained(rt, data, with(1, 3, ends[0]), length, how),
                    Contains("the state is that of rank 0 of 3 after pack() or flat_map(), and this is rank 1 of 3"));
  CHECK_THROWS_WITH(trained(rt, data, with(0, 2, ends[0]), length, how), Contains("each resumes from its own"));
  CHECK_THROWS_WITH(rt.run(data.open(with(0, 3, ends[0])) | batch(4)), Contains("pack()"));
  // They agree to that, and not to one of them without.
  const auto told = [&](const std::string& last) {
    test::thread_gather gather(3);
    return test::on_ranks(3, [&](std::size_t r) {
      const rank_group mine = gather.group(r);
      test::settings o = with(static_cast<std::uint32_t>(r), 3, r == 2 ? last : ends[r]);
      o.ranks = mine;
      const stream<sample> begun = data.open(o);
    });
  };
  CHECK(told(ends[2]) == std::vector<std::string>(3));
  const std::string differ =
      "the ranks do not agree: the state is one of each rank's own on ranks 0 and 1, none on rank 2";
  CHECK(told("") == std::vector<std::string>(3, differ));
}
