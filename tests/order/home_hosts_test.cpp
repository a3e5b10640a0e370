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
    samples = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  }
  sample_order order(std::uint64_t epoch) const {
    return sample_order(std::make_shared<const shard_counts>(counts), seed, epoch,
                        {.tracks = tracks, .slice = slice, .hosts = hosts});
  }
  std::uint64_t world() const { return hosts * ranks; }
  std::string text() const {
    return std::to_string(samples) + " samples, " + std::to_string(hosts) + " hosts of " + std::to_string(ranks) +
           " ranks, batches of " + std::to_string(batch) + ", " + std::to_string(tracks) + " tracks, slices of " +
           std::to_string(slice) + ", seed " + std::to_string(seed);
  }

  numbers counts;
  std::uint64_t hosts, ranks, batch, tracks, slice, seed, samples;
};

std::uint64_t number_of(const sample_order& o, sample_place p) {
  return o.counts().begin(static_cast<std::size_t>(p.shard)) + p.ordinal;
}

/// Each host's samples, in the order of homes: the slices, permuted by the seed alone, cut into equal lengths.
std::vector<numbers> homes_by_model(const drawn_case& c) {
  numbers line;
  const std::uint64_t full = c.samples / c.slice;
  const permutation homes(full, detail::key_of(c.seed, 0, 5));
  for (std::uint64_t s = 0; s < full; ++s) {
    for (std::uint64_t i = 0; i < c.slice; ++i) line.push_back(homes(s) * c.slice + i);
  }
  for (std::uint64_t x = full * c.slice; x < c.samples; ++x) line.push_back(x);
  std::vector<numbers> of_host;
  std::uint64_t at = 0;
  for (std::uint64_t h = 0; h < c.hosts; ++h) {
    const std::uint64_t length = c.samples / c.hosts + (h < c.samples % c.hosts ? 1 : 0);
    of_host.emplace_back(line.begin() + static_cast<std::ptrdiff_t>(at),
                         line.begin() + static_cast<std::ptrdiff_t>(at + length));
    at += length;
  }
  return of_host;
}

/// The whole order of an epoch: what the definition says, step by step.
numbers order_by_model(const drawn_case& c, std::uint64_t epoch) {
  std::vector<numbers> at_track(static_cast<std::size_t>(c.tracks));
  const std::vector<numbers> homes = homes_by_model(c);
  std::uint64_t home_begin = 0;
  for (std::uint64_t h = 0; h < c.hosts; ++h) {
    const numbers& home = homes[static_cast<std::size_t>(h)];
    // Its pieces: cut where the line of all homes has a slice's beginning.
    std::vector<numbers> whole;
    std::vector<std::pair<std::uint64_t, numbers>> parts;  // with the key's number
    for (std::uint64_t i = 0; i < home.size();) {
      const std::uint64_t p = home_begin + i;
      const std::uint64_t end = std::min({(p / c.slice + 1) * c.slice, home_begin + home.size(), c.samples});
      const numbers piece(home.begin() + static_cast<std::ptrdiff_t>(i),
                          home.begin() + static_cast<std::ptrdiff_t>(end - home_begin));
      if (piece.size() == c.slice) {
        whole.push_back(piece);
      } else {
        const bool headless = p % c.slice != 0;
        parts.emplace_back(p / c.slice + (headless ? c.samples / c.slice + 1 : 0), piece);
      }
      i = end - home_begin;
    }
    const std::uint64_t first_whole = (home_begin + c.slice - 1) / c.slice;
    const permutation order(whole.size(), mix64(mix64(detail::key_of(c.seed, epoch, 2)) ^ h));
    numbers tape;
    const auto lay = [&](std::uint64_t number, const numbers& piece) {
      const permutation inside(piece.size(), mix64(mix64(detail::key_of(c.seed, epoch, 3)) ^ number));
      for (std::uint64_t i = 0; i < piece.size(); ++i) tape.push_back(piece[static_cast<std::size_t>(inside(i))]);
    };
    for (std::uint64_t j = 0; j < whole.size(); ++j) {
      lay(first_whole + order(j), whole[static_cast<std::size_t>(order(j))]);
    }
    for (const auto& [number, piece] : parts) lay(number, piece);
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
    REQUIRE(at == home.size());
    home_begin += home.size();
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

TEST_CASE("fewer hosts keep what neighbours among more had") {
  rng random(9);
  for (int i = 0; i < 200; ++i) {
    drawn_case c(random);
    c.hosts = 8;
    c.counts.push_back((8 - c.samples % 8) % 8);  // equal lengths
    c.samples += c.counts.back();
    const std::vector<numbers> eight = homes_by_model(c);
    c.hosts = 4;
    const std::vector<numbers> four = homes_by_model(c);
    for (std::size_t h = 0; h < 4; ++h) {
      numbers both = eight[2 * h];
      both.insert(both.end(), eight[2 * h + 1].begin(), eight[2 * h + 1].end());
      REQUIRE(both == four[h]);
    }
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
    std::uint64_t seed, epoch, tracks, slice, hosts, digest;
  };
  const known all[] = {{{5, 3, 8}, 7, 3, 6, 4, 2, 0xa795cb9450e4bd9eu},
                       {{913, 1000, 50, 2000, 1000, 777, 1260}, 7, 3, 960, 32, 8, 0x37bf60aecffab200u},
                       {numbers(97, 17), 123456789012345678, 99, 30, 7, 3, 0x25fc6b7dd24ec166u}};
  for (const known& k : all) {
    const sample_order o(std::make_shared<const shard_counts>(k.counts), k.seed, k.epoch,
                         {.tracks = k.tracks, .slice = k.slice, .hosts = k.hosts});
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
    same.samples = o.size();
    const numbers model = order_by_model(same, k.epoch);
    digest = 0;
    for (std::uint64_t g = 0; g < o.size(); ++g) digest += mix64(g ^ mix64(model[static_cast<std::size_t>(g)]));
    CHECK(digest == k.digest);
  }
}
