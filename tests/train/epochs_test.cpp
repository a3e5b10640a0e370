// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/dataset.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/formats/tar_shards.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/order/rank_share.hpp>
#include <millrace/train/detail/slice_piece.hpp>
#include <millrace/train/tracks_advice.hpp>

#include "tests/support/catch.hpp"
#include "tests/train/epochs_data.hpp"

using namespace millrace;
using test::tar_dataset;
using test::delivered;
using test::delivered_by;

namespace {

const std::vector<std::size_t> uneven_counts{30, 0, 7, 61, 1, 24};  // 123 samples

/// What all ranks got, by position; none may come twice.
std::map<std::uint64_t, std::string> together(const std::vector<delivered>& ranks) {
  std::map<std::uint64_t, std::string> all;
  for (const delivered& one : ranks) {
    for (const auto& [position, key] : one.samples) CHECK(all.emplace(position, key).second);
  }
  return all;
}

}  // namespace

TEST_CASE("every sample comes once an epoch, in the canonical order, in equally many batches on every rank") {
  const tar_dataset data(uneven_counts, 900);
  for (const std::uint32_t world : {1U, 2U, 3U, 8U, 50U}) {
    for (const std::uint64_t slice : {1U, 8U}) {
      INFO(world << " ranks, slices of " << slice);
      const std::size_t batch = 4;
      std::vector<delivered> ranks;
      std::size_t padding = 0;
      for (std::uint32_t r = 0; r < world; ++r) {
        test::settings o{.seed = 5, .epochs = 3, .batch = batch, .rank = {.index = r, .world_size = world}};
        o.tracks = 12;
        o.slice = slice;
        stream<sample> in = data.open(o);
        const std::uint64_t due = in.position()->batches().value();
        ranks.push_back(delivered_by(std::move(in), batch));
        CHECK(due == (123 + batch * world - 1) / (batch * world));
        CHECK(ranks.back().batches == std::vector<std::uint64_t>(3, due));
        CHECK(std::is_sorted(ranks.back().samples.begin(), ranks.back().samples.end()));
        CHECK(ranks.back().state == ranks.front().state);
        padding += ranks.back().padding;
      }
      CHECK(padding == 3 * ((123 + batch * world - 1) / (batch * world) * batch * world - 123));
      std::map<std::uint64_t, std::string> wanted;
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        const std::vector<std::string> keys = data.order(5, epoch, {.tracks = 12, .slice = slice});
        for (std::size_t g = 0; g < keys.size(); ++g) wanted[epoch << 32 | g] = keys[g];
      }
      CHECK(together(ranks) == wanted);
    }
  }
}

TEST_CASE("timing, wake-ups and bounds change nothing about the order") {
  const tar_dataset data(uneven_counts, 5000);
  test::settings o{.seed = 1, .epochs = 2, .batch = 5, .rank = {.index = 1, .world_size = 3}};
  o.tracks = 10;
  o.slice = 4;
  const delivered calm = delivered_by(data.open(o), 5);
  CHECK(calm.samples.size() > 70);
  data.store->delay_us = 20000;
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    o.ahead = seed == 1 ? 1 : 10 * seed;
    o.bytes = seed == 2 ? 1 : 100 * KiB * seed;
    o.requests = seed;
    o.part = seed == 3 ? 1 : 64 * KiB;
    o.gap = seed == 4 ? 0 : 8 * KiB;
    const delivered other = delivered_by(data.open(o), 5, SIZE_MAX / 65536, seed);
    CHECK(other.samples == calm.samples);
    CHECK(other.state == calm.state);
    CHECK(data.store->most_busy <= seed);
    data.store->most_busy = 0;
    CHECK(data.store->busy == 0);
  }
}

TEST_CASE(
    "no more is read than the bounds allow while the consumer waits, and the next epoch is read before this one ends") {
  const tar_dataset data({200, 200}, 1000);
  const auto count = [&](test::settings o, std::size_t taken) {
    o.tracks = 8;
    o.slice = 16;
    data.store->requests = data.store->read_bytes = 0;
    testing::virtual_loop loop;
    auto take = [](stream<sample> in, std::size_t n) -> task<void> {
      for (; n > 0; --n) co_await in.next();
      co_await sleep_for(std::chrono::seconds(60));
    };
    stream<sample> in = data.open(o);
    block_on(loop, take(std::move(in), taken));
    return data.store->read_bytes;
  };
  // Of the first samples alone, one of each track.
  const std::uint64_t first = count({.batch = 8, .ahead = 8}, 1);
  CHECK(first < 8 * (1000 + 4 * 512 + 512));
  CHECK(data.store->requests == 8);
  CHECK(count({.batch = 8, .bytes = 64 * KiB}, 1) <= 64 * KiB);
  CHECK(count({.batch = 8, .bytes = 512 * KiB}, 1) <= 512 * KiB);
  // All of the first epoch fits, and the second one is begun before the first is taken.
  const std::uint64_t whole = count({.epochs = 1, .batch = 8}, 1);
  CHECK(whole >= data.indexes->sample_bytes());
  CHECK(count({.epochs = 9, .batch = 8, .ahead = 600}, 1) > whole + whole / 4);
}

TEST_CASE("a slice is read by one request, and once") {
  const tar_dataset data({512, 512}, 1000);
  test::settings o{.batch = 16};
  o.tracks = 16;
  o.slice = 16;
  delivered_by(data.open(o), 16);
  // 64 slices; each track begins and ends within one, and reads its first sample alone; one slice lies in both shards.
  CHECK(data.store->requests <= 64 + 16 + 16 + 2);
  CHECK(data.store->read_bytes < data.indexes->sample_bytes() * 3 / 2);
}

TEST_CASE("the first batch has a store nearby for itself; one far off is asked for slices before it has answered") {
  const tar_dataset data({512, 512}, 1000);
  test::settings o{.batch = 16};
  o.tracks = 16;
  o.slice = 16;
  data.store->first_byte = std::chrono::milliseconds(1);
  delivered_by(data.open(o), 16, 1);
  CHECK(data.store->requests <= 16 + 1);  // one slice may lie in both shards
  data.store->first_byte = std::chrono::milliseconds(60);
  data.store->answered = false;
  data.store->asked_first = 0;
  delivered_by(data.open(o), 16, 1);
  CHECK(data.store->asked_first > data.indexes->sample_bytes() / 2);
}

TEST_CASE("a state of another order is refused by name, before anything is read") {
  const tar_dataset data(uneven_counts, 300);
  const tar_dataset other({30, 1, 7, 61, 1, 24}, 300);
  test::settings o{.seed = 5, .epochs = 2, .batch = 4};
  o.tracks = 12;
  o.slice = 4;
  const std::string state = delivered_by(data.open(o), 4, 3).state;
  CHECK(state.size() < 250);
  CHECK(epoch_state::parse(state).position == 12);
  data.store->requests = 0;
  const auto refusal = [&](const tar_dataset& of, test::settings changed, const std::string& text) {
    changed.resume = text;
    try {
      const stream<sample> in = of.open(changed);
      return std::string("not refused");
    } catch (const configuration_error& e) {
      return std::string(e.what());
    }
  };
  CHECK(refusal(data, o, state) == "not refused");
  test::settings changed = o;
  changed.seed = 6;
  CHECK(refusal(data, changed, state) == "resume: the state is of another order: its seed was 5 and is 6");
  changed = o;
  changed.tracks = 24;
  CHECK(refusal(data, changed, state) ==
        "resume: the state is of another order: its number of tracks was 12 and is 24");
  changed = o;
  changed.slice = 8;
  CHECK(refusal(data, changed, state) == "resume: the state is of another order: its slice was 4 and is 8");
  CHECK_THAT(refusal(other, o, state), Catch::Matchers::Contains("its index (digest) was"));
  std::string newer = state;
  newer.replace(newer.find("\"version\":2"), 11, "\"version\":5");
  CHECK(refusal(data, o, newer) == "resume: the state has version 5; this program reads versions 1 to 4");
  CHECK(refusal(data, o, state.substr(0, 40)) == "resume: the state is not one intact JSON document");
  CHECK(refusal(data, o, "{}") == "resume: the state is not one of epochs()");
  CHECK(refusal(data, o, test::without_check_word(state)) == "not refused");
  std::string beyond = state;
  beyond.replace(beyond.find("\"position\":12"), 13, "\"position\":13");
  CHECK(refusal(data, o, beyond) == "resume: the state is damaged: its check word is not that of its members");
  beyond = test::without_check_word(state);
  beyond.replace(beyond.find("\"position\":12"), 13, "\"position\":123");
  CHECK_THAT(refusal(data, o, beyond), Catch::Matchers::Contains("at sample 123 of an epoch of 123"));
  changed = o;
  changed.first_epoch = 1;
  CHECK_THAT(refusal(data, changed, state), Catch::Matchers::Contains("in epoch 0, which is not one of this training"));
  CHECK(data.store->requests == 0);
  // At the end of an epoch the order may become another one.
  const std::string end = delivered_by(data.open(o), 4, 31).state;
  CHECK(epoch_state::parse(end).position == 0);
  changed = o;
  changed.tracks = 24;
  CHECK(refusal(other, changed, end) == "not refused");
  changed.seed = 6;
  CHECK_THAT(refusal(data, changed, end), Catch::Matchers::Contains("its seed was 5"));
}

TEST_CASE("tracks that are left to epochs() are those of the state after a resume, on any number of ranks") {
  const tar_dataset data({600, 900, 3, 1500}, 100);
  test::settings o{.seed = 5, .epochs = 3, .batch = 4};
  o.slice = 8;
  o.rank.world_size = 2;
  const std::uint64_t of_two = default_tracks(*data.indexes, 8, 2);
  const std::uint64_t of_three = default_tracks(*data.indexes, 8, 3);
  REQUIRE(of_two != of_three);
  const auto keys_from = [&](const test::settings& how, std::size_t batches) {
    return delivered_by(data.open(how), 4, batches);
  };
  const auto keys_of = [](const delivered& d) {
    std::vector<std::string> keys;
    for (const auto& [place, key] : d.samples) keys.push_back(key);
    return keys;
  };
  const delivered begun = keys_from(o, 5);
  CHECK(epoch_state::parse(begun.state).tracks == of_two);
  // What comes next on three ranks is what the order of two says, in this epoch and in the next ones.
  const std::vector<std::string> order = data.order(5, 0, {.tracks = of_two, .slice = 8});
  o.rank = {.index = 0, .world_size = 3};
  o.resume = begun.state;
  const delivered resumed = keys_from(o, 3);
  CHECK(epoch_state::parse(resumed.state).tracks == of_two);
  const rank_share share(of_two, 0, 3);
  std::vector<std::string> expected;
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (const std::uint64_t g : share.positions({40 + 12 * step, 12})) {
      expected.push_back(order[static_cast<std::size_t>(g)]);
    }
  }
  CHECK(keys_of(resumed) == expected);
  // A state of the default of 960 that there was before goes on, too; a number that is given is kept.
  o = {.seed = 5, .epochs = 3, .batch = 4};
  o.slice = 8;
  o.tracks = 960;
  const delivered before = keys_from(o, 5);
  o.tracks = 0;
  o.resume = before.state;
  const delivered after = keys_from(o, 5);
  CHECK(epoch_state::parse(after.state).tracks == 960);
  const std::vector<std::string> old = data.order(5, 0, {.tracks = 960, .slice = 8});
  CHECK(keys_of(after) == std::vector<std::string>(old.begin() + 20, old.begin() + 40));
  CHECK_THAT(data.open(o).plan(), Catch::Matchers::Contains("Chosen: 960 tracks of slices of 8 samples, those of the "
                                                            "state; "));
  // So do the slices of a state.
  o.slice = 0;
  REQUIRE(default_slice(*data.indexes, 2) != 8);
  CHECK(keys_of(keys_from(o, 5)) == std::vector<std::string>(old.begin() + 20, old.begin() + 40));
  o.tracks = 960;
  o.bytes = 64 * MiB;
  CHECK(keys_of(keys_from(o, 5)) == std::vector<std::string>(old.begin() + 20, old.begin() + 40));
  CHECK_THAT(data.open(o).plan(), Catch::Matchers::Contains("Chosen: slices of 8 samples, those of the state."));
  o.bytes = 0;
  o.slice = 16;
  CHECK_THROWS_AS(data.open(o), configuration_error);
  o.slice = 8;
  o.tracks = 24;
  CHECK_THROWS_AS(data.open(o), configuration_error);
  // At an epoch's beginning the index may be another: then so are the tracks.
  o.tracks = 0;
  o.epochs = 1;
  o.resume = {};
  const std::string end = delivered_by(data.open(o), 4).state;
  const tar_dataset other({100}, 100);
  o.epochs = 2;
  o.resume = end;
  CHECK(epoch_state::parse(delivered_by(other.open(o), 4, 1).state).tracks == default_tracks(*other.indexes, 8, 1));
}

TEST_CASE("memory is used again before more is touched, unless the consumer waits") {
  const tar_dataset data({1000, 1000}, 20000);
  test::settings o{.seed = 5, .epochs = 2, .batch = 10};
  o.tracks = 8;
  o.slice = 8;
  o.part = 64 * KiB;
  o.bytes = 64 * MiB;
  const auto peak = [&](bool waits) {
    data.store->delay_us = 0;
    data.store->first_byte = waits ? std::chrono::milliseconds(20) : std::chrono::milliseconds(0);
    testing::virtual_loop loop;
    std::size_t most = 0;
    const auto take = [](stream<sample> in, bool slow, const test::dataset_store* of, std::size_t* held) -> task<void> {
      std::uint64_t bytes = 0;
      while (std::optional<sample> s = co_await in.next()) {
        bytes += s->fields[0].data.size();
        const std::uint64_t read = of->read_bytes;
        *held = std::max(*held, static_cast<std::size_t>(read > bytes ? read - bytes : 0));
        if (!slow) co_await sleep_for(std::chrono::milliseconds(1));
      }
    };
    block_on(loop, take(data.open(o), waits, data.store.get(), &most));
    return most;
  };
  const std::size_t without = peak(false);
  const std::size_t with = peak(true);
  INFO(without << " " << with);
  CHECK(without < 24 * MiB);
  CHECK(with > without);
}

TEST_CASE("what is wrong with an object is an error at its place, with the object, the byte and the reason") {
  test::settings o{.batch = 4};
  o.tracks = 6;
  o.slice = 4;
  o.ahead = 8;
  const auto failure = [&](tar_dataset& data) {
    testing::virtual_loop loop;
    delivered out;
    try {
      block_on(loop, test::take_batches_of(data.open(o), 4, 1000, out));
    } catch (const error& e) {
      CHECK(loop.frames() == 0);
      return std::to_string(out.samples.size()) + " " + e.what();
    }
    return std::string("no error");
  };
  // How many samples come before the first one of the third shard, and where the request for it begins.
  tar_dataset whole({10, 10, 10}, 200);
  const std::vector<std::string> keys = whole.order(0, 0, {.tracks = 6, .slice = 4});
  const auto at = std::find_if(keys.begin(), keys.end(), [](const std::string& k) { return k.substr(0, 2) == "s2"; });
  const std::string before = std::to_string(at - keys.begin());
  CHECK(failure(whole) == "no error");
  {
    tar_dataset data({10, 10, 10}, 200);
    data.store->missing = "mem:102.tar";
    CHECK_THAT(failure(data),
               Catch::Matchers::Matches(before + " mem:102.tar at byte [0-9]+: there is no such object"));
  }
  {
    tar_dataset data({10, 10, 10}, 200);
    data.store->cut = "mem:102.tar";
    CHECK_THAT(failure(data), Catch::Matchers::Matches(
                                  before + " mem:102.tar at byte [0-9]+: read ([0-9]+) bytes instead of ([0-9]+)"));
  }
  {
    tar_dataset data({10, 10, 10}, 200);
    data.store->etag = "\"v2\"";
    CHECK_THAT(failure(data),
               Catch::Matchers::Matches("0 mem:10.\\.tar at byte [0-9]+: the index \"10.\\.tar\" is of another "
                                        "version of this shard: it is no longer the version \"v1\""));
  }
  {
    tar_dataset data({10, 10, 10}, 200);
    const auto number = static_cast<std::size_t>(std::stoi(at->substr(3)));
    const shard_index::field f = (*data.indexes)[2].field_at(number, 1);
    data.store->objects["mem:102.tar"][static_cast<std::size_t>(f.offset)] ^= 1;
    CHECK_THAT(failure(data), Catch::Matchers::Matches(
                                  before + " mem:102.tar at byte " + std::to_string(f.offset) + ", " + *at +
                                  ": the CRC32C of field \"txt\" is [0-9a-f]+ and not [0-9a-f]+ as in the index"));
    o.verify = false;
    CHECK(failure(data) == "no error");
    o.verify = true;
    // An invalid header.
    std::string& object = data.store->objects["mem:102.tar"];
    object[static_cast<std::size_t>((*data.indexes)[2].offset(number))] ^= 1;
    CHECK_THAT(failure(data), Catch::Matchers::StartsWith(before + " mem:102.tar at byte "));
  }
  {
    // Members that lie where others did, under other names.
    tar_dataset data({10, 10, 10}, 0);
    data.store->objects["mem:102.tar"] = data.store->objects["mem:101.tar"];
    o.verify = false;
    CHECK_THAT(failure(data),
               Catch::Matchers::Matches(before + " mem:102.tar at byte [0-9]+, s1/[0-9]+: the index \"102.tar\" "
                                                 "has another sample at this place"));
  }
}

TEST_CASE("options that contradict each other are refused before anything is read") {
  const tar_dataset data({10}, 200);
  const auto refusal = [&](const test::settings& o) {
    try {
      const stream<sample> in = data.open(o);
      return std::string("not refused");
    } catch (const configuration_error& e) {
      return std::string(e.what());
    }
  };
  CHECK_THAT(refusal({.part = 0}), Catch::Matchers::Contains(".part"));
  CHECK_THAT(refusal({.rank = {.index = 2, .world_size = 2}}), Catch::Matchers::Contains("rank 2 does not exist"));
  CHECK_THAT(refusal({.rank = {.index = 0, .world_size = 2}, .pad = false}), Catch::Matchers::Contains(".pad"));
  CHECK_THAT(refusal({.tracks = (1U << 24) + 1}), Catch::Matchers::Contains("tracks"));
  CHECK_THAT(refusal({.first_epoch = UINT64_MAX}), Catch::Matchers::Contains(".epochs"));
  CHECK_THROWS_AS(test::train_on(std::make_shared<const index_set>(std::vector<shard_index>()),
                         std::shared_ptr<const storage>(data.store), {}),
                  configuration_error);
  CHECK_THROWS_AS(test::train_on(data.indexes, std::shared_ptr<const storage>(data.store), {.prefix = "s3:"}),
                  configuration_error);
}

TEST_CASE("samples know their epoch's random numbers; padding has none") {
  const tar_dataset data({5}, 100);
  testing::virtual_loop loop;
  auto all = [](stream<sample> in) -> task<std::vector<sample>> {
    std::vector<sample> out;
    while (std::optional<sample> s = co_await in.next()) out.push_back(std::move(*s));
    co_return std::move(out);
  };
  const std::vector<sample> got =
      block_on(loop, all(data.open({.seed = 3, .epochs = 2, .first_epoch = 4, .batch = 4})));
  REQUIRE(got.size() == 16);
  std::set<std::uint64_t> drawn;
  for (const sample& s : got) {
    if (s.weight() == 0) {
      CHECK(s.key.empty());
      CHECK(s.fields.empty());
      CHECK_FALSE(s.from);
      continue;
    }
    const std::string url = "mem:100.tar";
    CHECK(s.random(1).next() == sample_rng(3, s.mark.epoch, detail::text_hash(url), s.from.ordinal, 1).next());
    drawn.insert(s.random(1).next());
  }
  CHECK(drawn.size() == 10);
  CHECK(got[7].mark.last);
  CHECK_FALSE(got[6].mark.last);
  CHECK(got[8].mark.epoch == 5);
  // Without padding the last batch is shorter.
  CHECK(block_on(loop, all(data.open({.batch = 4, .pad = false}))).size() == 5);
}

TEST_CASE("the members of a group of ranks get the same samples, whatever their timing, and the groups each sample") {
  const tar_dataset data({17, 20, 1, 24}, 400, 11);
  data.store->delay_us = 3000;
  const auto member_of = [&](std::uint32_t process) {  // four processes, in groups of two
    test::settings o{.seed = 5, .epochs = 2, .batch = 4, .rank = {.index = process / 2, .world_size = 2}};
    o.tracks = 12;
    o.slice = 4;
    return delivered_by(data.open(o), 4, 1000, process);
  };
  const delivered first = member_of(0);
  const delivered same = member_of(1);
  const delivered other = member_of(2);
  CHECK(first.samples == same.samples);
  CHECK(first.empty == same.empty);
  CHECK(first.state == same.state);
  CHECK(other.samples == member_of(3).samples);
  CHECK(first.batches == other.batches);

  std::set<std::pair<std::uint64_t, std::string>> all(first.samples.begin(), first.samples.end());
  all.insert(other.samples.begin(), other.samples.end());
  CHECK(first.samples.size() + other.samples.size() == 2 * 62);
  CHECK(all.size() == 2 * 62);
}

namespace {

/// A store whose every answer is of another version, whatever version is asked for.
class changing_store final : public forwarding_storage {
 public:
  explicit changing_store(std::shared_ptr<const storage> of) : forwarding_storage(std::move(of)) {}
  task<part> read(shard object, std::string, std::uint64_t offset, std::size_t length, slab_pool slabs) const override {
    std::string any;
    part p = co_await inner()->read(std::move(object), std::move(any), offset, length, std::move(slabs));
    p.etag = "\"v" + std::to_string(++answers_) + '"';
    co_return std::move(p);
  }

 private:
  mutable int answers_ = 0;
};

}  // namespace

TEST_CASE("where the index has no ETag, parts of two versions of an object are an error") {
  auto store = std::make_shared<test::dataset_store>(1);
  store->etag.clear();
  const tar_dataset data({64}, 500, 1, {}, store);
  REQUIRE((*data.indexes)[0].etag().empty());
  test::settings o{.batch = 4};
  o.tracks = 4;
  o.slice = 4;
  o.prefix = data.prefix;
  stream<sample> in = test::train_on(data.indexes, std::make_shared<const changing_store>(store), o);
  CHECK_THROWS_WITH(delivered_by(std::move(in), 4), Catch::Matchers::Contains("the object changed while it was read"));
}

TEST_CASE("of the ranks that go on from one state, the first alone takes over its losses") {
  const tar_dataset data(uneven_counts, 300);
  epoch_state at;
  at.seed = 5;
  at.position = 40;
  at.tracks = 12;
  at.slice = 8;
  at.index = data.indexes->digest();
  at.holes = {{3, 2}};
  at.other_holes = 1;
  const std::string text = at.text();
  for (const std::uint32_t r : {0U, 1U, 2U}) {
    INFO(r);
    test::settings o{.seed = 5, .batch = 4, .rank = {.index = r, .world_size = 3}};
    o.tracks = 12;
    o.slice = 8;
    o.resume = text;
    const delivered out = delivered_by(data.open(o), 4);
    CHECK((out.state.find("holes") != std::string::npos) == (r == 0));
    CHECK(out.lost.empty() == (r != 0));
  }
}

TEST_CASE("a request spans no gap that is larger than .gap says") {
  const tar_dataset data({40, 41, 42}, 3000);
  for (const std::size_t gap : {std::size_t(0), 2 * KiB, 6 * KiB, 64 * KiB}) {
    const sample_order order(data.indexes->counts(), 7, 0, {.tracks = 1, .slice = 123});
    std::size_t ranges = 0;
    for (std::uint64_t first = 0; first + 12 <= 123; first += 12) {
      const std::uint64_t count = std::min<std::uint64_t>(12, detail::left_of_slice(order, 0, first));
      detail::slice_piece piece(*data.indexes, order, 0, first, count, MiB, gap);
      ranges += piece.ranges().size();
      for (std::size_t k = 0; k < piece.ranges().size(); ++k) {
        std::map<std::uint64_t, std::uint64_t> samples;  // of the request, by their begin
        for (std::uint64_t i = first; i < first + count; ++i) {
          const auto& w = piece.at(i);
          if (w.range != k) continue;
          const auto n = static_cast<std::size_t>(w.place.ordinal);
          const shard_index& index = (*data.indexes)[static_cast<std::size_t>(w.place.shard)];
          samples.emplace(index.offset(n), index.end(n));
        }
        REQUIRE_FALSE(samples.empty());
        std::uint64_t end = samples.begin()->first;
        for (const auto& [begin, its_end] : samples) {
          CHECK(begin - end <= gap);
          end = its_end;
        }
      }
    }
    CHECK(ranges > 0);
  }
}

TEST_CASE("where ranks share tracks, what another rank has taken of a piece is let go") {
  const tar_dataset data({3000}, 300);
  test::settings o{.seed = 3, .batch = 2, .rank = {.index = 1, .world_size = 4}};
  o.tracks = 7;
  o.slice = 64;
  o.bytes = 256 * KiB;
  o.ahead = 64;
  delivered_by(data.open(o), 2);
  // 160 requests. Pieces that were kept would take the room for others, which were then read sample by sample: 258.
  CHECK(data.store->requests <= 200);
}

TEST_CASE("a state of an epoch that the training does not have is refused; after the last one nothing comes") {
  const tar_dataset data(uneven_counts, 300);
  epoch_state at;
  at.seed = 5;
  at.index = data.indexes->digest();
  test::settings o{.seed = 5, .epochs = 2, .first_epoch = 3, .batch = 4};
  at.tracks = o.tracks;
  at.slice = default_slice(*data.indexes, 1);
  const auto resumed = [&](std::uint64_t epoch) {
    at.epoch = epoch;
    const std::string text = at.text();
    o.resume = text;
    return delivered_by(data.open(o), 4).samples.size();
  };
  CHECK(resumed(3) == 246);
  CHECK(resumed(4) == 123);
  CHECK(resumed(5) == 0);
  for (const std::uint64_t epoch : {2U, 6U}) {
    CHECK_THROWS_WITH(resumed(epoch), Catch::Matchers::Contains("is in epoch " + std::to_string(epoch) +
                                                                ", which is not one of this training"));
  }
}
