// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Drawn trainings on virtual time: data, seeds, orders, ranks, batches, bounds, delays, faults of the store, shards
// that are missing and tolerated, and where they are stopped, again and again. MILLRACE_PROPERTY_CASES draws more of
// them (6000), MILLRACE_PROPERTY_SEED others (1), MILLRACE_PROPERTY_FIRST begins with another case (0): a case depends
// on the seed and its number alone. One that fails is run once more, tells what was drawn and where it was stopped, and
// says how to run it alone: with MILLRACE_PROPERTY_CASES=1, which tells as it runs.

#include <millrace/train/dataset.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/flow/batch.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/order/rank_share.hpp>
#include <millrace/order/sample_mix.hpp>
#include <millrace/order/shard_deal.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar_plain.hpp>
#include <millrace/train/detail/mix_text.hpp>
#include <millrace/train/shard_epochs.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using test::dataset_mix;
using test::tar_dataset;

namespace {

using names = std::vector<std::string>;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

std::string shown(const std::string& key) { return key; }
std::string shown(const std::pair<std::uint64_t, std::string>& entry) {  // of a batch
  return std::to_string(entry.first >> 32) + ":" + std::to_string(entry.first & UINT32_MAX) + " " + entry.second;
}

/// Of equal sequences; else says where the first difference is, and what stands around it.
template <class T>
void require_same(const std::vector<T>& got, const std::vector<T>& expected, const std::string& what) {
  if (got == expected) return;
  std::size_t at = 0;
  while (at < got.size() && at < expected.size() && got[at] == expected[at]) ++at;
  const auto around = [&](const std::vector<T>& all) {
    std::string text = at > 3 ? " ..." : "";
    for (std::size_t i = at - std::min<std::size_t>(at, 3); i < std::min(at + 4, all.size()); ++i) {
      text += (i == at ? " [" : " ") + shown(all[i]) + (i == at ? "]" : "");
    }
    return text + (all.size() > at + 4 ? " ..." : all.size() <= at ? " [end]" : " end");
  };
  throw std::runtime_error(what + ": the first difference is at " + std::to_string(at) + "\n    expected:" +
                           around(expected) + "\n    got:     " + around(got));
}

/// What a case does, line by line, where it is asked for. The text is made only then.
class story {
 public:
  enum class to { nowhere, text, standard_output };
  explicit story(to where = to::nowhere) : where_(where) {}

  template <class Text>
  void tell(Text line) {
    if (where_ == to::nowhere) return;
    const std::string said = "  " + line() + "\n";
    if (where_ == to::text) text_ += said;
    if (where_ == to::standard_output) {
      std::fputs(said.c_str(), stdout);
      std::fflush(stdout);  // also where the next step ends the process
    }
  }
  const std::string& text() const { return text_; }

 private:
  to where_;
  std::string text_;
};

/// A store of which one request fails, or answers with a byte too few.
class faulty_store final : public forwarding_storage {
 public:
  faulty_store(std::shared_ptr<const storage> all, std::uint64_t bad, bool cuts)
      : forwarding_storage(std::move(all)), bad_(bad), cuts_(cuts) {}
  bool over_network(std::string_view) const noexcept override { return true; }
  task<part> read(shard object, std::string wanted, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    const bool bad = requests_++ == bad_;
    const where at{object.shown(), offset, {}};
    part p = co_await inner()->read(std::move(object), std::move(wanted), offset, length, std::move(slabs));
    if (bad && !cuts_) throw io_error(std::errc::io_error, "a fault", at);
    if (bad && p.data.size() > 1) p.data = p.data.slice(0, p.data.size() - 1);
    co_return std::move(p);
  }
  task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const override {
    return read(std::move(object), std::move(etag), 0, length, std::move(slabs));
  }

 private:
  const std::uint64_t bad_;
  const bool cuts_;
  mutable std::uint64_t requests_ = 0;
};

/// What a rank was trained on: batch by batch, and the state after each of them, that of the beginning first.
class trained {
 public:
  std::vector<std::vector<std::pair<std::uint64_t, std::string>>> batches;  // epoch * 2^32 + position, key
  names states;
  bool ended = false;
};

/// `end`: where the epochs end. Keys of a `mix` have the numbers of the data set and its round before them.
task<void> train(stream<std::vector<sample>> in, std::size_t size, std::size_t most, std::uint64_t end, trained& out,
                 bool mix = false) {
  const std::shared_ptr<const stream_position> position = in.position();
  epoch_mark mark;
  out.states.push_back(position->state(mark));
  while (out.batches.size() < most) {
    const std::optional<std::vector<sample>> b = co_await in.next();
    if (!b) {
      out.ended = true;
      break;
    }
    require(b->size() == size, "a batch has another size");
    out.batches.emplace_back();
    for (const sample& s : *b) {
      mark.join(s.mark);
      if (s.weight() == 0) {  // the place of a sample that could not be had, or what fills up
        if (s.mark.position != end) out.batches.back().emplace_back(s.mark.epoch << 32 | s.mark.position, "-");
        continue;
      }
      const shard& from = *s.from.from;
      const bool right =
          s.fields.size() == 2 && (*s.find("txt")).view() == s.key && (mix || from.epoch == s.mark.epoch);
      const std::string of = mix ? std::to_string(from.dataset) + "/" + std::to_string(from.epoch) + ":" : "";
      out.batches.back().emplace_back(s.mark.epoch << 32 | s.mark.position, (right ? of : "wrong: ") + s.key);
    }
    require(mark.whole && !mark.disordered, "a batch ends inside a step");
    out.states.push_back(position->state(mark));
  }
}

/// As a sample's decoding: it takes a while, and others overtake it.
class work {
 public:
  explicit work(std::uint64_t seed) : random_(std::make_shared<rng>(seed)) {}
  task<sample> operator()(sample s) const {
    co_await sleep_for(std::chrono::microseconds(random_->below(3000)));
    co_return std::move(s);
  }

 private:
  std::shared_ptr<rng> random_;
};

/// Some data sets in one store, for mixes.
class several {
 public:
  explicit several(std::uint64_t seed) : store(std::make_shared<test::dataset_store>(seed)) {
    rng random(seed, 2, 0);
    const std::uint64_t number = 1 + random.below(4);
    for (std::uint64_t d = 0; d < number; ++d) {
      std::vector<std::size_t> counts(1 + random.below(3));
      for (std::size_t& n : counts) n = random.below(random.below(2) == 0 ? 4 : 25);
      counts[random.below(counts.size())] += 1;
      sets.push_back(std::make_unique<const tar_dataset>(counts, 300, seed + d,
                                                     std::string(1, static_cast<char>('a' + d)) + "/", store));
    }
  }
  std::shared_ptr<test::dataset_store> store;
  std::vector<std::unique_ptr<const tar_dataset>> sets;
};

/// Of one seed and number: data that many cases share.
class world_of_data {
 public:
  const tar_dataset& of(std::uint64_t seed, std::uint64_t number) {
    if (data_ == nullptr || seed != seed_ || number != number_) {
      rng random(seed, 1, number);
      std::vector<std::size_t> counts(1 + random.below(6));
      for (std::size_t& n : counts) n = random.below(4) == 0 ? random.below(2) : random.below(30);
      counts[random.below(counts.size())] += 1;
      data_ = std::make_unique<tar_dataset>(counts, 300, seed + number);
      seed_ = seed;
      number_ = number;
    }
    return *data_;
  }
  const several& several_of(std::uint64_t seed, std::uint64_t number) {
    if (several_ == nullptr || seed * 1000003 + number != several_id_)
      several_ = std::make_unique<several>(seed + number);
    several_id_ = seed * 1000003 + number;
    return *several_;
  }

 private:
  std::unique_ptr<const tar_dataset> data_;
  std::uint64_t seed_ = 0;
  std::uint64_t number_ = 0;
  std::unique_ptr<const several> several_;
  std::uint64_t several_id_ = 0;
};

/// How often what happened, so that a change of the drawing cannot make the cases poor unnoticed.
class tally {
 public:
  std::uint64_t stops = 0;
  std::uint64_t faults = 0;
  std::uint64_t other_worlds = 0;
  std::uint64_t holes = 0;
  std::uint64_t states = 0;
  std::uint64_t samples = 0;
  std::uint64_t window_stops = 0;  // without an index
  std::uint64_t mix_states = 0;    // of mixes
  story what;                      // of the case that runs
};

/// What is drawn once for a training.
std::string text_of(const tar_dataset& data) {
  std::ostringstream out;
  out << data.indexes->size() << (data.indexes->size() == 1 ? " shard" : " shards") << " of";
  for (std::size_t i = 0; i < data.indexes->size(); ++i) out << (i == 0 ? " " : ", ") << (*data.indexes)[i].samples();
  out << " samples";
  return out.str();
}
std::string text_of(const test::settings& o) {
  std::ostringstream out;
  out << "seed " << o.seed << ", epochs " << o.first_epoch << " to " << o.first_epoch + o.epochs - 1;
  if (o.streamed) {
    out << ", no index, " << o.rank.world_size << " ranks, batches of " << o.batch << ", shards " << o.shards
        << ", window " << o.window << " samples and " << o.window_bytes << " bytes";
  } else {
    out << ", tracks " << o.tracks << ", slice " << o.slice;
  }
  if (o.take_batches != 0) out << ", take_batches " << o.take_batches;
  return out.str();
}
/// Of a state: its epoch, and the position or batch there.
std::string place_of(std::string_view state) {
  if (state.empty()) return "the beginning";
  std::string out;
  for (const char* const name : {"epoch", "position", "batch"}) {
    const std::string quoted = std::string("\"") + name + "\":";
    const std::size_t at = state.find(quoted);
    if (at == std::string::npos) continue;
    const std::size_t digits = at + quoted.size();
    out += (out.empty() ? "" : ", ") + std::string(name) + " " +
           std::string(state.substr(digits, state.find_first_not_of("0123456789", digits) - digits));
  }
  return out.empty() ? std::string(state) : out;
}
/// What is drawn for each part of it between two stops.
std::string part_text(const test::settings& o, std::size_t most, bool concurrent) {
  std::ostringstream out;
  out << "ahead " << o.ahead << ", bytes " << o.bytes << ", requests " << o.requests << ", part " << o.part << ", gap "
      << o.gap << (concurrent ? ", with map_concurrent()" : "") << ", ";
  out << (most == SIZE_MAX ? "to its end" : "stopped after " + std::to_string(most) + " batches");
  out << ", from " << place_of(o.resume);
  return out.str();
}

/// What an indexed case reads: one data set, or a mix.
class training {
 public:
  std::shared_ptr<test::dataset_store> store;
  std::uint64_t samples;  // of an epoch
  hash128 index;
  std::string mix;        // as states have it
  std::string lost;       // one shard's URL
  std::string lost_keys;  // how its samples' keys begin
  std::function<stream<sample>(std::shared_ptr<const storage>, const test::settings&)> open;
  std::function<names(const test::settings&, std::uint64_t)> order;  // of an epoch
};

training of_one(const tar_dataset& data, rng& random) {
  const std::uint64_t shard = random.below(data.indexes->size());
  return {data.store,
          data.indexes->samples(),
          data.indexes->digest(),
          "",
          "mem:10" + std::to_string(shard) + ".tar",
          "s" + std::to_string(shard) + "/",
          [&](std::shared_ptr<const storage> store, const test::settings& o) {
            return test::train_on(data.indexes, store, o);
          },
          [&](const test::settings& o, std::uint64_t e) {
            return data.order(o.seed, e, {.tracks = o.tracks, .slice = o.slice});
          }};
}

/// Draws a mix of them, whose epochs have at most some hundred samples.
training of_several(const several& data, test::settings& o, rng& random) {
  dataset_mix mix;
  std::vector<const tar_dataset*> sets;
  std::vector<std::uint64_t> weights;
  std::vector<std::uint64_t> sizes;
  hasher128 index;
  for (const auto& set : data.sets) {
    mix.members.push_back({set->indexes, 1 + random.below(9), set->prefix, random.below(2)});
    sets.push_back(set.get());
    weights.push_back(mix.members.back().weight);
    sizes.push_back(set->indexes->samples());
    index.add(set->indexes->digest());
  }
  o.tracks = sets.size() + random.below(24);
  o.epochs = 1 + random.below(4);
  const mix_until ends[] = {mix_until::first_end, mix_until::last_end, mix_until::forever};
  mix.until = ends[random.below(3)];
  if (mix.until != mix_until::forever && sample_mix(weights, sizes, o.tracks, mix.until).size() > 250) {
    mix.until = mix_until::forever;
  }
  if (mix.until == mix_until::forever) mix.samples = 1 + random.below(200);
  const std::size_t bad = random.below(sets.size());
  const std::uint64_t shard = random.below(sets[bad]->indexes->size());
  return {data.store,
          sample_mix(weights, sizes, o.tracks, mix.until, mix.samples).size(),
          index.value(),
          detail::mix_text(mix),
          sets[bad]->prefix + "10" + std::to_string(shard) + ".tar",
          sets[bad]->prefix.substr(4) + "s" + std::to_string(shard) + "/",
          [mix](std::shared_ptr<const storage> store, const test::settings& with) {
            return test::train_on(mix, store, with);
          },
          [mix, sets](const test::settings& with, std::uint64_t e) { return test::order_of_mix(mix, sets, with, e); }};
}

/// A training from indexed shards. After each stop, and each fault, its ranks go on from the last state that all of
/// them had reached, in another world.
void indexed_case(const tar_dataset& one, const several* many, rng& random, tally& seen) {
  test::settings o{.seed = random.below(1000), .epochs = 1 + random.below(3), .first_epoch = random.below(3)};
  o.tracks = 1 + random.below(24);
  o.slice = 1 + random.below(9);
  o.prefix = "mem:";
  o.take_batches = random.below(6) == 0 ? 1 + random.below(6) : 0;
  const training data = many != nullptr ? of_several(*many, o, random) : of_one(one, random);
  seen.what.tell([&] {
    return "indexed: " + text_of(o) + "; " + (many == nullptr ? text_of(one) : "a mix: " + data.mix) + ", " +
           std::to_string(data.samples) + " in an epoch";
  });
  data.store->delay_us = random.below(3) * 500;
  const std::uint64_t n = data.samples;
  const bool bears = random.below(6) == 0;
  if (bears) {
    o.failures = {.then = on_failure::skip, .report = false};
    data.store->bad[data.lost] = test::harm::missing;
    seen.what.tell([&] { return "missing, and tolerated: " + data.lost; });
  }
  std::map<std::uint64_t, std::string> got;
  epoch_state at;  // computed beside, by counting
  at.seed = o.seed;
  at.epoch = o.first_epoch;
  at.tracks = o.tracks;
  at.slice = o.slice;
  at.index = data.index;
  at.mix = data.mix;
  std::string state;
  for (std::uint32_t last_world = 0;;) {
    o.rank.world_size = static_cast<std::uint32_t>(1 + random.below(5));
    o.batch = 1 + random.below(7);
    o.ahead = 1 + random.below(60);
    o.bytes = 1 + random.below(100 * KiB);
    o.requests = 1 + random.below(20);
    o.part = random.below(8) == 0 ? 1 + random.below(2000) : 8 * MiB;
    o.gap = random.below(2000);
    o.resume = state;
    if (last_world != 0 && o.rank.world_size != last_world) ++seen.other_worlds;
    last_world = o.rank.world_size;
    const std::size_t most = random.below(4) == 0 ? SIZE_MAX : random.below(8);
    const bool concurrent = random.below(3) == 0;
    const std::uint64_t bad_rank = !bears && random.below(2) == 0 ? random.below(o.rank.world_size) : UINT64_MAX;
    const std::uint64_t step_samples = o.batch * o.rank.world_size;
    const std::uint64_t end = o.take_batches == 0 ? n : std::min(n, o.take_batches * step_samples);
    const std::uint64_t bad_request = random.below(20);
    const bool cut = random.below(2) == 0;
    seen.what.tell([&] {
      return std::to_string(o.rank.world_size) + " ranks, batches of " + std::to_string(o.batch) + ", " +
             part_text(o, most, concurrent) +
             (bad_rank == UINT64_MAX ? "" : ", request " + std::to_string(bad_request) + " of rank " +
                                                std::to_string(bad_rank) + (cut ? " is answered short" : " fails"));
    });
    std::vector<trained> ranks(o.rank.world_size);
    std::size_t common = SIZE_MAX;  // batches that all have taken
    bool failed = false;
    for (o.rank.index = 0; o.rank.index < o.rank.world_size; ++o.rank.index) {
      trained& mine = ranks[o.rank.index];
      std::shared_ptr<const storage> store = data.store;
      if (o.rank.index == bad_rank) {
        store = std::make_shared<faulty_store>(store, bad_request, cut);
      }
      stream<sample> samples = data.open(store, o);
      if (concurrent) {
        samples = std::move(samples) | map_concurrent(work(random.next()), {.limit = 1 + random.below(6)});
      }
      testing::virtual_loop loop(random.next());
      stream<std::vector<sample>> batches = std::move(samples) | batch(o.batch);
      try {
        block_on(loop, train(std::move(batches), o.batch, most, end, mine, many != nullptr));
      } catch (const io_error&) {
        require(o.rank.index == bad_rank, "a fault where there was none");
        failed = true;
      }
      common = std::min(common, mine.batches.size());
    }
    ++(failed ? seen.faults : seen.stops);
    seen.what.tell([&] {
      std::string text = "-> batches of each rank:";
      for (const trained& mine : ranks) text += " " + std::to_string(mine.batches.size());
      return text + (failed ? "; one met its fault" : "") + "; all have " + place_of(ranks.front().states[common]);
    });
    // Batch by batch: all ranks' states are what counting says, and every position comes once, in one epoch's order.
    for (std::size_t b = 0; b <= common; ++b) {
      if (b > 0) {
        if (at.position >= end) {  // more had been taken than this world takes of an epoch
          at.position = 0;
          ++at.epoch;
        }
        const order_step step = step_at(end, at.position, o.batch, o.rank.world_size);
        std::uint64_t delivered = 0;
        for (const trained& mine : ranks) {
          for (const auto& [position, key] : mine.batches[b - 1]) {
            const auto wrong = [&, p = position] {
              return " in batch " + std::to_string(b - 1) + ": position " + std::to_string(p & UINT32_MAX) +
                     " of epoch " + std::to_string(p >> 32) + ", expected " + std::to_string(step.begin) + " and " +
                     std::to_string(step.count - 1) + " more of epoch " + std::to_string(at.epoch);
            };
            if (position >> 32 != at.epoch) throw std::runtime_error("a sample of another epoch" + wrong());
            if ((position & UINT32_MAX) - step.begin >= step.count) {
              throw std::runtime_error("a sample of another step" + wrong());
            }
            require(got.emplace(position, key).second, "position " + std::to_string(position) + " came twice");
            ++delivered;
          }
        }
        require(delivered == step.count, "the step of batch " + std::to_string(b - 1) + " has " +
                                             std::to_string(delivered) + " of " + std::to_string(step.count) +
                                             " samples");
        seen.samples += delivered;
        at.position += step.count;
        if (at.position == end) {
          at.position = 0;
          ++at.epoch;
        }
      }
      for (const trained& mine : ranks) {
        epoch_state says = epoch_state::parse(mine.states[b]);
        says.holes.clear();  // each rank knows its own
        require(says == at, "another state after " + std::to_string(b) + " batches\n    expected: " + at.text() +
                                "\n    got:      " + mine.states[b]);
        require(bears || mine.states[b] == at.text(), "a state of losses where there were none");
      }
      ++seen.states;
    }
    state = ranks.front().states[common];
    if (at.epoch != o.first_epoch + o.epochs) continue;
    if (!failed && most == SIZE_MAX) {
      for (const trained& mine : ranks) {
        require(mine.ended && mine.batches.size() == common, "ranks have unequally many batches");
      }
    }
    break;
  }
  for (std::uint64_t e = o.first_epoch; e < o.first_epoch + o.epochs; ++e) {
    names keys = data.order(o, e);
    names delivered;
    for (auto found = got.find(e << 32); found != got.end() && found->first == (e << 32 | delivered.size());) {
      delivered.push_back(std::move(found->second));
      found = got.erase(found);
    }
    require(delivered.size() == keys.size() || (o.take_batches != 0 && delivered.size() < keys.size()),
            "epoch " + std::to_string(e) + " has " + std::to_string(delivered.size()) + " samples, not " +
                std::to_string(keys.size()));
    keys.resize(delivered.size());
    for (std::string& key : keys) {
      if (!bears || key.find(data.lost_keys) == std::string::npos) continue;
      key = "-";
      ++seen.holes;
    }
    require_same(delivered, keys, "epoch " + std::to_string(e) + " is not in the canonical order");
  }
  require(got.empty(), "there are more samples than the epochs have");
  data.store->delay_us = 0;
  data.store->bad.clear();
  require(data.store->busy == 0, "requests were left behind");
}

/// The formula of a mix: from any position on, any ranks take the places of the one order, each once.
void formula_case(rng& random, tally& seen) {
  std::vector<std::uint64_t> weights(1 + random.below(4));
  std::vector<std::uint64_t> sizes(weights.size());
  for (std::uint64_t& w : weights) w = 1 + random.below(9);
  for (std::uint64_t& s : sizes) s = 1 + random.below(120);
  const std::uint64_t tracks = weights.size() + random.below(30);
  const mix_until ends[] = {mix_until::first_end, mix_until::last_end, mix_until::forever};
  const sample_mix whole(weights, sizes, tracks, ends[random.below(3)]);
  const std::uint64_t n = std::min<std::uint64_t>(whole.size(), 400);
  seen.what.tell([&] {
    std::string text = "the formula of a mix: " + std::to_string(tracks) + " tracks, weights and sizes";
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      text += " " + std::to_string(weights[i]) + "/" + std::to_string(sizes[i]);
    }
    return text;
  });
  std::vector<std::uint64_t> next(sizes.size(), 0);  // of each dataset
  for (std::uint64_t g = 0; g < n;) {
    const std::uint64_t world = 1 + random.below(5);
    const std::uint64_t size = 1 + random.below(7);
    const sample_mix again(weights, sizes, tracks, mix_until::forever);  // what a resumed process makes
    seen.what.tell([&] {
      return "from position " + std::to_string(g) + " on: " + std::to_string(world) + " ranks, batches of " +
             std::to_string(size);
    });
    for (std::uint64_t steps = 1 + random.below(9); steps > 0 && g < n; --steps) {
      const order_step step = step_at(n, g, size, world);
      std::map<std::uint64_t, sample_mix::place> taken;
      for (std::uint64_t r = 0; r < world; ++r) {
        for (const std::uint64_t p : rank_share(tracks, r, world).positions(step)) {
          require(taken.emplace(p, again.at(p)).second, "two ranks take one position of the mix");
        }
      }
      require(taken.size() == step.count, "positions of the mix are left out");
      for (const auto& [position, place] : taken) {
        require(position == g++ && place == whole.at(position), "the mix has another order after a resume");
        require(place.epoch * sizes[place.dataset] + place.position == next[place.dataset]++,
                "a dataset of the mix loses its place");
      }
      seen.samples += step.count;
    }
    ++seen.stops;
  }
}

task<void> take_keys(stream<sample> in, std::vector<names>& epochs_keys, std::uint64_t first) {
  while (std::optional<sample> s = co_await in.next()) {
    epochs_keys.resize(std::max<std::size_t>(epochs_keys.size(), s->mark.epoch - first + 1));
    epochs_keys[s->mark.epoch - first].push_back(s->key);
  }
}

/// Without an index: shards are dealt whole, samples shuffled in a window. A training goes on at an epoch's beginning.
void listed_case(const tar_dataset& data, rng& random, tally& seen) {
  data.store->delay_us = random.below(3) * 500;
  const std::uint64_t shards_there = data.indexes->size();
  shard_epochs_options o{.seed = random.below(1000), .epochs = 3, .first_epoch = random.below(3)};
  o.rank.world_size = static_cast<std::uint32_t>(1 + random.below(std::min<std::uint64_t>(shards_there, 2)));
  o.uneven = true;
  const std::size_t window = 1 + random.below(20);
  seen.what.tell([&] {
    return "shards dealt: " + text_of(data) + ", seed " + std::to_string(o.seed) + ", 3 epochs from " +
           std::to_string(o.first_epoch) + " on, " + std::to_string(o.rank.world_size) + " ranks, a window of " +
           std::to_string(window);
  });
  const auto keys_of = [&](shard_epochs_options part) {
    std::vector<shard> list;
    for (const auto& [url, content] : data.store->objects) list.emplace_back(url, content.size());
    std::reverse(list.begin(), list.end());
    stream<sample> in = shard_epochs(from_range(std::move(list)), part) |
                        fetch(std::shared_ptr<const storage>(data.store)) |
                        untar_plain() | group_samples() | shuffle({.window = window});
    testing::virtual_loop loop(random.next());
    std::vector<names> keys;
    block_on(loop, take_keys(std::move(in), keys, part.first_epoch));
    keys.resize(part.epochs);
    return keys;
  };
  std::vector<std::map<std::string, std::uint64_t>> times(3);
  for (o.rank.index = 0; o.rank.index < o.rank.world_size; ++o.rank.index) {
    const std::vector<names> whole = keys_of(o);
    const std::uint64_t split = random.below(4);  // epochs before the stop
    seen.what.tell([&] {
      return "rank " + std::to_string(o.rank.index) + " is stopped after " + std::to_string(split) + " epochs";
    });
    shard_epochs_options part = o;
    part.epochs = split;
    std::vector<names> both = keys_of(part);
    part.epochs = 3 - split;
    part.first_epoch = o.first_epoch + split;
    for (names& later : keys_of(part)) both.push_back(std::move(later));
    require(both.size() == whole.size(), "there are more epochs after a stop");
    for (std::size_t e = 0; e < whole.size(); ++e) {
      require_same(both[e], whole[e], "epoch " + std::to_string(o.first_epoch + e) + " of rank " +
                                          std::to_string(o.rank.index) + " has another order after a stop");
    }
    for (std::size_t e = 0; e < 3; ++e) {
      for (const std::string& key : whole[e]) require(++times[e][key] == 1, key + " came twice");
    }
    ++seen.stops;
  }
  for (const auto& epoch : times) {
    require(epoch.size() == data.indexes->samples(), "an epoch without an index lacks samples");
    seen.samples += epoch.size();
  }
  data.store->delay_us = 0;
}

/// The order without an index, by its rule, from what the index knows of the shards: the keys of a rank's epoch.
/// `whole`: how many samples of a shard can be had.
names keys_by_rule(const tar_dataset& data, const test::settings& o, std::uint64_t epoch,
                   const std::vector<shard>& list, const std::map<std::uint64_t, std::uint64_t>& whole) {
  struct held_sample {
    std::string key;
    std::uint64_t bytes;
  };
  std::vector<std::vector<held_sample>> shards;
  const shard_deal deal(list, o.seed, epoch, o.rank.world_size);
  for (const std::size_t n : deal.of_rank(o.rank.index)) {
    shards.emplace_back();
    const shard_index& index = (*data.indexes)[n];
    const auto known = whole.find(n);
    const std::size_t count = known == whole.end() ? index.samples() : static_cast<std::size_t>(known->second);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t bytes = (index.end(i) - index.offset(i) + 511) / 512 * 512;
      shards.back().push_back({"s" + std::to_string(n) + "/" + std::to_string(i), bytes});
    }
    std::reverse(shards.back().begin(), shards.back().end());
  }
  std::vector<std::vector<held_sample>*> open;
  std::size_t opened = std::min(o.shards, shards.size());
  for (std::size_t i = 0; i < opened; ++i) open.push_back(&shards[i]);
  std::vector<held_sample> window;
  std::size_t turn = 0;
  names out;
  const auto pull = [&] {
    while (!open.empty() && open[turn]->empty()) {
      if (opened < shards.size()) {
        open[turn] = &shards[opened++];
      } else {
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(turn));
        if (turn == open.size()) turn = 0;
      }
    }
    if (open.empty()) return;
    window.push_back(open[turn]->back());
    open[turn]->pop_back();
    turn = (turn + 1) % open.size();
  };
  for (;;) {
    for (int pulls = 0; !open.empty(); ++pulls) {
      std::uint64_t bytes = 0;
      for (const held_sample& s : window) bytes += s.bytes;
      const bool first = out.empty() && window.size() < o.window / 10 && bytes < o.window_bytes / 10;
      const bool room = window.size() < o.window && bytes < o.window_bytes && (out.empty() ? first : pulls < 2);
      if (window.size() >= 2 && !room) break;
      pull();
    }
    if (window.empty() || (o.take_batches != 0 && out.size() == o.take_batches * o.batch)) return out;
    sample_rng random(o.seed, epoch, 0, out.size(), purpose::shuffle);
    const auto slot = static_cast<std::size_t>(random.below(std::min(window.size(), o.window)));
    out.push_back(window[slot].key);
    window[slot] = window.back();
    window.pop_back();
  }
}

/// Without an index: each rank goes on from its own state, and says the states that it would have said.
void window_case(const tar_dataset& data, rng& random, tally& seen) {
  data.store->delay_us = random.below(3) * 500;
  const std::uint64_t shards_there = data.indexes->size();
  test::settings o{.seed = random.below(1000), .epochs = 1 + random.below(3), .first_epoch = random.below(3)};
  o.streamed = true;
  o.uneven = true;
  o.rank.world_size = static_cast<std::uint32_t>(1 + random.below(std::min<std::uint64_t>(shards_there, 3)));
  o.batch = 1 + random.below(7);
  o.shards = 1 + random.below(4);
  o.window = 1 + random.below(40);
  o.window_bytes = random.below(3) == 0 ? 1 + random.below(40000) : GiB;
  o.take_batches = random.below(6) == 0 ? 1 + random.below(6) : 0;
  const bool says_sizes = random.below(2) == 0;
  const bool says_etags = random.below(2) == 0;
  std::map<std::uint64_t, std::uint64_t> whole;  // of a shard that is broken
  const std::uint64_t broken = random.below(shards_there);
  const std::string broken_url = "mem:" + std::to_string(100 + broken) + ".tar";
  const std::string as_it_was = data.store->objects.at(broken_url);
  const shard_index& of_broken = (*data.indexes)[static_cast<std::size_t>(broken)];
  if (random.below(4) == 0 && of_broken.samples() != 0) {
    o.failures = {.then = on_failure::skip, .report = false};
    const std::uint64_t at = random.below(of_broken.samples());
    // The first header of a sample is damaged: those before it are whole.
    data.store->objects[broken_url][static_cast<std::size_t>(of_broken.offset(static_cast<std::size_t>(at))) + 3] ^= 1;
    whole[broken] = at == 0 ? 0 : at - 1;  // the one before may not have been whole
  }
  seen.what.tell([&] {
    return text_of(o) + "; " + text_of(data) + (says_sizes ? ", with sizes" : "") + (says_etags ? ", with ETags" : "") +
           (whole.empty() ? "" : ", " + broken_url + " is broken and tolerated");
  });
  std::vector<shard> list;
  for (const auto& [url, content] : data.store->objects) {
    list.emplace_back(url, says_sizes ? std::optional<std::uint64_t>(content.size()) : std::nullopt,
                      says_etags ? data.store->etag : std::string());
  }
  const auto run = [&](const test::settings& how, std::size_t most, std::shared_ptr<const storage> store, bool slow) {
    trained out;
    std::vector<shard> shuffled = list;
    permute(shuffled, random);
    stream<sample> samples = test::train_on(from_range(std::move(shuffled)), store, how);
    if (slow) samples = std::move(samples) | map_concurrent(work(random.next()), {.limit = 1 + random.below(6)});
    testing::virtual_loop loop(random.next());
    try {
      block_on(loop, train(std::move(samples) | batch(how.batch), how.batch, most, UINT64_MAX, out));
    } catch (const io_error&) {
      ++seen.faults;
      require(store != data.store, "a fault where there was none");
    }
    return out;
  };
  std::map<std::string, std::uint64_t> times;
  for (o.rank.index = 0; o.rank.index < o.rank.world_size; ++o.rank.index) {
    const trained all = run(o, SIZE_MAX, data.store, false);
    require(all.ended, "a training does not end");
    names keys;
    for (std::uint64_t e = o.first_epoch; e < o.first_epoch + o.epochs; ++e) {
      const names by_rule = keys_by_rule(data, o, e, list, whole);
      for (const std::string& key : by_rule) keys.push_back(std::to_string(e) + ":" + key);
      keys.resize((keys.size() + o.batch - 1) / o.batch * o.batch, "-");
    }
    names got;
    for (const auto& b : all.batches) {
      for (const auto& [at, key] : b) got.push_back(key == "-" ? key : std::to_string(at >> 32) + ":" + key);
    }
    require_same(got, keys, "rank " + std::to_string(o.rank.index) + ": the order is not that of the rule");
    for (const std::string& key : got) require(key == "-" || ++times[key] == 1, key + " came twice");
    seen.samples += got.size();
    std::size_t done = 0;  // batches
    for (std::string state; done < all.batches.size() || state.empty();) {
      test::settings how = o;
      how.ahead = 1 + random.below(60);
      how.bytes = 1 + random.below(MiB);
      how.requests = 1 + random.below(20);
      how.part = 1 + random.below(random.below(2) == 0 ? 3000 : MiB);
      how.gap = random.below(3000);
      how.resume = state;
      std::shared_ptr<const storage> store = data.store;
      std::string fault;
      if (random.below(3) == 0) {
        const std::uint64_t bad_request = random.below(30);
        const bool cut = random.below(2) == 0;
        store = std::make_shared<faulty_store>(store, bad_request, cut);
        fault = ", request " + std::to_string(bad_request) + (cut ? " is answered short" : " fails");
        how.failures = {};
        if (!whole.empty()) {
          store = data.store;
          how.failures = o.failures;
          fault = "";
        }
      }
      const std::size_t most = random.below(4) == 0 ? SIZE_MAX : 1 + random.below(12);
      const bool slow = random.below(3) == 0;
      seen.what.tell([&] {
        return "rank " + std::to_string(o.rank.index) + ", batch " + std::to_string(done) + " and on: " +
               part_text(how, most, slow) + fault;
      });
      const trained part = run(how, most, store, slow);
      seen.what.tell([&] {
        return "-> " + std::to_string(part.batches.size()) + " batches, " + place_of(part.states.back());
      });
      require(done + part.batches.size() <= all.batches.size(), "there is more after a resume");
      for (std::size_t b = 0; b <= part.batches.size(); ++b) {
        const std::string which = std::to_string(done + b);
        if (b > 0) require_same(part.batches[b - 1], all.batches[done + b - 1], "batch " + which + " after a resume");
        require(part.states[b] == all.states[done + b], "another state after " + which + " batches\n    expected: " +
                                                            all.states[done + b] + "\n    got:      " + part.states[b]);
        ++seen.states;
      }
      done += part.batches.size();
      state = part.states.back();
      require(state.size() < 900 + 16 * o.window, "a state is too long: " + state);
      ++seen.stops;
      ++seen.window_stops;
    }
  }
  data.store->objects[broken_url] = as_it_was;
  data.store->delay_us = 0;
  require(data.store->busy == 0, "requests were left behind");
}

void run_case(std::uint64_t seed, std::uint64_t c, world_of_data& all, tally& seen) {
  rng random(seed, 0, c);
  const tar_dataset& data = all.of(seed, c / 64);
  if (c % 16 == 7) {
    formula_case(random, seen);
  } else if (c % 16 == 6) {
    listed_case(data, random, seen);
  } else if (c % 8 == 1) {
    window_case(data, random, seen);
  } else {
    const bool mix = c % 8 == 4 || c % 16 == 13;
    const std::uint64_t before = seen.states;
    indexed_case(data, mix ? &all.several_of(seed, c / 64) : nullptr, random, seen);
    if (mix) seen.mix_states += seen.states - before;
  }
}

/// What is said of a case that has failed. It is run once more, from the beginning, and tells what it does.
std::string report(std::uint64_t seed, std::uint64_t c, const std::string& what) {
  world_of_data fresh;
  tally seen;
  seen.what = story(story::to::text);
  std::string again = "nothing: it passed";
  try {
    run_case(seed, c, fresh, seen);
  } catch (const std::exception& e) {
    again = e.what();
  }
  const std::string number = std::to_string(c);
  std::error_code unknown;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", unknown).string();
  return "case " + number + " of seed " + std::to_string(seed) + ": " + what + "\n" + seen.what.text() +
         (again == what ? "" : "  run once more it said: " + again + "\n") +
         "alone: MILLRACE_PROPERTY_SEED=" + std::to_string(seed) + " MILLRACE_PROPERTY_FIRST=" + number +
         " MILLRACE_PROPERTY_CASES=1 " + (program.empty() ? "test_train" : program) +
         " \"a training that is stopped*\"";
}

}  // namespace

TEST_CASE(
    "a training that is stopped anywhere goes on with the very next sample, in any world, and says the same states",
    "[slow]") {
  // Sanitizers look for other things, and take ten times as long.
  const std::uint64_t cases = setting("MILLRACE_PROPERTY_CASES", MILLRACE_ASAN || MILLRACE_TSAN ? 600 : 6000);
  const std::uint64_t seed = setting("MILLRACE_PROPERTY_SEED", 1);
  const std::uint64_t first = setting("MILLRACE_PROPERTY_FIRST", 0);
  world_of_data all;
  tally seen;
  if (cases == 1) seen.what = story(story::to::standard_output);
  for (std::uint64_t c = first; c < first + cases; ++c) {
    try {
      run_case(seed, c, all, seen);
    } catch (const std::exception& e) {
      // Not by Catch2, which breaks lines.
      std::fprintf(stderr, "\n%s\n\n", report(seed, c, e.what()).c_str());
      FAIL("case " << c << " of seed " << seed << " (see above): " << e.what());
    }
  }
  if (cases >= 1000) {
    CHECK(seen.stops > cases);
    CHECK(seen.faults > cases / 4);
    CHECK(seen.other_worlds > cases / 2);
    CHECK(seen.window_stops > cases / 3);
    CHECK(seen.states > 4 * cases);
    CHECK(seen.holes > cases);
    CHECK(seen.mix_states > cases);
  }
  if (std::getenv("MILLRACE_PROPERTY_CASES") != nullptr) {
    std::printf(
        "seed %llu: %llu cases from %llu on, %llu stops, %llu faults, %llu times in another world, "
        "%llu states, %llu of them of mixes, %llu samples, %llu holes, %llu stops without an index\n",
        static_cast<unsigned long long>(seed), static_cast<unsigned long long>(cases),
        static_cast<unsigned long long>(first), static_cast<unsigned long long>(seen.stops),
        static_cast<unsigned long long>(seen.faults), static_cast<unsigned long long>(seen.other_worlds),
        static_cast<unsigned long long>(seen.states), static_cast<unsigned long long>(seen.mix_states),
        static_cast<unsigned long long>(seen.samples),
        static_cast<unsigned long long>(seen.holes), static_cast<unsigned long long>(seen.window_stops));
  }
}
