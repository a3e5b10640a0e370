// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Trainings on files of records of one field, and a model of them.

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/order/shard_counts.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/epochs_options.hpp>

#include "tests/support/catch.hpp"
#include "tests/train/epochs_data.hpp"

namespace millrace::test {

using seen_samples = std::map<std::uint64_t, std::string>;  // by epoch * 2^32 + position: key, '|' and the field
using record_files = std::map<std::string, std::vector<std::string>>;  // by name

/// A member of a gzip file; with a `window` of 15 a zlib stream (deflateInit2()).
inline std::string gzip_member(std::string_view text, int window = 16 + 15) {
  z_stream z = {};
  REQUIRE(deflateInit2(&z, 6, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - z.avail_out);
  deflateEnd(&z);
  return out;
}

/// The records of files, in the order of their names, as the canonical order has them.
inline seen_samples model_of(const record_files& files, const epochs_options& o, std::uint64_t slice) {
  std::vector<std::vector<std::string>> shards;
  std::vector<std::uint64_t> counts;
  for (const auto& [name, records] : files) {
    shards.push_back(records);
    counts.push_back(records.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
      shards.back()[i] = name + '#' + std::to_string(i) + '|' + records[i];
    }
  }
  seen_samples all;
  for (std::uint64_t e = 0; e < o.epochs; ++e) {
    const sample_order places(std::make_shared<const shard_counts>(counts), o.seed, e,
                              {.tracks = o.tracks, .slice = slice});
    for (std::uint64_t g = 0; g < places.size(); ++g) {
      const sample_place p = places.at(g);
      all[e << 32 | g] = shards[static_cast<std::size_t>(p.shard)][static_cast<std::size_t>(p.ordinal)];
    }
  }
  return all;
}

struct part_of_training {
  seen_samples samples;
  std::size_t steps = 0;
  std::string state;
};

/// `most` steps after the state.
inline part_of_training trained(runtime& rt, const dataset& data, const epochs_options& o, std::string saved = {},
                                std::size_t most = SIZE_MAX) {
  part_of_training out;
  auto run = rt.run(epochs(data, o, std::move(saved)));
  if (most == 0) {
    out.state = run.state();
    return out;
  }
  std::size_t n = 0;
  for (const sample& s : run) {
    if (s.weight() != 0) {
      std::string one = s.key + '|';
      for (const field& f : s.fields) one += f.data.view();
      out.samples[s.mark.epoch << 32 | s.mark.position] = std::move(one);
    }
    if (++n % o.batch != 0) continue;
    ++out.steps;
    out.state = run.state();
    if (out.steps == most) break;
  }
  return out;
}

/// One to three ranks, without a stop and stopped after each step: all of the model, once.
inline void check_trainings(runtime& rt, const dataset& data, epochs_options o, const seen_samples& wanted) {
  for (std::uint32_t world = 1; world <= 3; ++world) {
    seen_samples all;
    std::size_t steps = 0;
    for (std::uint32_t r = 0; r < world; ++r) {
      o.rank = {.index = r, .world_size = world};
      const part_of_training whole = trained(rt, data, o);
      if (r == 0) steps = whole.steps;
      CHECK(whole.steps == steps);
      all.insert(whole.samples.begin(), whole.samples.end());
      for (std::size_t stop = 1; stop < steps; ++stop) {
        const part_of_training first = trained(rt, data, o, {}, stop);
        part_of_training joined = trained(rt, data, o, first.state);
        CHECK(joined.samples.size() + first.samples.size() == whole.samples.size());
        joined.samples.insert(first.samples.begin(), first.samples.end());
        if (joined.samples != whole.samples) FAIL("other samples after a resume at step " << stop);
      }
    }
    CHECK(all == wanted);
  }
}

/// Options of a training on small records: bounds so small that reads are cut and joined in many ways.
inline epochs_options drawn_options(rng& random) {
  epochs_options o{.seed = random.below(9), .epochs = 1 + random.below(2), .batch = 1 + random.below(4)};
  o.tracks = 1 + random.below(6);
  o.part = 1 + random.below(200);
  o.gap = random.below(40);
  o.bytes = 1 + random.below(9000);
  return o;
}

/// The number of ranks is drawn anew each time that the training goes on.
inline void check_drawn_training(runtime& rt, rng& random, const dataset& data, const epochs_options& o,
                                 const seen_samples& wanted) {
  seen_samples all;
  std::string state;
  for (bool more = true; more;) {
    const auto world = static_cast<std::uint32_t>(1 + random.below(3));
    const std::size_t most = 1 + random.below(40);
    std::string next;
    for (std::uint32_t r = 0; r < world; ++r) {
      epochs_options mine = o;
      mine.rank = {.index = r, .world_size = world};
      const part_of_training part = trained(rt, data, mine, state, most);
      for (const auto& [place, s] : part.samples) CHECK(all.emplace(place, s).second);
      if (r == 0) next = part.state;
      CHECK(part.state == next);
      more = part.steps == most;
    }
    if (!next.empty()) state = next;
  }
  CHECK(all == wanted);
}

inline std::shared_ptr<dataset_store> store_of(const std::map<std::string, std::string>& objects) {
  const auto store = std::make_shared<dataset_store>(1);
  for (const auto& [name, content] : objects) store->objects["mem:d/" + name] = content;
  return store;
}

}  // namespace millrace::test
