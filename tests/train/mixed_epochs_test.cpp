// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/dataset.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/order/epoch_fingerprint.hpp>
#include <millrace/order/epoch_state.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using test::dataset_mix;
using test::tar_dataset;

namespace {

using names = std::vector<std::string>;

/// Three data sets in one store, of 60, 25 and 7 samples.
class corpora {
 public:
  const std::shared_ptr<test::dataset_store> store = std::make_shared<test::dataset_store>(1);
  const tar_dataset web{{30, 0, 18, 12}, 300, 1, "web/", store};
  const tar_dataset books{{5, 20}, 300, 2, "books/", store};
  const tar_dataset notes{{7}, 300, 3, "notes/", store};
  const std::vector<const tar_dataset*> all{&web, &books, &notes};

  dataset_mix mixed(const std::vector<std::uint64_t>& weights, mix_until until, std::uint64_t samples = 0) const {
    dataset_mix mix{{}, until, samples};
    for (std::size_t d = 0; d < weights.size(); ++d)
      mix.members.push_back({all[d]->indexes, weights[d], all[d]->prefix});
    return mix;
  }
  stream<sample> open(const dataset_mix& mix, const test::settings& o) const {
    return test::train_on(mix, std::shared_ptr<const storage>(store), o);
  }
};

/// What a rank got, by epoch and position: number of the data set, round and key; and how many batches in each epoch.
class seen {
 public:
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> samples;
  std::map<std::uint64_t, std::uint64_t> batches;
  std::uint64_t padding = 0;
  std::map<std::pair<std::uint32_t, std::uint64_t>, epoch_fingerprint> rounds;
  std::vector<std::string> states;  // after each batch
};

/// `sets`: the members' data.
task<void> take(stream<sample> in, std::size_t batch, const std::vector<const tar_dataset*>& sets, std::size_t most,
                seen& out) {
  const std::shared_ptr<const stream_position> position = in.position();
  epoch_mark mark;
  for (std::size_t n = 0; n < most * batch; ++n) {
    const std::optional<sample> s = co_await in.next();
    if (!s) break;
    mark.join(s->mark);
    if ((n + 1) % batch == 0) {
      ++out.batches[s->mark.epoch];
      out.states.push_back(position->state(mark));
    }
    if (s->weight() == 0) {
      ++out.padding;
      continue;
    }
    const std::uint32_t d = s->from.from->dataset;
    const std::uint64_t round = s->from.from->epoch;
    const std::string text = std::to_string(d) + "/" + std::to_string(round) + ":" + s->key;
    CHECK(out.samples.emplace(std::pair(s->mark.epoch, s->mark.position), text).second);
    CHECK((*s)["txt"].view() == s->key);
    const index_set& indexes = *sets[d]->indexes;
    const auto number = indexes.find(s->from.url().substr(sets[d]->prefix.size()));
    REQUIRE(number.has_value());
    out.rounds[{d, round}].add({*number, s->from.ordinal}, round);
  }
}

seen taken(const corpora& data, const dataset_mix& mix, const test::settings& o, std::size_t most = 100000) {
  testing::virtual_loop loop(o.seed);
  std::vector<const tar_dataset*> sets;
  for (const dataset_mix::member& m : mix.members) {
    sets.push_back(*std::find_if(data.all.begin(), data.all.end(), [&](auto* d) { return d->indexes == m.indexes; }));
  }
  seen out;
  block_on(loop, take(data.open(mix, o), o.batch, sets, most, out));
  return out;
}

/// All ranks together.
seen seen_of(const corpora& data, const dataset_mix& mix, test::settings o) {
  seen all;
  for (o.rank.index = 0; o.rank.index < o.rank.world_size; ++o.rank.index) {
    seen one = taken(data, mix, o);
    if (o.rank.index == 0) all.batches = one.batches;
    CHECK(one.batches == all.batches);
    for (const auto& [at, text] : one.samples) CHECK(all.samples.emplace(at, text).second);
    for (const auto& [at, print] : one.rounds) all.rounds[at] += print;
    all.padding += one.padding;
  }
  return all;
}

std::string refusal(const corpora& data, const dataset_mix& mix, const test::settings& o) {
  try {
    static_cast<void>(data.open(mix, o));
  } catch (const configuration_error& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a mix of indexed data sets has one order, whose weights are exact, for any number of ranks") {
  const corpora data;
  const dataset_mix mix = data.mixed({6, 3, 1}, mix_until::last_end);
  test::settings o{.seed = 7, .epochs = 3, .first_epoch = 1, .batch = 4, .tracks = 20, .slice = 4};
  names wanted;
  for (std::uint64_t e = 1; e < 4; ++e) {
    for (std::string& key : test::order_of_mix(mix, data.all, o, e)) wanted.push_back(std::move(key));
  }
  for (const std::uint32_t world : {1U, 2U, 3U, 5U, 30U}) {
    o.rank.world_size = world;
    const seen all = seen_of(data, mix, o);
    names got;
    for (const auto& [at, text] : all.samples) got.push_back(text);
    CHECK(got == wanted);
    const std::uint64_t steps = (wanted.size() / 3 + 4 * world - 1) / (4 * world);
    CHECK(all.batches == std::map<std::uint64_t, std::uint64_t>{{1, steps}, {2, steps}, {3, steps}});
    CHECK(all.padding == 3 * steps * 4 * world - wanted.size());
    CHECK(data.open(mix, o).position()->batches() == steps);
  }
  for (std::size_t at = 0; at + 20 <= wanted.size() / 3; ++at) {  // any 20 in a row of an epoch
    std::map<char, int> of;
    for (std::size_t i = at; i < at + 20; ++i) ++of[wanted[i].front()];
    CHECK(of == std::map<char, int>{{'0', 12}, {'1', 6}, {'2', 2}});
  }
}

TEST_CASE("where none are given, the slices of a mix are those that its states mean: of at most 4 MiB") {
  const auto store = std::make_shared<test::dataset_store>(1);
  const tar_dataset large{{300, 300}, 20000, 1, "large/", store};
  const std::uint64_t fits = large.indexes->slice();
  const std::uint64_t longer = large.indexes->slice(4 * MiB);
  REQUIRE(longer == 2 * fits);
  const dataset_mix mix{{{large.indexes, 1, large.prefix}}, mix_until::first_end, 0};
  test::settings o{.seed = 7, .epochs = 1, .batch = 4, .tracks = 2};
  const auto keys = [&](std::uint64_t slice) {
    o.slice = slice;
    names got;
    const auto all = test::delivered_by(test::train_on(mix, std::shared_ptr<const storage>(store), o), 4);
    for (const auto& [at, key] : all.samples) got.push_back(key);
    return got;
  };
  const names unsaid = keys(0);
  CHECK(unsaid == keys(longer));
  CHECK(unsaid != keys(fits));
}

TEST_CASE("a member's seed changes the order of that member, and of no other") {
  const corpora data;
  const test::settings o{.seed = 7, .epochs = 1, .batch = 4, .tracks = 20, .slice = 4};
  const dataset_mix plain = data.mixed({6, 3, 1}, mix_until::last_end);
  dataset_mix seeded = plain;
  seeded.members[1].seed = 5;
  const auto keys = [&](const dataset_mix& mix) {
    names got;
    for (const auto& [at, text] : seen_of(data, mix, o).samples) got.push_back(text);
    return got;
  };
  const names before = keys(plain);
  const names after = keys(seeded);
  CHECK(after == test::order_of_mix(seeded, data.all, o, 0));
  REQUIRE(before.size() == after.size());
  std::size_t others = 0;
  std::size_t moved = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    others += before[i] != after[i] && before[i][0] != '1';
    moved += before[i] != after[i] && before[i][0] == '1';
  }
  CHECK(others == 0);
  CHECK(moved > 5);
}

TEST_CASE("an epoch of a mix ends with the first data set, with the last one, or at a length") {
  const corpora data;
  test::settings o{.seed = 3, .epochs = 4, .batch = 5, .tracks = 10, .slice = 4};
  const auto counts = [&](const dataset_mix& mix) {  // of an epoch, by data set
    std::vector<std::map<char, int>> epochs(4);
    for (const auto& [at, text] : seen_of(data, mix, o).samples) ++epochs.at(at.first)[text.front()];
    CHECK(std::count(epochs.begin(), epochs.end(), epochs.front()) == 4);  // all alike
    return epochs.front();
  };
  // 7 samples at weight 1 end first, 60 at weight 6 last.
  const std::map<char, int> first = counts(data.mixed({6, 3, 1}, mix_until::first_end));
  CHECK(first.at('2') == 7);
  CHECK(first.at('1') <= 25);
  CHECK(first.at('0') < 60);
  const std::map<char, int> last = counts(data.mixed({6, 3, 1}, mix_until::last_end));
  CHECK(last.at('0') == 60);
  CHECK(last.at('1') > 25);
  CHECK(last.at('2') > 7);
  CHECK(counts(data.mixed({6, 3, 1}, mix_until::forever, 40)) == std::map<char, int>{{'0', 24}, {'1', 12}, {'2', 4}});
}

TEST_CASE("every sample comes once in each round of its data set, and the fingerprints of all ranks prove it") {
  const corpora data;
  const dataset_mix mix = data.mixed({6, 3, 1}, mix_until::forever, 130);
  test::settings o{
      .seed = 11, .epochs = 5, .batch = 3, .rank = {.index = 0, .world_size = 3}, .tracks = 20, .slice = 4};
  const seen all = seen_of(data, mix, o);
  std::map<std::uint32_t, std::uint64_t> complete;
  for (const auto& [at, print] : all.rounds) {
    const shard_counts& counts = *data.all[at.first]->indexes->counts();
    if (print.samples() < counts.samples()) continue;  // the one that the training ended in
    CHECK(verify_epoch(counts, at.second, print) == "");
    ++complete[at.first];
  }
  CHECK(complete == std::map<std::uint32_t, std::uint64_t>{{0, 6}, {1, 7}, {2, 9}});  // of 390, 195 and 65 samples
}

TEST_CASE("a training over a mix resumes after any batch, in another world, with the states of one that was not") {
  const corpora data;
  const dataset_mix mix = data.mixed({5, 2, 2}, mix_until::last_end);
  test::settings o{.seed = 5, .epochs = 3, .batch = 6, .tracks = 18, .slice = 3};
  const seen whole = taken(data, mix, o);
  for (std::size_t stop = 1; stop < whole.states.size(); stop += 5) {
    CHECK(whole.states[stop].size() < 300);
    test::settings on = o;
    on.resume = whole.states[stop];
    on.batch = 2;
    on.rank.world_size = 3;
    const seen rest = seen_of(data, mix, on);
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> both = taken(data, mix, o, stop + 1).samples;
    for (const auto& [at, text] : rest.samples) CHECK(both.emplace(at, text).second);
    CHECK(both == whole.samples);
  }
}

TEST_CASE("a state of another mix is refused, and what is another is named") {
  const corpora data;
  const dataset_mix mix = data.mixed({3, 1}, mix_until::last_end);
  test::settings o{.seed = 5, .epochs = 3, .batch = 4, .tracks = 12, .slice = 4};
  const std::string state = taken(data, mix, o, 3).states.back();
  o.resume = state;
  CHECK(refusal(data, mix, o) == "none");
  const auto ends = [](const std::string& text, const std::string& end) {
    INFO(text);
    CHECK(text.size() > end.size());
    CHECK(text.substr(text.size() - std::min(end.size(), text.size())) == end);
  };
  ends(refusal(data, data.mixed({4, 1}, mix_until::last_end), o),
       "of another order: the weight of data set 0 (mem:web/) was 3 and is 4");
  ends(refusal(data, data.mixed({3, 1}, mix_until::first_end), o),
       "the end of its epochs was last_end and is first_end");
  ends(refusal(data, data.mixed({3, 1}, mix_until::forever, 50), o),
       "the end of its epochs was last_end and is forever=50");
  ends(refusal(data, data.mixed({3, 1, 1}, mix_until::last_end), o), "the number of its data sets was 2 and is 3");
  dataset_mix other = mix;
  other.members[1].indexes = data.notes.indexes;
  ends(refusal(data, other, o), "the index (digest) of data set 1 (mem:books/) was " +
                                    data.books.indexes->digest().text().substr(0, 8) + " and is " +
                                    data.notes.indexes->digest().text().substr(0, 8));
  other = mix;
  other.members[1].seed = 9;
  ends(refusal(data, other, o), "the seed of data set 1 (mem:books/) was 0 and is 9");
  for (const bool at_end : {false, true}) {  // the rounds run on, so also at an epoch's beginning
    epoch_state s = epoch_state::parse(state);
    if (at_end) s.position = 0;
    const std::string text = s.text();
    test::settings changed = o;
    changed.resume = text;
    changed.seed = 6;
    ends(refusal(data, mix, changed), "its seed was 5 and is 6");
    changed = o;
    changed.resume = text;
    changed.tracks = 16;
    ends(refusal(data, mix, changed), "its number of tracks was 12 and is 16");
    changed = o;
    changed.resume = text;
    changed.slice = 0;
    ends(refusal(data, mix, changed), "its slice was 4 and is 0");
  }
  // A state of one data set is none of a mix, and the other way round.
  CHECK_THROWS_AS(test::train_on(data.web.indexes, std::shared_ptr<const storage>(data.store),
                         {.seed = 5, .tracks = 12, .slice = 4, .prefix = "mem:web/", .resume = state}),
                  configuration_error);
  test::settings plain{.seed = 5, .epochs = 3, .tracks = 12, .slice = 4, .prefix = "mem:web/"};
  const std::string of_one = data.web.open(plain).position()->state(epoch_mark());
  plain.resume = of_one;
  ends(refusal(data, mix, plain), "its training was one data set and is a mix of data sets");
}

TEST_CASE("a mix of very many data sets has a short state, and refuses another one") {
  const corpora data;
  dataset_mix mix;
  for (std::uint64_t i = 0; i < 500; ++i) mix.members.push_back({data.notes.indexes, 1 + i % 7, "mem:notes/", i});
  mix.until = mix_until::forever;
  mix.samples = 1000;
  test::settings o{.seed = 5, .epochs = 3, .batch = 4, .tracks = 2000, .slice = 4};
  const std::string state = taken(data, mix, o, 3).states.back();
  CHECK(state.size() < 300);
  o.resume = state;
  CHECK(refusal(data, mix, o) == "none");
  mix.members[250].weight += 1;
  CHECK(refusal(data, mix, o).find("its mix (digest) was 500=") != std::string::npos);
}

TEST_CASE("a mix that cannot be is refused before anything is read, and the data set is named") {
  const corpora data;
  const test::settings o{.tracks = 12};
  CHECK(refusal(data, {}, o) == "dataset: a mix has no members");
  CHECK(refusal(data, data.mixed({3, 0}, mix_until::last_end), o) ==
        "dataset: member 1 (mem:books/) of the mix has the weight 0");
  dataset_mix mix = data.mixed({3, 1}, mix_until::last_end);
  mix.members[0].indexes = std::make_shared<const index_set>(std::vector<shard_index>());
  CHECK(refusal(data, mix, o) == "epochs: data set 0 (mem:web/) of the mix has no samples");
  mix = data.mixed({3, 1}, mix_until::last_end);
  mix.members[1].prefix = "elsewhere:";
  CHECK(refusal(data, mix, o).find("elsewhere:100.tar: no store is configured") != std::string::npos);
  CHECK(refusal(data, data.mixed({3, 1}, mix_until::forever), o) ==
        "epochs: a mix with mix_until::forever must say how many .samples an epoch has");
  CHECK(refusal(data, data.mixed({3, 1}, mix_until::last_end, 5), o).find("has no other length") != std::string::npos);
  CHECK(refusal(data, data.mixed({3, 1, 1}, mix_until::last_end), {.tracks = 2}) ==
        "a mix of 3 datasets needs as many tracks; there are 2");
  CHECK(data.store->requests == 0);
}

TEST_CASE("what cannot be read of a mix is an error with the object, or an empty place and a loss of that shard") {
  const corpora data;
  const dataset_mix mix = data.mixed({1, 1}, mix_until::first_end);
  test::settings o{.seed = 2, .epochs = 2, .batch = 5, .tracks = 10, .slice = 4};
  const seen whole = taken(data, mix, o);
  data.store->bad["mem:books/101.tar"] = test::harm::missing;
  try {
    taken(data, mix, o);
    FAIL("nothing was thrown");
  } catch (const io_error& e) {
    CHECK(std::string(e.what()).find("mem:books/101.tar") != std::string::npos);
  }
  o.failures = {.then = on_failure::skip, .report = false};
  const seen rest = taken(data, mix, o);
  std::size_t lost = 0;
  for (const auto& [at, text] : whole.samples) {
    const auto found = rest.samples.find(at);
    const bool bad = text.find("books/s1/") != std::string::npos;
    CHECK((found == rest.samples.end()) == bad);
    if (!bad) CHECK(found->second == text);
    lost += bad ? 1 : 0;
  }
  CHECK(lost > 30);
  // Shard 5 of all: there are four of the other data set.
  CHECK(epoch_state::parse(rest.states.back()).holes == std::map<std::uint64_t, std::uint64_t>{{5, lost}});
}

TEST_CASE("no more is read of a mix than its epochs take, though its data sets run on") {
  const corpora data;
  dataset_mix mix;  // an epoch takes all 7 of one, and as many of the 60
  for (const tar_dataset* d : {&data.notes, &data.web}) mix.members.push_back({d->indexes, 1, d->prefix});
  mix.until = mix_until::first_end;
  test::settings o{.seed = 2, .epochs = 6, .batch = 3, .tracks = 2, .slice = 16, .gap = 0};
  const seen all = seen_of(data, mix, o);
  CHECK(all.samples.size() == 6 * 14);
  std::uint64_t bytes = 0;
  for (const auto& [at, text] : all.samples) {
    const std::size_t number = text.find("/s") + 2;
    const std::size_t ordinal = text.rfind('/') + 1;
    const tar_dataset& of = text[0] == '0' ? data.notes : data.web;
    const shard_index& index = (*of.indexes)[std::stoul(text.substr(number))];
    const std::size_t i = std::stoul(text.substr(ordinal));
    bytes += index.end(i) - index.offset(i);
  }
  CHECK(data.store->read_bytes == bytes);
}

TEST_CASE("a mix says what an epoch of it costs, and of what it is made") {
  const corpora data;
  const test::settings o{.batch = 8, .rank = {.index = 1, .world_size = 2}, .tracks = 20, .slice = 4};
  const std::string plan = data.open(data.mixed({6, 3, 1}, mix_until::forever, 200), o).position()->plan();
  INFO(plan);
  CHECK(plan.substr(0, 9) == "7 shards,");
  CHECK(plan.find(", 200 samples\n13 batches on each of 2 ranks, 8 entries of weight 0\n") != std::string::npos);
  CHECK(plan.find("\ndata set 0 (mem:web/): weight 6, 12 of 20 tracks; 120 samples an epoch, 2.00 times its 60\n") !=
        std::string::npos);
  CHECK(plan.find("\ndata set 2 (mem:notes/): weight 1, 2 of 20 tracks; 20 samples an epoch, 2.86 times its 7\n") !=
        std::string::npos);
}

TEST_CASE("a run over a mix says its batches and its state, and shows what the samples are of") {
  const corpora data;
  const dataset_mix mix = data.mixed({3, 1}, mix_until::last_end);
  const test::settings o{.seed = 5, .epochs = 2, .batch = 8, .tracks = 12, .slice = 4};
  runtime rt;
  auto run = rt.run(data.open(mix, o) | batch(8));
  std::size_t batches = 0;
  std::uint64_t last = 0;
  for (const std::vector<sample>& b : run) {
    ++batches;
    if (b.back().mark.last) ++last;
  }
  REQUIRE(run.batches().has_value());
  CHECK(batches == 2 * *run.batches());
  CHECK(last == 2);
  const epoch_state end = epoch_state::parse(run.state());
  CHECK(end.epoch == 2);
  CHECK(end.mix == "last_end 3:" + data.web.indexes->digest().text().substr(0, 8) +
                       " 1:" + data.books.indexes->digest().text().substr(0, 8));
}
