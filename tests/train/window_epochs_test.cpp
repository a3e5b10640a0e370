// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/dataset.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/bucket_by_length.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/records/pack.hpp>
#include <millrace/train/detail/training_plan.hpp>
#include <millrace/train/detail/window_order.hpp>
#include <millrace/train/detail/window_position.hpp>
#include <millrace/train/equal_batches.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/train/rank_threads.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::tar_dataset;
using test::delivered;
using test::delivered_by;

namespace {

std::vector<shard> list_of(const tar_dataset& data) {
  std::vector<shard> all;
  for (const auto& [url, content] : data.store->objects) all.emplace_back(url, content.size(), data.store->etag);
  std::swap(all.front(), all.back());  // a list has no order that counts
  return all;
}

test::settings small(std::uint64_t epochs, std::size_t batch) {
  test::settings o{.seed = 3, .epochs = epochs, .batch = batch};
  o.streamed = true;
  o.shards = 3;
  o.window = 20;
  return o;
}

stream<sample> open(const tar_dataset& data, const test::settings& o) {
  return test::train_on(from_range(list_of(data)), std::shared_ptr<const storage>(data.store), o);
}

std::vector<std::string> keys_of(const delivered& d) {
  std::vector<std::string> out;
  for (const auto& [position, key] : d.samples) out.push_back(std::to_string(position >> 32) + ":" + key);
  return out;
}

std::uint64_t epoch_of_state(const std::string& text) { return epoch_state::parse(text).epoch; }

std::string failure_of(const tar_dataset& data, const test::settings& o) {
  try {
    delivered_by(open(data, o), o.batch);
    return "no error";
  } catch (const error& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("without an index every sample comes once an epoch, shuffled, and the last batch is filled up") {
  const tar_dataset data({17, 20, 0, 9, 30}, 400);
  const delivered got = delivered_by(open(data, small(2, 8)), 8);
  CHECK(got.samples.size() == 2 * 76);
  CHECK(got.padding == 2 * 4);
  const std::vector<std::string> keys = keys_of(got);
  CHECK(std::set<std::string>(keys.begin(), keys.end()).size() == 2 * 76);
  CHECK(!std::is_sorted(keys.begin(), keys.begin() + 20));
  CHECK(got.batches == std::vector<std::uint64_t>{10, 10});
  CHECK_THAT(got.state, Contains("\"epoch\":2,\"position\":0,"));
  // The same whatever the timing.
  data.store->delay_us = 5000;
  for (std::uint64_t seed = 1; seed < 4; ++seed) {
    test::settings o = small(2, 8);
    o.ahead = 1 + 30 * seed;
    CHECK(keys_of(delivered_by(open(data, o), 8, SIZE_MAX / 65536, seed)) == keys);
  }
  test::settings one = small(1, 1);
  one.window = one.shards = 1;
  std::vector<std::string> in_order = keys_of(delivered_by(open(data, one), 1));
  for (std::size_t i = 1; i < in_order.size(); ++i) {
    const std::string& a = in_order[i - 1];
    const std::string& b = in_order[i];
    if (a.substr(0, 4) == b.substr(0, 4)) CHECK(std::stoi(a.substr(5)) + 1 == std::stoi(b.substr(5)));
  }
}

TEST_CASE("without an index a run begins with one part of each open shard, and opens the next ones after a batch") {
  const tar_dataset data({400, 400, 400, 400, 400, 400}, 20'000);
  data.store->first_byte = std::chrono::milliseconds(1);
  test::settings o = small(1, 8);
  o.shards = 4;
  o.window = 40;
  o.bytes = 12 * MiB;  // of which each shard has 2 MiB, so that parts are of 512 KiB at most
  delivered_by(open(data, o), 8, 1);
  CHECK(data.store->asked_first <= 4 * 512 * KiB);
  CHECK(data.store->most_busy == 4);
  CHECK(data.store->read_bytes <= 4 * MiB);
  delivered_by(open(data, o), 8, 30);
  CHECK(data.store->most_busy > 4);
}

TEST_CASE("a training without an index goes on with the very next sample, and reads little again") {
  const tar_dataset data({170, 200, 0, 90, 300, 250}, 3000);
  test::settings o = small(2, 8);
  o.window = 100;
  const std::vector<std::string> whole = keys_of(delivered_by(open(data, o), 8));
  CHECK(whole.size() == 2 * 1010);
  for (const std::size_t stop : {1, 20, 100, 126, 127, 128, 200, 254}) {
    INFO("stopped after batch " << stop);
    const delivered first = delivered_by(open(data, o), 8, stop);
    CHECK(first.state.size() < 700 + 16 * 100);
    test::settings later = o;
    later.resume = first.state;
    {
      const stream<sample> again = open(data, later);
      CHECK(again.position()->state(epoch_mark()) == first.state);
    }
    const delivered second = delivered_by(open(data, later), 8);
    std::vector<std::string> both = keys_of(first);
    for (std::string& key : keys_of(second)) both.push_back(std::move(key));
    CHECK(both == whole);
  }
}

TEST_CASE("a state without an index is refused, by name, where the order would be another") {
  const tar_dataset data({17, 20, 9, 30}, 400);
  test::settings o = small(2, 8);
  const std::string state = delivered_by(open(data, o), 8, 3).state;
  const auto refused = [&](auto change) {
    test::settings other = o;
    other.resume = state;
    change(other);
    return failure_of(data, other);
  };
  CHECK(refused([](test::settings&) {}) == "no error");
  CHECK(refused([](test::settings& x) { x.batch = 5; }) == "no error");
  CHECK(refused([](test::settings& x) { x.ahead = 7; }) == "no error");
  CHECK_THAT(refused([](test::settings& x) { x.seed = 4; }), Contains("its seed was 3 and is 4"));
  CHECK_THAT(refused([](test::settings& x) { x.shards = 2; }), Contains("open shards (.shards) was 3 and is 2"));
  CHECK_THAT(refused([](test::settings& x) { x.window = 21; }), Contains("its window was 20 and is 21"));
  CHECK_THAT(refused([](test::settings& x) { x.window_bytes = MiB; }), Contains("window's bytes"));
  CHECK_THAT(refused([](test::settings& x) {
               x.rank = {.index = 1, .world_size = 2};
               x.uneven = true;
             }),
             Contains("its rank was 0 and is 1"));
  CHECK_THAT(refused([](test::settings& x) { x.first_epoch = 1; }), Contains("in epoch 0, which is not one of this"));
  CHECK_THAT(refused([](test::settings& x) {
               x.streamed = false;
               x.index_file = "not there";
             }),
             Contains("without an index"));
  const std::string unchecked = test::without_check_word(state);
  for (const std::size_t at : {unchecked.find("\"place\"") + 20, unchecked.size() - 10}) {
    std::string damaged = unchecked;
    damaged[at] = damaged[at] == 'A' ? 'B' : 'A';
    test::settings other = o;
    other.resume = damaged;
    CHECK_THAT(failure_of(data, other), Contains("\"place\" of the state is damaged"));
  }
  // Another version of a shard of the window, as the list says, and as only the store says.
  data.store->etag = "\"v2\"";
  CHECK_THAT(refused([](test::settings&) {}), Contains("its ETag was \"v1\" and is \"v2\"") && Contains("mem:10"));
}

TEST_CASE("what a resume without an index reads is what was not delivered") {
  const tar_dataset data({300, 200, 90, 300, 250}, 3000);
  std::uint64_t all = 0;
  for (const auto& [url, content] : data.store->objects) all += content.size();
  test::settings o = small(1, 8);
  o.window = 200;
  for (const std::size_t stop : {10, 60, 120, 140}) {
    INFO("stopped after batch " << stop);
    const delivered first = delivered_by(open(data, o), 8, stop);
    std::uint64_t taken = 0;  // bytes of the archives
    for (const auto& [position, key] : first.samples) {
      const std::size_t n = static_cast<std::size_t>(key[1] - '0');
      const auto i = static_cast<std::size_t>(std::stoul(key.substr(3)));
      const shard_index& index = (*data.indexes)[n];
      taken += (index.end(i) - index.offset(i) + 511) / 512 * 512;
    }
    for (const std::size_t gap : {0, 4000}) {
      test::settings later = o;
      later.resume = first.state;
      later.gap = gap;
      data.store->read_bytes = data.store->requests = 0;
      delivered_by(open(data, later), 8);
      CHECK(data.store->read_bytes <= all - taken + 200 * gap);
      CHECK(data.store->requests < (gap == 0 ? 230 : 120));
    }
  }
}

TEST_CASE("after a resume a shard that is another version is refused, also where no list says its ETag") {
  const tar_dataset data({17, 20, 9, 30}, 400);
  const auto unlisted = [&](const test::settings& o) {
    std::vector<shard> list;
    for (const auto& [url, content] : data.store->objects) list.emplace_back(url);
    return test::train_on(from_range(std::move(list)), std::shared_ptr<const storage>(data.store), o);
  };
  test::settings o = small(2, 8);
  const std::string state = delivered_by(unlisted(o), 8, 3).state;
  o.resume = state;
  CHECK(delivered_by(unlisted(o), 8).samples.size() == 2 * 76 - 24);
  data.store->etag = "\"v2\"";
  CHECK_THROWS_WITH(delivered_by(unlisted(o), 8), Contains("no longer the version \"v1\"") && Contains("mem:10"));
  // The same version, and yet the sample is not where it was.
  data.store->etag = "\"v1\"";
  for (auto& [url, content] : data.store->objects) content = std::string(1536, '\0') + content;
  CHECK_THROWS_AS(delivered_by(unlisted(o), 8), error);
}

TEST_CASE("the state of a run without an index is after the batch in hand, whatever was made ahead") {
  const tar_dataset data({170, 200, 0, 90, 300}, 500);
  test::settings o = small(2, 8);
  o.window = 50;
  std::vector<std::string> states;
  std::vector<std::string> whole;
  for (std::size_t n = 0; n < 40; ++n) states.push_back(delivered_by(open(data, o), 8, n).state);
  whole = keys_of(delivered_by(open(data, o), 8));
  runtime rt;
  for (const std::size_t stop : {0, 1, 7, 39}) {
    INFO("stopped after batch " << stop);
    std::vector<std::string> both;
    std::string state;
    {
      auto run = rt.run(open(data, o) | batch(8), {.prefetch = 5});
      std::size_t n = 0;
      if (stop == 0) CHECK(epoch_of_state(run.state()) == 0);
      if (stop != 0) {
        for (const std::vector<sample>& b : run) {
          for (const sample& s : b) both.push_back(std::to_string(s.mark.epoch) + ":" + s.key);
          ++n;
          if (n % 3 == 0 || n == stop) CHECK(run.state() == states[n]);
          if (n == stop) break;
        }
      }
      state = run.state();
      CHECK(!run.batches());
    }
    test::settings later = o;
    later.resume = state;
    auto run = rt.run(open(data, later) | batch(8), {.prefetch = 2});
    CHECK(run.state() == state);
    for (const std::vector<sample>& b : run) {
      for (const sample& s : b) {
        if (s.weight() != 0) both.push_back(std::to_string(s.mark.epoch) + ":" + s.key);
      }
    }
    CHECK(both == whole);
    CHECK_THAT(run.state(), Contains("\"epoch\":2,\"position\":0,"));
  }
}

TEST_CASE("ranks without an index have equal batches, and go on together from the state of each") {
  constexpr std::size_t world = 3;
  for (const uneven how : {uneven::pad, uneven::stop, uneven::drop}) {
    for (const std::size_t stop : {1, 9, 14, 18, 19, 25}) {
      INFO("how " << static_cast<int>(how) << ", stopped after batch " << stop);
      std::vector<std::vector<std::string>> whole(world);
      std::vector<std::vector<std::string>> both(world);
      const auto train = [&](std::size_t r, test::thread_gather& gather, const std::string& saved, std::size_t most,
                             std::vector<std::string>& out) {
        const tar_dataset data({60, 20, 0, 9, 30, 47, 55}, 400);
        const rank_group mine = gather.group(r);
        const equal_batches equal(4, how, mine);
        test::settings o = small(2, 4);
        o.ranks = mine;
        o.equal = &equal;
        o.resume = saved;
        runtime rt;
        auto run = rt.run(open(data, o) | batch(4));
        auto together = equal.of(run);
        std::string state = run.state();
        for (const std::vector<sample>& b : together) {
          for (const sample& s : b) {
            out.push_back(s.weight() == 0 ? "-" : std::to_string(s.mark.epoch) + ":" + s.key);
          }
          state = run.state();
          if (--most == 0) break;
        }
        return state;
      };
      test::thread_gather gather(world);
      CHECK(test::on_ranks(world, [&](std::size_t r) { train(r, gather, "", SIZE_MAX, whole[r]); }) ==
            std::vector<std::string>(world));
      std::vector<std::string> states(world);
      test::thread_gather before(world);
      CHECK(test::on_ranks(world, [&](std::size_t r) { states[r] = train(r, before, "", stop, both[r]); }) ==
            std::vector<std::string>(world));
      test::thread_gather after(world);
      CHECK(test::on_ranks(world, [&](std::size_t r) { train(r, after, states[r], SIZE_MAX, both[r]); }) ==
            std::vector<std::string>(world));
      CHECK(both == whole);
      CHECK(whole[0].size() == whole[2].size());
    }
  }
}

TEST_CASE("without passed(), what a state needs is kept for a million samples, not for all",
          "[slow]") {
  test::settings o = small(1, 1);
  epoch_state streamed;
  streamed.streamed = {o.shards, o.window, o.window_bytes, {}, {}};
  const auto asked = std::make_shared<const detail::training_plan>(o.training(), streamed, "");
  detail::window_position position(asked);
  std::vector<shard> list;
  list.emplace_back("mem:1.tar", GiB, "v1");
  const auto plan = std::make_shared<const detail::window_plan>(std::move(list), *asked);
  detail::window_order order = position.begin(plan);
  const auto mark_behind = [](std::uint64_t n) {
    epoch_mark m;
    m.known = true;
    m.next = n;
    return m;
  };
  std::uint64_t offset = 0;
  const auto go_on = [&](std::uint64_t samples) {
    while (order.count() < samples) {
      if (order.pulls()) {
        position.note(detail::window_order::event::taken(offset, offset + 512));
        order.take(offset, offset + 512);
        offset += 512;
      } else {
        position.note(detail::window_order::event::drawn());
        order.draw();
      }
    }
  };
  go_on(1000);
  CHECK_THAT(position.state(mark_behind(10)), Contains("\"position\":10,"));
  go_on(2000000);
  CHECK_THROWS_AS(position.state(mark_behind(500000)), usage_error);
  const std::string state = position.state(mark_behind(2000000));
  CHECK_THAT(state, Contains("\"position\":2000000,"));
  CHECK(state.size() < 600);
}

TEST_CASE("an object that is no tar is named for what it is, also by epochs() without an index") {
  const std::vector<std::pair<std::string, std::string>> kinds{
      {"<!DOCTYPE html><html><body>403</body></html>", "XML or HTML, perhaps a server's error message"},
      {"<?xml version=\"1.0\"?><Error><Code>SlowDown</Code></Error>", "XML or HTML, perhaps a server's error message"},
      {"{\"error\": \"no such file\"}", "JSON"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n", "a pointer of Git LFS"},
      {std::string("\x1f\x8b\x08\0\0\0\0\0\0\3", 10), "gzip"},
      {"Not Found", "text"},
  };
  for (const auto& [content, what] : kinds) {
    for (const std::size_t padded : {content.size(), std::size_t{4096}}) {
      tar_dataset data({8, 8}, 200);
      data.store->objects["mem:101.tar"] = content + std::string(padded - content.size(), padded == 4096 ? ' ' : 'x');
      INFO(content << ", " << padded << " bytes");
      CHECK_THAT(failure_of(data, small(1, 4)), Contains("mem:101.tar at byte ") && Contains("but " + what));
    }
  }
}

TEST_CASE("options that contradict each other are refused where there is no index") {
  const tar_dataset data({3, 3}, 10);
  const auto refused = [&](auto change) {
    test::settings o = small(1, 2);
    change(o);
    return failure_of(data, o);
  };
  CHECK_THAT(refused([](test::settings& o) { o.window = 0; }), Contains(".window"));
  CHECK_THAT(refused([](test::settings& o) { o.shards = 0; }), Contains(".shards"));
  CHECK_THAT(refused([](test::settings& o) { o.rank.world_size = 2; }), Contains(".uneven = true"));
  CHECK_THAT(refused([](test::settings& o) {
               o.rank.world_size = 3;
               o.uneven = true;
             }),
             Contains("2 shards for 3 ranks"));
}

namespace {

/// What a training gives, batch by batch, and its state after each; that of the beginning first.
class training {
 public:
  std::vector<std::string> batches, states;
};

std::string text_of(const marked_batch<sample>& b) {
  std::string all;
  for (const sample& s : b) all += s.key + ' ';
  return all;
}
std::string text_of(const std::vector<packed_sequence>& b) {
  std::string all;
  for (const std::int32_t token : b[0].tokens) all += std::to_string(token) + ' ';
  return all;
}

template <class Open>
training trained(const Open& opened, const test::settings& o) {
  training out;
  runtime rt;
  auto run = rt.run(opened(o));
  out.states.push_back(run.state());
  while (const auto b = run.next()) {
    out.batches.push_back(text_of(*b));
    out.states.push_back(run.state());
  }
  return out;
}

/// Runs it from each of its states; how many of them are `inside`.
template <class Open>
std::size_t goes_on_from_everywhere(const Open& opened, test::settings o) {
  const training whole = trained(opened, o);
  REQUIRE(whole.batches.size() > 20);
  std::size_t inside = 0;
  for (std::size_t n = 0; n < whole.states.size(); ++n) {
    INFO("after batch " << n << ": " << whole.states[n]);
    inside += whole.states[n].find("\"taken\"") != std::string::npos;
    o.resume = whole.states[n];
    const training rest = trained(opened, o);
    const auto at = static_cast<std::ptrdiff_t>(n);
    CHECK(rest.batches == std::vector<std::string>(whole.batches.begin() + at, whole.batches.end()));
    CHECK(rest.states == std::vector<std::string>(whole.states.begin() + at, whole.states.end()));
  }
  return inside;
}

/// All of the data, or half of it.
test::settings of_rank(std::uint32_t world) {
  test::settings o = small(2, 4);
  o.rank = {.index = 0, .world_size = world};
  o.uneven = world > 1;
  return o;
}

auto bucketed(const tar_dataset& data, std::size_t window = 16) {
  return [&data, window](const test::settings& o) {
    return open(data, o) | bucket_by_length([](const sample& s) { return s.weight() == 0 ? 0 : s.find("bin")->size(); },
                                            {.batch = 4, .window = window});
  };
}

/// Documents of 8 tokens, those that fill up too.
auto packed(const tar_dataset& data, std::size_t length) {
  return [&data, length](const test::settings& o) {
    const auto document = [](const sample& s) {
      const auto token = static_cast<std::int32_t>(std::hash<std::string>()(s.key) % 1000003);
      return token_document(std::vector<std::int32_t>(8, token), s.mark);
    };
    return open(data, o) | map(document) | pack(length) | batch(1);
  };
}

}  // namespace

TEST_CASE("after buckets of lengths a training without an index goes on from every batch") {
  const tar_dataset data({40, 37, 30, 30}, 300);
  for (const std::uint32_t world : {1U, 2U}) {
    INFO(world << " ranks");
    CHECK(goes_on_from_everywhere(bucketed(data), of_rank(world)) > 10);
  }
}

TEST_CASE("after pack() a training without an index goes on from every sequence, and packs what fills up no batch",
          "[slow]") {
  const tar_dataset data({40, 37, 30, 30}, 300);
  for (const std::uint32_t world : {1U, 2U}) {
    INFO(world << " ranks");
    CHECK(goes_on_from_everywhere(packed(data, 12), of_rank(world)) > 10);
    CHECK(goes_on_from_everywhere(packed(data, 8), of_rank(world)) == 0);
  }
  const training whole = trained(packed(data, 8), of_rank(1));
  CHECK(whole.batches.size() == 2 * 137);
}

TEST_CASE("a state inside a window or a document is refused without an index where it would not hold") {
  const tar_dataset data({40, 37}, 300);
  test::settings o = small(1, 4);
  const auto inside = [](const training& t) {
    return *std::find_if(t.states.begin(), t.states.end(),
                         [](const std::string& s) { return s.find("\"taken\"") != std::string::npos; });
  };
  const std::string in_window = inside(trained(bucketed(data), o));
  const std::string in_document = inside(trained(packed(data, 12), o));
  o.resume = in_window;
  CHECK_THROWS_WITH(trained(bucketed(data, 32), o), Contains("the same options of that stage"));
  CHECK_THROWS_WITH(trained(packed(data, 12), o), Contains("the same options of that stage"));
  o.resume = in_document;
  CHECK_THROWS_WITH(trained(bucketed(data), o), Contains("the same options of that stage"));
  runtime rt;
  CHECK_THROWS_WITH(rt.run(open(data, o) | batch(4)), Contains("the same options of that stage"));
  const tar_dataset another({40, 38}, 300);
  CHECK_THROWS_AS(trained(packed(another, 12), o), error);
  const equal_batches equal(4, uneven::stop, rank_group());
  o.equal = &equal;
  CHECK_THROWS_WITH(trained(packed(data, 12), o), Contains("does not go on with .equal"));
}
