// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/order/sample_selection.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/failure_of.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::delivered;
using test::delivered_by;
using test::tar_dataset;

namespace {

using test::failure_of;

using numbers = std::vector<std::uint64_t>;
using keys = std::map<std::uint64_t, std::string>;  // by epoch * 2^32 + position
__extension__ typedef unsigned __int128 wide;

// The model: entries of an epoch by counting along everything, without the library's tables.

/// Weights as the documentation says: to 2^-32 of the largest.
numbers rounded(const std::vector<float>& weights) {
  const double largest = *std::max_element(weights.begin(), weights.end());
  numbers out;
  for (const float w : weights) {
    const double exact = double{w} / largest * 4294967295.0;
    out.push_back(w == 0 ? 0 : std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(exact))));
  }
  return out;
}
std::uint64_t sum_of(const numbers& all) {
  std::uint64_t sum = 0;
  for (const std::uint64_t n : all) sum += n;
  return sum;
}
std::uint64_t at_weight(const numbers& weights, std::uint64_t place) {
  std::uint64_t i = 0;
  while (place >= weights[i]) place -= weights[i++];
  return i;
}
numbers with_replacement(const numbers& weights, std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) {
  const std::uint64_t key = detail::mix64(detail::key_of(seed, epoch, 4));
  const std::uint64_t total = sum_of(weights);
  numbers places;
  for (std::uint64_t begin = 0; begin < n; begin += 64) {
    const std::uint64_t end = std::min(begin + 64, n);
    for (std::uint64_t x = begin; x < end; ++x) {
      const wide at = wide{detail::mix64(key ^ x)} * (end - begin);
      const wide whole = begin + (at >> 64);
      const wide part = (at & ~std::uint64_t{0}) * total >> 64;
      places.push_back(static_cast<std::uint64_t>((whole * total + part) / n));
    }
  }
  std::sort(places.begin(), places.end());
  numbers out;
  for (const std::uint64_t p : places) out.push_back(at_weight(weights, p));
  return out;
}
numbers without_replacement(numbers weights, std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) {
  numbers sorted = weights;
  std::sort(sorted.rbegin(), sorted.rend());
  std::uint64_t rest = sum_of(sorted);
  std::uint64_t most = UINT64_MAX;
  for (std::uint64_t k = 0; k < n; rest -= sorted[k++]) {
    if (sorted[k] <= rest / (n - k)) break;  // the largest that is left comes to no more than one
    most = 0;
  }
  if (most == 0) {  // some are limited: find how many
    rest = sum_of(sorted);
    std::uint64_t k = 0;
    while (sorted[k] > rest / (n - k)) rest -= sorted[k++];
    most = rest / (n - k);
  }
  for (std::uint64_t& w : weights) w = std::min(w, most);
  const std::uint64_t key = detail::mix64(detail::key_of(seed, epoch, 4));
  numbers order;  // of samples along the weights
  for (std::uint64_t begin = 0; begin < weights.size(); begin += 64) {
    const std::uint64_t length = std::min<std::uint64_t>(64, weights.size() - begin);
    const permutation mixed(length, detail::mix64(key ^ begin / 64));
    for (std::uint64_t i = 0; i < length; ++i) order.push_back(begin + mixed(i));
  }
  numbers along;
  for (const std::uint64_t i : order) along.push_back(weights[i]);
  const std::uint64_t total = sum_of(weights);
  numbers out;
  for (std::uint64_t x = 0; x < n; ++x) {
    const wide place = (wide{x} * total + static_cast<std::uint64_t>(wide{key} * total >> 64)) / n;
    out.push_back(order[at_weight(along, static_cast<std::uint64_t>(place))]);
  }
  return out;
}

/// The key of each sample, by its number in the index.
std::vector<std::string> all_keys(const std::vector<std::size_t>& counts) {
  std::vector<std::string> out;
  for (std::size_t n = 0; n < counts.size(); ++n) {
    for (std::size_t i = 0; i < counts[n]; ++i) out.push_back("s" + std::to_string(n) + "/" + std::to_string(i));
  }
  return out;
}

/// What stands at each position of the first `epochs` epochs. `entries`: the samples of an epoch, in the index's order.
keys model(const std::vector<std::size_t>& counts, const std::function<numbers(std::uint64_t)>& entries,
           const epochs_options& o, std::uint64_t slice) {
  const std::vector<std::string> all = all_keys(counts);
  keys out;
  for (std::uint64_t e = 0; e < o.epochs; ++e) {
    const numbers of_epoch = entries(e);
    const std::uint64_t n[] = {of_epoch.size()};
    const sample_order order(std::make_shared<const shard_counts>(n), o.seed, e, {o.tracks, slice});
    for (std::uint64_t g = 0; g < of_epoch.size(); ++g) out[e << 32 | g] = all[of_epoch[order.at(g).ordinal]];
  }
  return out;
}

/// One training on ever other numbers of ranks: `worlds`, each for a number of batches. All ranks have the same state.
keys chain(const std::function<stream<sample>(const epochs_options&, std::string)>& open, epochs_options o,
           const std::vector<std::pair<std::uint32_t, std::size_t>>& worlds) {
  keys out;
  std::string state;
  for (const auto& [world, batches] : worlds) {
    std::set<std::string> states;
    std::set<std::size_t> steps;
    for (std::uint32_t r = 0; r < world; ++r) {
      o.rank = {.index = r, .world_size = world};
      const delivered d = delivered_by(open(o, state), o.batch, batches, r);
      for (const auto& [at, key] : d.samples) {
        if (!out.emplace(at, key).second) out[UINT64_MAX] += "twice: " + key + " ";
      }
      states.insert(d.state);
      steps.insert(d.samples.size() + d.padding);
    }
    if (states.size() != 1 || steps.size() != 1) out[UINT64_MAX] += "ranks differ ";
    state = *states.begin();
  }
  return out;
}

const std::vector<std::size_t> four{17, 3, 40, 8};  // 68 samples
constexpr epochs_options small{.seed = 7, .epochs = 3, .batch = 2, .tracks = 12};

dataset whole_of(const tar_dataset& data) {
  return dataset(std::shared_ptr<const storage>(data.store), data.indexes, {.prefix = "mem:", .slice = 4});
}
std::vector<float> some_weights(std::size_t n, std::uint64_t seed) {
  rng random(seed);
  std::vector<float> out;
  for (std::size_t i = 0; i < n; ++i) {
    out.push_back(random.below(5) == 0 ? 0.0F : static_cast<float>(random.below(1000)) * (i % 9 == 0 ? 5.0F : 1.0F));
  }
  out[0] = 1;
  return out;
}

}  // namespace

TEST_CASE("a subset and draws by weights have the order of a model, on any number of ranks, resumed at every step") {
  const tar_dataset data(four, 300);
  const dataset train = whole_of(data);
  const std::vector<float> weights = some_weights(68, 3);
  const numbers list{60, 2, 3, 5, 7, 11, 13, 17, 18, 19, 20, 21, 41, 67};
  struct kind {
    const char* name;
    dataset of;
    std::function<numbers(std::uint64_t)> entries;
  };
  const auto range = [](std::uint64_t begin, std::uint64_t end) {
    numbers out;
    for (; begin < end; ++begin) out.push_back(begin);
    return [out](std::uint64_t) { return out; };
  };
  const kind kinds[] = {
      {"range", train.subset(10, 31), range(10, 31)},
      {"take", train.take(25), range(0, 25)},
      {"take of more than all", train.take(1000), range(0, 68)},
      {"list", train.subset(list),
       [&](std::uint64_t) {
         numbers sorted = list;
         std::sort(sorted.begin(), sorted.end());
         return sorted;
       }},
      {"function, of a subset",
       train.subset(10, 60).subset([](const indexed_sample& s) { return s.number % 3 == 0; }),
       [](std::uint64_t) {
         numbers out;
         for (std::uint64_t i = 10; i < 60; i += 3) out.push_back(i);
         return out;
       }},
      {"weights", train.weighted(weights),
       [&](std::uint64_t e) { return with_replacement(rounded(weights), 68, 7, e); }},
      {"weights, more than all", train.weighted(weights, {.samples = 150}),
       [&](std::uint64_t e) { return with_replacement(rounded(weights), 150, 7, e); }},
      {"weights without replacement", train.weighted(weights, {.samples = 33, .replacement = false}),
       [&](std::uint64_t e) { return without_replacement(rounded(weights), 33, 7, e); }},
      {"a subset, weighed",
       train.subset(list).weighted([](const indexed_sample& s) { return float(s.number) + 1; }, {.samples = 30}),
       [&](std::uint64_t e) {
         numbers sorted = list;
         std::sort(sorted.begin(), sorted.end());
         std::vector<float> own;
         for (std::size_t i = 0; i < sorted.size(); ++i) own.push_back(static_cast<float>(i) + 1);
         numbers out;
         for (const std::uint64_t i : with_replacement(rounded(own), 30, 7, e)) out.push_back(sorted[i]);
         return out;
       }},
  };
  for (const kind& k : kinds) {
    INFO(k.name);
    const keys wanted = model(four, k.entries, small, 4);
    CHECK(k.of.samples() == k.entries(0).size());
    const auto open = [&](const epochs_options& o, std::string s) { return epochs(k.of, o, std::move(s)); };
    for (std::uint32_t world = 1; world <= 3; ++world) CHECK(chain(open, small, {{world, 1000}}) == wanted);
    const std::size_t steps = (k.entries(0).size() + 5) / 6;  // of an epoch, on three ranks
    for (std::size_t n = 1; n < 2 * steps; ++n) {
      CHECK(chain(open, small, {{3, n}, {2, 1}, {1, 1000}}) == wanted);
    }
  }
}

TEST_CASE("drawn subsets, weights and filters, worlds and stops: every sample in its place", "[property]") {
  const tar_dataset data(four, 100);
  const dataset train = whole_of(data);
  rng random(17);
  for (int round = 0; round < 60; ++round) {
    INFO(round);
    epochs_options o = small;
    o.seed = random.next();
    o.batch = 1 + random.below(4);
    o.tracks = 1 + random.below(30);
    numbers list;
    for (std::uint64_t i = 0; i < 68; ++i) {
      if (random.below(3) != 0) list.push_back(i);
    }
    const std::vector<float> weights = some_weights(list.size(), random.next());
    const auto weighty = static_cast<std::uint64_t>(
        std::count_if(weights.begin(), weights.end(), [](float w) { return w > 0; }));
    const std::uint64_t how = random.below(3);  // a subset, with replacement, without
    const std::uint64_t n = how == 1 ? 1 + random.below(200) : 1 + random.below(weighty);
    dataset of = train.subset(list);
    if (how != 0) of = of.weighted(weights, {.samples = n, .replacement = how == 1});
    const auto entries = [&](std::uint64_t e) {
      if (how == 0) return list;
      const numbers whole = rounded(weights);
      numbers out = how == 1 ? with_replacement(whole, n, o.seed, e) : without_replacement(whole, n, o.seed, e);
      for (std::uint64_t& i : out) i = list[i];
      return out;
    };
    keys wanted = model(four, entries, o, 4);
    const std::uint64_t left_out = random.below(4);  // of the filter; 0: there is none
    const auto kept = [left_out](const std::string& key) { return left_out == 0 || key.back() % 4U != left_out; };
    for (auto at = wanted.begin(); at != wanted.end();) at = kept(at->second) ? std::next(at) : wanted.erase(at);
    std::vector<std::pair<std::uint32_t, std::size_t>> worlds;
    for (int stops = static_cast<int>(random.below(5)); stops > 0; --stops) {
      worlds.emplace_back(static_cast<std::uint32_t>(1 + random.below(4)), 1 + random.below(9));
    }
    worlds.emplace_back(static_cast<std::uint32_t>(1 + random.below(4)), 100000);
    // A stop after the end is none.
    const auto open = [&](const epochs_options& with, std::string s) {
      return epochs(of, with, std::move(s)) | filter([kept](const sample& x) { return kept(x.key); });
    };
    CHECK(chain(open, o, worlds) == wanted);
  }
}

TEST_CASE("what is drawn by weights is in proportion to them, and each copy has random numbers of its own") {
  const std::size_t n = 500;
  rng random(5);
  numbers weights;
  for (std::size_t i = 0; i < n; ++i) weights.push_back(1 + random.below(50));
  const std::vector<float> given(weights.begin(), weights.end());
  const double total = static_cast<double>(sum_of(weights));
  const std::uint64_t entries = 400;
  const int rounds = 400;
  const tar_dataset data({n}, 0);
  const dataset train = whole_of(data);
  const auto rates = [&](bool replacement, const numbers& by) {
    std::vector<std::uint32_t> words;
    for (const std::uint64_t w : by) words.push_back(static_cast<std::uint32_t>(w * 80000000));
    const sample_selection s(nullptr, words, entries, replacement);
    std::vector<double> times(n, 0);
    std::size_t most = 0;
    for (int e = 0; e < rounds; ++e) {
      selected_entries at(s, 11, static_cast<std::uint64_t>(e));
      std::map<std::uint64_t, std::size_t> of_epoch;
      for (std::uint64_t x = 0; x < entries; ++x) {
        const std::uint64_t i = at(x);
        ++times[i];
        most = std::max(most, ++of_epoch[i]);
      }
    }
    CHECK((most > 1) == replacement);
    return times;
  };
  double chi = 0;
  const std::vector<double> with = rates(true, weights);
  for (std::size_t i = 0; i < n; ++i) {
    const double expected = static_cast<double>(weights[i]) / total * static_cast<double>(entries) * rounds;
    chi += (with[i] - expected) * (with[i] - expected) / expected;
  }
  CHECK(chi / (n - 1) > 0.8);  // independent draws: 1 +- 0.06; strata have a little less
  CHECK(chi / (n - 1) < 1.15);
  // Without: a sample's chance is in proportion to its weight, but for those that always come.
  const std::vector<double> without = rates(false, weights);
  const std::uint64_t limited = *std::max_element(weights.begin(), weights.end());
  double share = 0;  // of a weight of 1, from those that do not always come
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (without[i] == rounds) continue;
    share += without[i];
    sum += static_cast<double>(weights[i]);
  }
  CHECK(without[static_cast<std::size_t>(std::find(weights.begin(), weights.end(), limited) - weights.begin())] ==
        rounds);
  double worst = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (without[i] == rounds) continue;
    const double p = share / sum * static_cast<double>(weights[i]) / rounds;
    const double sigma = std::sqrt(p * (1 - p) * rounds);
    worst = std::max(worst, std::abs(without[i] - p * rounds) / std::max(sigma, 1.0));
  }
  CHECK(worst < 4.5);

  const tar_dataset little({5}, 100);
  const dataset copies = whole_of(little).weighted({1, 0, 3, 0, 9}, {.samples = 60});
  testing::virtual_loop loop;
  stream<sample> all = epochs(copies, {.seed = 7, .tracks = 4});
  std::map<std::string, std::size_t> times;
  std::set<std::uint64_t> drawn;
  for (;;) {
    std::optional<sample> s = block_on(loop, [](stream<sample>& from) -> task<std::optional<sample>> {
      std::optional<sample> one = co_await from.next();
      co_return std::move(one);
    }(all));
    if (!s) break;
    ++times[s->key];
    drawn.insert(s->random(1).next());
  }
  CHECK(drawn.size() == 60);
  CHECK(times.size() == 3);
  CHECK(times["s0/4"] > 2 * times["s0/2"]);
}

TEST_CASE("balanced: all classes come equally often, whatever their sizes") {
  const tar_dataset data(four, 100);
  const auto class_of = [](std::uint64_t n) { return n < 60 ? 3U : n < 66 ? 1U : 900U; };  // 60, 6 and 2 samples
  std::vector<std::uint32_t> classes;
  for (std::uint64_t n = 0; n < 68; ++n) classes.push_back(class_of(n));
  const dataset by_list = whole_of(data).balanced(classes, {.samples = 6000});
  const dataset by_function =
      whole_of(data).balanced([&](const indexed_sample& s) { return class_of(s.number); }, {.samples = 6000});
  epochs_options o = small;
  o.epochs = 1;
  const delivered d = delivered_by(epochs(by_list, o), 2);
  CHECK(delivered_by(epochs(by_function, o), 2).samples == d.samples);
  std::map<std::string, std::uint64_t> number;
  const std::vector<std::string> all = all_keys(four);
  for (std::uint64_t n = 0; n < 68; ++n) number[all[n]] = n;
  std::map<std::uint32_t, double> times;
  for (const auto& [at, key] : d.samples) ++times[class_of(number.at(key))];
  CHECK(times[3] == Approx(2000).margin(64));  // strata: to what is cut at the borders
  CHECK(times[1] == Approx(2000).margin(64));
  CHECK(times[900] == Approx(2000).margin(64));
}

TEST_CASE("what is left out is not read, and neighbours are read together") {
  const tar_dataset data({2000}, 3000);
  const dataset train = whole_of(data);
  const std::uint64_t all = data.indexes->sample_bytes();
  epochs_options o{.seed = 7, .tracks = 1, .gap = 1000};
  const auto read = [&](const dataset& of) {
    data.store->requests = data.store->read_bytes = 0;
    const std::size_t n = delivered_by(epochs(dataset(of), o), 1).samples.size();
    return std::pair(n, data.store->read_bytes);
  };
  const auto [few, few_bytes] = read(train.subset([](const indexed_sample& s) { return s.number % 50 == 0; }));
  CHECK(few == 40);
  CHECK(few_bytes < all / 40);
  CHECK(data.store->requests == 40);
  const auto [head, head_bytes] = read(train.take(200));
  CHECK(head == 200);
  CHECK(head_bytes < all / 9 + 40 * 1000);  // and gaps
  CHECK(data.store->requests <= 52);  // slices of 4
  const auto [copies, copies_bytes] = read(train.take(8).weighted(std::vector<float>(8, 1), {.samples = 800}));
  CHECK(copies == 800);
  CHECK(data.store->requests <= 800 / 4 + 2);  // a slice is 4 entries of one or two samples
  CHECK(copies_bytes < all);
}

TEST_CASE("a subset of listed shards is chosen when their index is there, and is a member of a mix") {
  const tar_dataset data(four, 300);
  test::temporary_folder at;
  const std::shared_ptr<const storage> store = data.store;
  const dataset listed(store, "mem:", {.index = at.file("train.index"), .slice = 4});
  const dataset odd = listed.subset([](const indexed_sample& s) { return s.number % 2 == 1; });
  CHECK(odd.samples() == std::nullopt);
  const auto of_given = whole_of(data).subset([](const indexed_sample& s) { return s.number % 2 == 1; });
  const delivered wanted = delivered_by(epochs(of_given, small), 2);
  const delivered first = delivered_by(epochs(odd, small), 2);
  CHECK(first.samples == wanted.samples);
  CHECK(first.state == wanted.state);
  CHECK(odd.samples() == 34U);
  CHECK(listed.samples() == 68U);
  CHECK(odd.bytes().value() < listed.bytes().value());
  CHECK_THAT(odd.plan(small), Contains("34 samples"));
  CHECK(delivered_by(epochs(odd, small), 2).samples == wanted.samples);

  const dataset plain(std::shared_ptr<const storage>(data.store), data.indexes, {.prefix = "mem:"});
  const dataset both({{plain.subset(0, 20), 1}, {plain.weighted(std::vector<float>(68, 1), {.samples = 20}), 1}},
                     {.until = mix_until::first_end, .slice = 4});
  epochs_options o = small;
  o.epochs = 2;
  const auto open = [&](const epochs_options& with, std::string s) { return epochs(both, with, std::move(s)); };
  const keys mixed = chain(open, o, {{1, 1000}});
  std::map<std::string, std::size_t> times;
  for (const auto& [position, key] : mixed) {
    static_cast<void>(position);
    ++times[key];
  }
  CHECK(mixed.size() == both.samples().value() * 2);
  CHECK(times.size() > 30);
  CHECK(chain(open, o, {{3, 4}, {2, 3}, {1, 1000}}) == mixed);
}

TEST_CASE("a state of other samples is refused inside an epoch, and what cannot be chosen by name") {
  const tar_dataset data(four, 300);
  const dataset train = whole_of(data);
  const delivered part = delivered_by(epochs(train.take(30), small), 2, 3);
  CHECK_THAT(failure_of([&] { static_cast<void>(epochs(train.take(31), small, part.state)); }),
             Contains("its index (digest) was"));
  CHECK_THAT(failure_of([&] { static_cast<void>(epochs(train, small, part.state)); }), Contains("its index (digest)"));
  const dataset drawn = train.weighted(std::vector<float>(68, 1));
  const delivered of_drawn = delivered_by(epochs(drawn, small), 2, 3);
  const dataset others = train.weighted(some_weights(68, 1));
  CHECK_THAT(failure_of([&] { static_cast<void>(epochs(others, small, of_drawn.state)); }), Contains("digest"));
  const dataset once = train.weighted(std::vector<float>(68, 1), {.replacement = false});
  CHECK_THAT(failure_of([&] { static_cast<void>(epochs(once, small, of_drawn.state)); }), Contains("digest"));
  const delivered epoch = delivered_by(epochs(train.take(30), small), 2, 15);  // at its end another one may go on
  CHECK(failure_of([&] { static_cast<void>(epochs(train, small, epoch.state)); }) == "no error");

  const auto refused = [&](const dataset& d) { return failure_of([&] { static_cast<void>(epochs(d, small)); }); };
  CHECK_THAT(failure_of([&] { static_cast<void>(train.subset(5, 5)); }), Contains("5 to 5 is empty"));
  CHECK_THAT(failure_of([&] { static_cast<void>(train.take(0)); }), Contains("is empty"));
  CHECK_THAT(failure_of([&] { static_cast<void>(train.subset(numbers{})); }), Contains("list is empty"));
  CHECK_THAT(failure_of([&] { static_cast<void>(train.subset(numbers{4, 2, 4})); }), Contains("sample 4 is twice"));
  CHECK_THAT(refused(train.subset(60, 69)), Contains("samples 60 to 69, and there are 68"));
  CHECK_THAT(refused(train.subset(numbers{4, 68})), Contains("has sample 68, and there are 68 from 0 on"));
  CHECK_THAT(refused(train.subset([](const indexed_sample&) { return false; })), Contains("none of the 68 samples"));
  CHECK_THAT(refused(train.weighted({1, 2, 3})), Contains("3 weights for 68 samples"));
  CHECK_THAT(refused(train.balanced(std::vector<std::uint32_t>(4))), Contains("4 classes for 68 samples"));
  CHECK_THAT(refused(train.weighted(std::vector<float>(68, 0))), Contains("all weights are 0"));
  CHECK_THAT(refused(train.take(2).weighted({1, -1})), Contains("the weight of sample 1 is -1"));
  CHECK_THAT(refused(train.take(2).weighted({std::nanf(""), 1})), Contains("the weight of sample 0 is nan"));
  CHECK_THAT(refused(train.take(3).weighted({1, 0, 1}, {.samples = 3, .replacement = false})),
             Contains("3 samples an epoch without replacement, and 2 have a weight"));
  // A weight that is next to nothing is not 0.
  const dataset tiny = train.take(3).weighted({1e-30F, 1, 1}, {.samples = 3, .replacement = false});
  CHECK(delivered_by(epochs(tiny, small), 2).samples.size() == 9);
  CHECK_THAT(refused(drawn.take(3)), Contains("nothing more can be chosen"));
  const dataset streamed(std::shared_ptr<const storage>(data.store), "mem:", {.window = 8});
  CHECK_THAT(failure_of([&] { static_cast<void>(streamed.take(3)); }), Contains("give it .index"));
  const dataset mixed({{dataset(std::shared_ptr<const storage>(data.store), data.indexes, {.prefix = "mem:"}), 1}});
  CHECK_THAT(failure_of([&] { static_cast<void>(mixed.take(3)); }), Contains("choose from its members"));
}
