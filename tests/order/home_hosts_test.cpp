// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The order with homes (order_options::hosts), beside a model that lays everything out in vectors.

#include <millrace/order/sample_order.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/order/rank_share.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using detail::mix64;

namespace {

using numbers = std::vector<std::uint64_t>;

class drawn_case {
 public:
  explicit drawn_case(rng& random) {
    hosts = 2 + random.below(7);
    ranks = 1 + random.below(4);
    batch = 1 + random.below(6);
    tracks = hosts * (1 + random.below(random.below(4) == 0 ? 40 : 8));
    slice = 1 + random.below(random.below(3) == 0 ? 60 : 9);
    seed = random.next();
    for (std::uint64_t n = 1 + random.below(9); n > 0; --n) counts.push_back(random.below(50));
    if (random.below(3) == 0) counts.push_back(slice * hosts * (1 + random.below(6)));
    former = random.below(4) == 0;
    samples = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  }
  sample_order order(std::uint64_t epoch) const {
    return sample_order(std::make_shared<const shard_counts>(counts), seed, epoch,
                        {.tracks = tracks, .slice = slice, .hosts = hosts, .former_homes = former});
  }
  std::uint64_t world() const { return hosts * ranks; }
  std::string text() const {
    return std::to_string(samples) + " samples, " + std::to_string(hosts) + " hosts of " + std::to_string(ranks) +
           " ranks, batches of " + std::to_string(batch) + ", " + std::to_string(tracks) + " tracks, slices of " +
           std::to_string(slice) + ", seed " + std::to_string(seed) + (former ? ", former homes" : "");
  }

  numbers counts;
  std::uint64_t hosts, ranks, batch, tracks, slice, seed, samples;
  bool former = false;
};

std::uint64_t number_of(const sample_order& o, sample_place p) {
  return o.counts().begin(static_cast<std::size_t>(p.shard)) + p.ordinal;
}

/// A slice, or a part of one, at its home.
struct piece {
  std::uint64_t number;  // of its key
  numbers samples;
};

/// The numbers of the partitions of each host, and at the end those that are left: hosts are added one by one, and all
/// that are there give to the new one what they have too many.
std::vector<numbers> partitions_by_model(std::uint64_t partitions, std::uint64_t hosts) {
  numbers left(static_cast<std::size_t>(partitions));
  std::iota(left.begin(), left.end(), std::uint64_t{0});
  std::vector<numbers> of_host;
  for (std::uint64_t h = 1; h <= hosts; ++h) {
    for (numbers& host : of_host) {
      const numbers given(host.begin() + static_cast<std::ptrdiff_t>(partitions / h), host.end());
      left.insert(left.end(), given.begin(), given.end());
      host.resize(static_cast<std::size_t>(partitions / h));
    }
    const auto from = left.end() - static_cast<std::ptrdiff_t>(partitions / h);
    of_host.emplace_back(from, left.end());
    left.erase(from, left.end());
  }
  of_host.push_back(left);
  return of_host;
}

/// The pieces of each host: slices of its partitions, and its part of what is left, cut where slices begin.
std::vector<std::vector<piece>> pieces_by_model(const drawn_case& c) {
  const std::uint64_t full = c.samples / c.slice;
  const permutation homes(full, detail::key_of(c.seed, 0, 5));
  const std::uint64_t partition = (full + 65535) / 65536;
  const bool any = !c.former && partition != 0 && full / partition >= c.hosts;
  const std::uint64_t partitions = any ? full / partition : 0;
  std::vector<numbers> of_host = partitions_by_model(partitions, c.hosts);
  const auto slice_of = [&](std::uint64_t s) {
    numbers samples;
    for (std::uint64_t i = 0; i < c.slice; ++i) samples.push_back(homes(s) * c.slice + i);
    return samples;
  };
  std::vector<std::vector<piece>> out(static_cast<std::size_t>(c.hosts));
  std::uint64_t number = 0;
  numbers rest;
  for (std::size_t h = 0; h <= c.hosts; ++h) {
    for (const std::uint64_t p : of_host[h]) {
      for (std::uint64_t s = p * partition; s < (p + 1) * partition; ++s) {
        const numbers slice = slice_of(s);
        if (h < c.hosts) {
          out[h].push_back({number++, slice});
        } else {
          rest.insert(rest.end(), slice.begin(), slice.end());
        }
      }
    }
  }
  for (std::uint64_t s = partitions * partition; s < full; ++s) {
    const numbers slice = slice_of(s);
    rest.insert(rest.end(), slice.begin(), slice.end());
  }
  for (std::uint64_t x = full * c.slice; x < c.samples; ++x) rest.push_back(x);
  std::uint64_t at = 0;
  for (std::uint64_t h = 0; h < c.hosts; ++h) {
    const std::uint64_t end = at + rest.size() / c.hosts + (h < rest.size() % c.hosts ? 1 : 0);
    while (at < end) {
      const bool headless = at % c.slice != 0;
      const std::uint64_t next = std::min((at / c.slice + 1) * c.slice, end);
      const numbers samples(rest.begin() + static_cast<std::ptrdiff_t>(at),
                            rest.begin() + static_cast<std::ptrdiff_t>(next));
      out[static_cast<std::size_t>(h)].push_back({number + at / c.slice + (headless ? full + 1 : 0), samples});
      at = next;
    }
  }
  return out;
}

std::vector<numbers> homes_by_model(const drawn_case& c) {
  std::vector<numbers> of_host;
  for (const std::vector<piece>& pieces : pieces_by_model(c)) {
    of_host.emplace_back();
    for (const piece& p : pieces) {
      of_host.back().insert(of_host.back().end(), p.samples.begin(), p.samples.end());
    }
  }
  return of_host;
}

/// The whole order of an epoch: what the definition says, step by step.
numbers order_by_model(const drawn_case& c, std::uint64_t epoch) {
  std::vector<numbers> at_track(static_cast<std::size_t>(c.tracks));
  const std::vector<std::vector<piece>> homes = pieces_by_model(c);
  for (std::uint64_t h = 0; h < c.hosts; ++h) {
    std::vector<piece> whole;
    std::vector<piece> parts;
    for (const piece& p : homes[static_cast<std::size_t>(h)]) {
      (p.samples.size() == c.slice ? whole : parts).push_back(p);
    }
    const permutation order(whole.size(), mix64(mix64(detail::key_of(c.seed, epoch, 2)) ^ h));
    numbers tape;
    const auto lay = [&](const piece& p) {
      const permutation inside(p.samples.size(), mix64(mix64(detail::key_of(c.seed, epoch, 3)) ^ p.number));
      for (std::uint64_t i = 0; i < p.samples.size(); ++i) {
        tape.push_back(p.samples[static_cast<std::size_t>(inside(i))]);
      }
    };
    for (std::uint64_t j = 0; j < whole.size(); ++j) lay(whole[static_cast<std::size_t>(order(j))]);
    for (const piece& p : parts) lay(p);
    // Tracks of lengths that differ by one at most, as the positions need them.
    std::uint64_t at = 0;
    for (std::uint64_t t = h; t < c.tracks; t += c.hosts) {
      const std::uint64_t length = c.samples / c.tracks + (t < c.samples % c.tracks ? 1 : 0);
      const std::uint64_t aim = ((t * 0x9e3779b97f4a7c15u >> 32) * c.slice) >> 32;
      const std::uint64_t turn = length == 0 ? 0 : (aim + c.slice - at % c.slice) % c.slice % length;
      for (std::uint64_t k = 0; k < length; ++k) {
        at_track[static_cast<std::size_t>(t)].push_back(tape[static_cast<std::size_t>(at + (turn + k) % length)]);
      }
      at += length;
    }
    REQUIRE(at == tape.size());
  }
  numbers order;
  for (std::uint64_t g = 0; g < c.samples; ++g) {
    order.push_back(at_track[static_cast<std::size_t>(g % c.tracks)].at(static_cast<std::size_t>(g / c.tracks)));
  }
  return order;
}

}  // namespace

TEST_CASE("with homes, the order is the model's, and every sample comes once an epoch, at its home") {
  rng random(36);
  std::uint64_t shared = 0;
  for (int i = 0; i < 3000; ++i) {
    const drawn_case c(random);
    INFO(c.text());
    const std::vector<numbers> homes = homes_by_model(c);
    numbers home_of(static_cast<std::size_t>(c.samples), UINT64_MAX);
    for (std::size_t h = 0; h < homes.size(); ++h) {
      for (const std::uint64_t x : homes[h]) home_of[static_cast<std::size_t>(x)] = h;
    }
    for (const std::uint64_t epoch : {std::uint64_t{0}, 1 + random.below(1000)}) {
      const sample_order o = c.order(epoch);
      const numbers wanted = order_by_model(c, epoch);
      numbers seen(static_cast<std::size_t>(c.samples), 0);
      bool same = true;
      bool at_home = true;
      for (std::uint64_t g = 0; g < c.samples; ++g) {
        const std::uint64_t x = number_of(o, o.at(g));
        same = same && x == wanted[static_cast<std::size_t>(g)];
        at_home = at_home && home_of[static_cast<std::size_t>(x)] == g % c.hosts;
        ++seen[static_cast<std::size_t>(x)];
      }
      REQUIRE(same);
      REQUIRE(at_home);
      REQUIRE(std::all_of(seen.begin(), seen.end(), [](std::uint64_t n) { return n == 1; }));
    }
    for (std::uint64_t s = 0; s < c.samples; s += c.slice) {
      const auto first = home_of.begin() + static_cast<std::ptrdiff_t>(s);
      const auto last = home_of.begin() + static_cast<std::ptrdiff_t>(std::min(s + c.slice, c.samples));
      if (std::adjacent_find(first, last, std::not_equal_to<>()) != last) ++shared;
    }
  }
  CHECK(shared > 1000);  // slices with two homes were among them
}

TEST_CASE("with homes, a cursor and the slices of the tape say the same as the positions") {
  rng random(5);
  for (int i = 0; i < 500; ++i) {
    const drawn_case c(random);
    INFO(c.text());
    const sample_order o = c.order(3);
    std::uint64_t place = 0;
    numbers seen(static_cast<std::size_t>(c.samples), 0);
    while (place < c.samples) {  // the slices cover the tape without a gap
      const sample_order::placed_slice s = o.slice_at(place);
      REQUIRE(s.on_tape == place);
      REQUIRE(s.samples.length > 0);
      REQUIRE(o.slice_at(place + s.samples.length - 1).number == s.number);
      for (std::uint64_t k = 0; k < s.samples.length; ++k) ++seen.at(static_cast<std::size_t>(s.samples.begin + k));
      place += s.samples.length;
    }
    REQUIRE(place == c.samples);
    REQUIRE(std::all_of(seen.begin(), seen.end(), [](std::uint64_t n) { return n == 1; }));
    for (std::uint64_t t = 0; t < c.tracks; ++t) {
      const sample_order::stretch track = o.track(t);
      std::set<std::uint64_t> slices;
      for (std::uint64_t p = track.begin; p < track.begin + track.length; ++p) slices.insert(o.slice_at(p).on_tape);
      REQUIRE(o.slices_of(t) == slices.size());
      track_cursor along(o, t);
      for (std::uint64_t g = t; g < c.samples; g += c.tracks) REQUIRE(along.next() == o.at(g));
      REQUIRE(along.left() == 0);
    }
  }
}

TEST_CASE(
    "with homes, ranks take equal batches of their host's positions, from any step on, with any number of ranks") {
  rng random(7);
  for (int i = 0; i < 2000; ++i) {
    const drawn_case c(random);
    INFO(c.text());
    numbers taken(static_cast<std::size_t>(c.samples), 0);
    for (std::uint64_t at = 0; at < c.samples;) {
      // After each step as if it were resumed on another number of ranks, and with another batch.
      const std::uint64_t each = 1 + random.below(4);
      const std::uint64_t world = c.hosts * each;
      const std::uint64_t batch = 1 + random.below(7);
      const order_step step = step_at(c.samples, at, batch, world);
      std::uint64_t least = UINT64_MAX;
      std::uint64_t most = 0;
      for (std::uint64_t r = 0; r < world; ++r) {
        const rank_share share(c.tracks, r, world, c.hosts);
        const numbers mine = share.positions(step);
        REQUIRE(mine.size() == share.size(step));
        REQUIRE(std::is_sorted(mine.begin(), mine.end()));
        for (const std::uint64_t g : mine) {
          REQUIRE(g % c.hosts == r / each);
          ++taken.at(static_cast<std::size_t>(g));
        }
        least = std::min<std::uint64_t>(least, mine.size());
        most = std::max<std::uint64_t>(most, mine.size());
      }
      REQUIRE(most - least <= 1);
      REQUIRE(most <= batch);
      if (step.count == batch * world) REQUIRE(least == batch);
      at += step.count;
    }
    REQUIRE(std::all_of(taken.begin(), taken.end(), [](std::uint64_t n) { return n == 1; }));
  }
}

TEST_CASE("hosts that keep what they read find in later epochs what a model of homes says, and without homes a share") {
  // Of 8 hosts with room for all they read: all of it, and an eighth.
  const std::uint64_t samples = 40'000;
  const auto counts = std::make_shared<const shard_counts>(numbers(40, 1000));
  const auto hits = [&](std::uint64_t hosts_of_order) {
    std::vector<std::set<std::uint64_t>> kept(8);
    std::uint64_t found = 0;
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      const sample_order o(counts, 7, epoch, {.tracks = 96, .slice = 32, .hosts = hosts_of_order});
      for (std::uint64_t g = 0; g < samples; ++g) {
        const std::uint64_t x = number_of(o, o.at(g));
        std::set<std::uint64_t>& host = kept[static_cast<std::size_t>(g % 8)];
        if (epoch == 1 && host.count(x) != 0) ++found;
        host.insert(x);
      }
    }
    return static_cast<double>(found) / static_cast<double>(samples);
  };
  CHECK(hits(8) == 1.0);
  const double without = hits(1);
  CHECK(without > 0.1);
  CHECK(without < 0.15);
}

/// The host of each sample.
std::vector<std::uint32_t> hosts_of_samples(const sample_order& o) {
  std::vector<std::uint32_t> host(static_cast<std::size_t>(o.size()));
  for (std::uint64_t t = 0; t < o.tracks(); ++t) {
    const sample_order::stretch track = o.track(t);
    for (std::uint64_t place = track.begin; place < track.begin + track.length;) {
      const sample_order::placed_slice s = o.slice_at(place);
      const auto first = host.begin() + static_cast<std::ptrdiff_t>(s.samples.begin);
      std::fill(first, first + static_cast<std::ptrdiff_t>(s.samples.length), o.home_of(t));
      place = s.on_tape + s.samples.length;
    }
  }
  return host;
}

TEST_CASE("a host more, or one less, moves about as few samples as can be") {
  // Of H hosts and one more, at most H of H + 1 samples stay at home. ImageNet, and more slices than
  // there are partitions.
  struct shape {
    std::uint64_t samples, slice;
  };
  for (const shape& data : {shape{1'281'167, 32}, shape{2'000'000, 8}}) {
    const auto counts = std::make_shared<const shard_counts>(numbers{data.samples});
    for (const std::uint64_t hosts : {2U, 16U, 128U}) {
      const auto of = [&](std::uint64_t h, bool former) {
        return hosts_of_samples(
            sample_order(counts, 7, 1, {.tracks = h, .slice = data.slice, .hosts = h, .former_homes = former}));
      };
      const auto stay = [&](bool former) {
        const std::vector<std::uint32_t> before = of(hosts, former);
        const std::vector<std::uint32_t> after = of(hosts + 1, former);
        std::uint64_t same = 0;
        for (std::size_t x = 0; x < before.size(); ++x) same += before[x] == after[x] ? 1U : 0U;
        return static_cast<double>(same) / static_cast<double>(data.samples);
      };
      const double best = static_cast<double>(hosts) / static_cast<double>(hosts + 1);
      const double now = stay(false);
      INFO(hosts << " hosts, " << data.samples << " samples: " << now << " of " << best);
      CHECK(now > best - 0.005);
      CHECK(now <= best + 0.0001);
      CHECK(stay(true) < 0.51);
    }
  }
}

TEST_CASE("partitions of several slices have homes as those of one") {
  rng any(1);
  drawn_case c(any);
  c.counts = {150'000, 61'003};
  c.samples = 211'003;
  c.slice = 2;
  c.hosts = 6;
  c.tracks = 12;
  c.former = false;
  const sample_order o = c.order(4);
  const numbers model = order_by_model(c, 4);
  for (std::uint64_t g = 0; g < c.samples; ++g) {
    if (number_of(o, o.at(g)) != model[static_cast<std::size_t>(g)]) FAIL("position " << g);
  }
}

TEST_CASE("one host is no homes, and hosts that do not divide tracks or ranks are refused") {
  const auto counts = std::make_shared<const shard_counts>(numbers{30, 0, 7, 61, 1, 24});
  const sample_order plain(counts, 5, 2, {.tracks = 12, .slice = 4});
  const sample_order one(counts, 5, 2, {.tracks = 12, .slice = 4, .hosts = 1});
  for (std::uint64_t g = 0; g < plain.size(); ++g) CHECK(plain.at(g) == one.at(g));
  CHECK_THROWS_WITH(sample_order(counts, 5, 2, {.tracks = 12, .slice = 4, .hosts = 5}),
                    Catch::Matchers::Contains("5 hosts do not divide 12 tracks"));
  CHECK_THROWS_AS(sample_order(counts, 5, 2, {.tracks = 12, .slice = 4, .hosts = 0}), configuration_error);
  CHECK_THROWS_WITH(rank_share(12, 0, 6, 4), Catch::Matchers::Contains("6 ranks and 12 tracks cannot be"));
  CHECK_THROWS_AS(rank_share(12, 0, 6, 0), configuration_error);
  CHECK_THROWS_AS(rank_share(10, 0, 8, 4), configuration_error);
}

TEST_CASE("the order with homes is that of the contract") {
  struct known {
    numbers counts;
    std::uint64_t seed, epoch, tracks, slice, hosts;
    bool former;
    std::uint64_t digest;
  };
  const numbers seven{913, 1000, 50, 2000, 1000, 777, 1260};
  const known all[] = {{{5, 3, 8}, 7, 3, 6, 4, 2, true, 0xa795cb9450e4bd9eu},
                       {seven, 7, 3, 960, 32, 8, true, 0x37bf60aecffab200u},
                       {numbers(97, 17), 123456789012345678, 99, 30, 7, 3, true, 0x25fc6b7dd24ec166u},
                       {{5, 3, 8}, 7, 3, 6, 4, 2, false, 0xa795cb9450e4bd9eu},
                       {seven, 7, 3, 960, 32, 8, false, 0xa2912a01811de9dau},
                       {numbers(97, 17), 123456789012345678, 99, 30, 7, 3, false, 0x3d77a1c5afaaea1eu}};
  for (const known& k : all) {
    const sample_order o(std::make_shared<const shard_counts>(k.counts), k.seed, k.epoch,
                         {.tracks = k.tracks, .slice = k.slice, .hosts = k.hosts, .former_homes = k.former});
    std::uint64_t digest = 0;
    for (std::uint64_t g = 0; g < o.size(); ++g) digest += mix64(g ^ mix64(number_of(o, o.at(g))));
    CHECK(digest == k.digest);
    rng any(1);
    drawn_case same(any);
    same.counts = k.counts;
    same.seed = k.seed;
    same.tracks = k.tracks;
    same.slice = k.slice;
    same.hosts = k.hosts;
    same.former = k.former;
    same.samples = o.size();
    const numbers model = order_by_model(same, k.epoch);
    digest = 0;
    for (std::uint64_t g = 0; g < o.size(); ++g) digest += mix64(g ^ mix64(model[static_cast<std::size_t>(g)]));
    CHECK(digest == k.digest);
  }
}
