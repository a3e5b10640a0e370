// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/flow/map.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <millrace/device/fill_batches.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/bucket_by_length.hpp>
#include <millrace/flow/combine.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/records/pack.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/equal_batches.hpp>

#include "tests/train/epochs_data.hpp"
#include "tests/train/rank_threads.hpp"
#include "tests/support/catch.hpp"

// What stands between epochs() and batch() keeps the places of the samples, or is refused before anything is read.

using namespace millrace;
using Catch::Matchers::Contains;
using test::tar_dataset;

namespace {

/// An item of a program: what is made of a sample.
class clip {
 public:
  std::string name;
  origin from;
  epoch_mark mark;

  clip() = default;
  clip(std::string n, const sample& s) : name(std::move(n)), from(s.from), mark(s.mark) {}
  friend epoch_mark mark_of(const clip& c) noexcept { return c.mark; }
};
std::string name_of(const clip& c) { return c.mark.padding ? "-" : c.name; }
std::string name_of(const sample& s) { return s.weight() == 0 ? "-" : s.key; }
std::string name_of(const packed_sequence& p) {
  std::string text;
  for (std::size_t i = 0; i < p.tokens.size(); ++i) {
    text += (p.documents[i] < 0 ? "" : std::to_string(p.tokens[i])) + (p.mask[i] != 0 ? "," : ";");
  }
  return text;
}

std::size_t hash_of(const std::string& key) {
  std::size_t h = 7;
  for (const char c : key) h = h * 31 + static_cast<unsigned char>(c);
  return h * 0x9e3779b97f4a7c15U >> 40;
}

using names = std::vector<std::string>;  // of a batch, joined

class training {
 public:
  names batches;
  names states;  // that of the beginning first
};

template <class Run, class Batches>
training taken(Run& run, Batches&& batches) {
  training out;
  out.states.push_back(run.state());
  for (const auto& b : batches) {
    std::string text;
    for (const auto& item : b) text += name_of(item) + " ";
    out.batches.push_back(std::move(text));
    out.states.push_back(run.state());
  }
  return out;
}

names after(const names& all, std::size_t n) { return names(all.begin() + static_cast<std::ptrdiff_t>(n), all.end()); }

runtime quiet() { return runtime({.log = [](const log_record&) {}}); }

const std::vector<std::size_t> four{17, 3, 30, 8};

test::settings small(std::uint32_t index = 0, std::uint32_t world = 1) {
  return {.seed = 7, .epochs = 2, .batch = 4, .rank = {.index = index, .world_size = world}, .tracks = 12, .slice = 4};
}

clip clip_of(const sample& s) {
  if (s.weight() == 0) throw std::logic_error("a function has seen an empty entry");
  return clip(s.key, s);
}
std::vector<clip> two_of(const sample& s) {
  if (s.weight() == 0) throw std::logic_error("a function has seen an empty entry");
  return {clip(s.key + "a", s), clip(s.key + "b", s)};
}

template <class Pipeline>
std::string refusal(runtime& rt, Pipeline pipeline) {
  try {
    static_cast<void>(rt.run(std::move(pipeline)));
  } catch (const configuration_error& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("what a filter leaves out keeps its place: ranks have equally many batches, and states hold", "[places]") {
  const tar_dataset data(four, 300);
  runtime rt = quiet();
  const auto wanted = [](const sample& s) {
    if (s.weight() == 0) throw std::logic_error("a function has seen an empty entry");
    return hash_of(s.key) % 3 != 0;
  };
  std::vector<training> ranks;
  std::map<std::string, int> times;
  for (std::uint32_t r = 0; r < 3; ++r) {
    test::settings options = small(r, 3);
    auto run = rt.run(data.open(options) | filter(wanted) | batch(4));
    ranks.push_back(taken(run, run));
    CHECK(ranks.back().batches.size() == 2 * run.batches().value());
    CHECK(ranks.back().states == ranks.front().states);
    for (std::size_t n = 0; n < ranks.back().states.size(); ++n) {
      options.resume = ranks.back().states[n];
      auto rest = rt.run(data.open(options) | filter(wanted) | batch(4));
      CHECK(taken(rest, rest).batches == after(ranks.back().batches, n));
    }
    for (const std::string& b : ranks.back().batches) {
      for (std::size_t at = 0, end = 0; (end = b.find(' ', at)) != std::string::npos; at = end + 1) {
        ++times[b.substr(at, end - at)];
      }
    }
  }
  times.erase("-");
  for (const std::string& key : data.order(7, 0, {.tracks = 12, .slice = 4})) {
    INFO(key);
    CHECK(times[key] == (hash_of(key) % 3 != 0 ? 2 : 0));
  }
}

TEST_CASE("functions do not see empty entries, and what a policy skips becomes one", "[places]") {
  const tar_dataset data(four, 300);
  runtime rt = quiet();
  const failure_policy bear{.then = on_failure::skip, .report = false};
  const auto made = [](const sample& s) {
    if (hash_of(s.key) % 4 == 0) throw decode_error("it is bad");
    return clip_of(s);
  };
  const auto by_task = [](clip c) -> task<clip> {
    if (c.mark.padding) throw std::logic_error("a function has seen an empty entry");
    co_return std::move(c);
  };
  for (std::uint32_t r = 0; r < 2; ++r) {
    auto plain = rt.run(data.open(small(r, 2)) | filter([](const sample& s) { return hash_of(s.key) % 4 != 0; }) |
                        map(clip_of) | batch(4));
    const training wanted = taken(plain, plain);
    auto skipped = rt.run(data.open(small(r, 2)) | map(made, bear) | batch(4));
    const training mapped = taken(skipped, skipped);
    CHECK(mapped.batches == wanted.batches);
    CHECK(mapped.states == wanted.states);
    auto pooled = rt.run(data.open(small(r, 2)) | map_concurrent(made, {.failures = bear}) | map_concurrent(by_task) |
                         batch(4));
    const training concurrent = taken(pooled, pooled);
    CHECK(concurrent.batches == wanted.batches);
    CHECK(concurrent.states == wanted.states);
  }
}

TEST_CASE("a filter of batches leaves all of their entries empty", "[places]") {
  const tar_dataset data(four, 300);
  runtime rt = quiet();
  std::size_t number = 0;
  auto run = rt.run(data.open(small(0, 2)) | batch(4) |
                    filter([&](const std::vector<sample>&) { return ++number % 2 == 0; }));
  const training got = taken(run, run);
  REQUIRE(got.batches.size() == 16);
  CHECK(got.batches[0] == "- - - - ");
  CHECK(got.batches[1] != "- - - - ");
}

TEST_CASE("two items of a sample, batches of three: a resume gives the second half of a sample, once", "[places]") {
  const tar_dataset data(four, 300);
  runtime rt = quiet();
  auto run = rt.run(data.open({.seed = 7, .tracks = 12, .slice = 4}) | flat_map(two_of) | batch(3));
  const training whole = taken(run, run);
  CHECK(whole.batches.size() == (2 * 58 + 2) / 3);
  const std::vector<std::string> order = data.order(7, 0, {.tracks = 12, .slice = 4});
  CHECK(whole.batches[0] == order[0] + "a " + order[0] + "b " + order[1] + "a ");
  for (std::size_t n = 0; n < whole.states.size(); ++n) {
    test::settings options{.seed = 7, .tracks = 12, .slice = 4, .resume = whole.states[n]};
    auto rest = rt.run(data.open(options) | flat_map(two_of) | batch(3));
    const training got = taken(rest, rest);
    CHECK(got.batches == after(whole.batches, n));
    CHECK(got.states == after(whole.states, n));
  }
  // Inside a sample the stage must be there.
  CHECK_THAT(refusal(rt, data.open({.seed = 7, .tracks = 12, .slice = 4, .resume = whole.states[1]}) | batch(3)),
             Contains("flat_map()"));
}

TEST_CASE("items that are made of one sample have random numbers of their own", "[places]") {
  const tar_dataset data(four, 300);
  runtime rt = quiet();
  std::map<std::uint64_t, std::string> drawn;
  const auto copies = [](const sample& s) { return std::vector<sample>(3, s); };
  auto run = rt.run(data.open({.seed = 7, .tracks = 12, .slice = 4}) | flat_map(copies) | batch(3));
  for (const std::vector<sample>& b : run) {
    const sample_rng alone = origin(b[0].from.from, b[0].from.offset, b[0].from.ordinal).random(1);
    CHECK(sample_rng(alone).next() == b[0].random(1).next());
    for (const sample& s : b) {
      INFO(s.key << " and " << drawn[s.random(1).next()]);
      CHECK(drawn[s.random(1).next()].empty());
      drawn[s.random(1).next()] = s.key;
    }
  }
  CHECK(drawn.size() == 3 * 58);
}

TEST_CASE("what breaks the promises of epochs() is refused by name before anything is read", "[places]") {
  const tar_dataset data(four, 300);
  runtime rt = quiet();
  const auto key_of = [](const sample& s) { return s.key; };
  const auto two = small(0, 2);
  data.store->requests = 0;

  CHECK_THAT(refusal(rt, data.open(two) | map(key_of) | batch(4)),
             Contains("map, in a pipeline that begins with epochs()") && Contains("in_place_of(mark)"));
  CHECK_THAT(refusal(rt, data.open(two) | map_concurrent(key_of) | batch(4)),
             Contains("map_concurrent, in a pipeline"));
  CHECK_THAT(refusal(rt, data.open(two) | flat_map([](const sample& s) { return names{s.key}; }) | batch(4)),
             Contains("flat_map, in a pipeline") && Contains("cannot stand for an empty entry"));
  CHECK_THAT(refusal(rt, data.open(two) | batch(4) | map([](const std::vector<sample>& b) { return b.size(); }) |
                      filter([](std::size_t n) { return n > 0; })),
             Contains("filter, in a pipeline") && Contains("unequally many batches"));
  CHECK_THAT(refusal(rt, data.open(two) | flat_map(two_of) | batch(4)),
             Contains("flat_map, in a pipeline") && Contains("fill()"));
  const auto lengths = [](const sample& s) { return s.key.size(); };
  CHECK_THAT(refusal(rt, data.open(two) | bucket_by_length(lengths, {.max_tokens = 100})),
             Contains("bucket_by_length, in a pipeline") && Contains(".max_tokens"));
  CHECK_THAT(refusal(rt, data.open(two) | map([](const sample& s) { return token_document({1}, s.mark); }) | pack(4)),
             Contains("pack, in a pipeline") && Contains("fill()"));
  CHECK_THAT(refusal(rt, data.open(small()) | flat_map(two_of) |
                             bucket_by_length([](const clip& c) { return c.name.size(); }, {.batch = 4})),
             Contains("bucket_by_length, in a pipeline") && Contains("flat_map is before it"));
  CHECK_THAT(refusal(rt, data.open(small()) | map([](const sample& s) { return token_document({1}, s.mark); }) |
                             pack(4) | flat_map([](packed_sequence p) {
                               return std::vector<packed_sequence>{std::move(p)};
                             })),
             Contains("flat_map, in a pipeline") && Contains("pack is before it"));
  CHECK_THAT(refusal(rt, data.open(two) | batch(12)),
             Contains("batch, in a pipeline") && Contains("batches of 12 do not fit steps of 4"));
  const batch_pool pool(batch_layout(12, {{"size", dtype::i64}}));
  CHECK_THAT(refusal(rt, data.open(small()) | fill_batches(pool, [](const sample&, const batch_row&) {})),
             Contains("batches of 12 do not fit steps of 4"));
  CHECK(data.store->requests == 0);

  // What keeps to them is not.
  CHECK(refusal(rt, data.open(two) | batch(2)) == "accepted");
  test::settings bare = small();
  bare.pad = false;
  CHECK(refusal(rt, data.open(bare) | map(key_of) | batch(5)) == "accepted");
  CHECK(refusal(rt, data.open(two) | batch(4) | map([](std::vector<sample> b) { return b.size(); })) ==
        "accepted");
}

TEST_CASE("where there will be no state, there is none before the first batch", "[places]") {
  const tar_dataset data(four, 300);
  runtime rt = quiet();
  auto shuffled = rt.run(data.open(small()) | shuffle({.window = 8}) | batch(4));
  CHECK_THROWS_WITH(shuffled.state(), Contains("changes the order"));
  auto counted = rt.run(data.open(small()) | batch(4) | map([](const std::vector<sample>& b) { return b.size(); }));
  CHECK_THROWS_WITH(counted.state(), Contains("mark_of()"));
}

TEST_CASE("an empty entry says what it is", "[places]") {
  sample s;
  s.mark.padding = true;
  CHECK_THROWS_WITH(s["cls"], Contains("\"cls\" of an empty entry"));
}

TEST_CASE("the last sequence of an epoch that is padded is none", "[places]") {
  const tar_dataset data(four, 300);
  runtime rt = quiet();
  const auto document = [](const sample& s) { return token_document({1, 2, 3}, s.mark); };
  std::size_t tokens = 0;
  for (const packed_sequence& s : rt.run(data.open(small()) | map(document) | pack(5))) {
    CHECK_FALSE(s.mark.padding);
    for (const std::int32_t d : s.documents) tokens += d >= 0;
  }
  CHECK(tokens == 2 * 58 * 3);
}

TEST_CASE("sequences of documents come in equally many batches on all ranks, after a resume too", "[places]") {
  const tar_dataset data(four, 300);
  runtime rt = quiet();
  const auto document = [](const sample& s) {
    return token_document(std::vector<std::int32_t>(1 + hash_of(s.key) % 40, 1), s.mark);
  };
  const auto all = [&](const names& resume) {
    std::vector<training> out(2);
    test::thread_gather gather(2);
    const names errors = test::on_ranks(2, [&](std::size_t r) {
      const equal_batches equal(3, uneven::pad, gather.group(r));
      test::settings mine = small(static_cast<std::uint32_t>(r), 2);
      if (!resume.empty()) mine.resume = resume[r];
      mine.equal = &equal;
      auto run = rt.run(data.open(mine) | map(document) | pack(16) | equal.fill() | batch(3));
      out[r].states.push_back(run.state());
      for (const std::vector<packed_sequence>& b : equal.of(run)) {
        std::string text;
        for (const packed_sequence& p : b) text += std::to_string(p.tokens.size()) + (p.mark.padding ? "- " : " ");
        out[r].batches.push_back(std::move(text));
        out[r].states.push_back(run.state());
      }
    });
    REQUIRE(errors == names(2));
    REQUIRE(out[0].batches.size() == out[1].batches.size());
    return out;
  };
  const std::vector<training> whole = all({});
  for (std::size_t n = 0; n < whole[0].states.size(); n += 3) {
    INFO("after step " << n << ": " << whole[0].states[n]);
    const std::vector<training> rest = all({whole[0].states[n], whole[1].states[n]});
    for (std::size_t r = 0; r < 2; ++r) {
      CHECK(rest[r].batches == after(whole[r].batches, n));
      CHECK(rest[r].states == after(whole[r].states, n));
    }
  }
}

namespace {

/// None to four documents of a sample, some of them empty.
std::vector<token_document> documents_of(const sample& s) {
  if (s.weight() == 0) throw std::logic_error("a function has seen an empty entry");
  std::vector<token_document> all;
  const std::size_t h = hash_of(s.key);
  for (std::size_t d = 0; d < h % 5; ++d) {
    std::vector<std::int32_t> tokens;
    const std::size_t size = (h / 7 + 5 * d) % 13;
    for (std::size_t i = 0; i < size; ++i) tokens.push_back(static_cast<std::int32_t>((h % 100000) * 100 + d * 20 + i));
    all.emplace_back(std::move(tokens), epoch_mark());
  }
  return all;
}

/// Two epochs of documents in sequences, on `world` ranks, from their states on.
std::vector<training> packed(const tar_dataset& data, runtime& rt, test::settings options, std::size_t world,
                             const names& resume) {
  std::vector<training> out(world);
  test::thread_gather gather(world);
  const names errors = test::on_ranks(world, [&](std::size_t r) {
    const equal_batches equal(3, uneven::pad, gather.group(r));
    test::settings mine = options;
    mine.rank = {.index = static_cast<std::uint32_t>(r), .world_size = static_cast<std::uint32_t>(world)};
    if (!resume.empty()) mine.resume = resume[r];
    const auto open = [&] {
      if (!options.streamed) return data.open(mine);
      std::vector<shard> list;
      for (const auto& [url, content] : data.store->objects) list.emplace_back(url, content.size());
      return test::train_on(from_range(std::move(list)), std::shared_ptr<const storage>(data.store), mine);
    };
    // In one function from stream to stream, and one after the other.
    const auto sequences = [](async_generator<sample> in) {
      return stream<sample>(std::move(in)) | flat_map(documents_of) | pack(7, {.end = -1});
    };
    if (world > 1) {
      mine.equal = &equal;
      mine.uneven = options.streamed;
      auto run = rt.run(open() | flat_map(documents_of) | pack(7, {.end = -1}) | equal.fill() | batch(3));
      out[r] = taken(run, equal.of(run));
    } else {
      auto run = rt.run(open() | sequences | batch(3));
      out[r] = taken(run, run);
    }
  });
  REQUIRE(errors == names(world));
  return out;
}

}  // namespace

TEST_CASE("samples that expand into documents are packed: a resume goes on with the very next token", "[places]") {
  const tar_dataset data(four, 300);
  runtime rt = quiet();
  const std::size_t world = GENERATE(1u, 2u, 3u);
  test::settings options = small();
  options.streamed = GENERATE(false, true);
  options.window = 5;
  options.pad = world > 1 || options.streamed;
  INFO(world << " ranks, " << (options.streamed ? "no index" : "an index"));
  const std::vector<training> whole = packed(data, rt, options, world, {});
  // The model: every token twice, and the end of every document that has one.
  std::map<std::string, int> left;
  for (const std::size_t n : {0u, 1u, 2u, 3u}) {
    for (std::size_t i = 0; i < four[n]; ++i) {
      sample s;
      s.key = "s" + std::to_string(n) + "/" + std::to_string(i);
      for (const token_document& d : documents_of(s)) {
        for (const std::int32_t t : d.tokens) left[std::to_string(t)] += 2;
        if (!d.tokens.empty()) left["-1"] += 2;
      }
    }
  }
  for (const training& t : whole) {
    REQUIRE(t.batches.size() == whole[0].batches.size());
    for (const std::string& b : t.batches) {
      for (std::size_t at = 0, end = 0; (end = b.find_first_of(",;", at)) != std::string::npos; at = end + 1) {
        std::string token = b.substr(at, end - at);
        while (!token.empty() && token.front() == ' ') token.erase(0, 1);
        if (!token.empty()) --left[token];
      }
    }
  }
  for (const auto& [token, times] : left) {
    INFO(token);
    CHECK(times == 0);
  }
  std::size_t inside = 0;
  for (std::size_t n = 0; n < whole[0].states.size(); n += world) {
    names saved;
    for (const training& t : whole) saved.push_back(t.states[n]);
    inside += saved[0].find("\"taken\":") != std::string::npos;
    INFO("after step " << n << ": " << saved[0]);
    const std::vector<training> rest = packed(data, rt, options, world, saved);
    for (std::size_t r = 0; r < world; ++r) {
      CHECK(rest[r].batches == after(whole[r].batches, n));
      CHECK(rest[r].states == after(whole[r].states, n));
    }
  }
  CHECK(inside > 10 / world);
  if (world > 1 || options.streamed) return;
  // Each of the two stages must be there.
  test::settings inner = options;
  for (const std::string& state : whole[0].states) {
    if (state.find("\"taken\":") != std::string::npos) inner.resume = state;
  }
  const auto document = [](const sample& s) { return documents_of(s).front(); };
  CHECK_THAT(refusal(rt, data.open(inner) | map(document) | pack(7, {.end = -1})), Contains("pack()"));
  CHECK_THAT(refusal(rt, data.open(inner) | flat_map(documents_of) | batch(3)), Contains("flat_map()"));
}

TEST_CASE("an expansion of an expansion has a state after each item", "[places]") {
  const tar_dataset data(four, 300);
  runtime rt = quiet();
  const auto again = [](const clip& c) {
    std::vector<clip> all;
    for (std::size_t n = hash_of(c.name) % 4; n > 0; --n) {
      all.push_back(c);
      all.back().name += std::to_string(n);
    }
    return all;
  };
  const auto some = [](const sample& s) { return hash_of(s.key) % 3 == 0 ? std::vector<clip>() : two_of(s); };
  test::settings options = small();
  options.pad = false;
  auto run = rt.run(data.open(options) | flat_map(some) | flat_map(again) | batch(1));
  const training whole = taken(run, run);
  for (std::size_t n = 0; n < whole.states.size(); ++n) {
    options.resume = whole.states[n];
    auto rest = rt.run(data.open(options) | flat_map(some) | flat_map(again) | batch(1));
    const training got = taken(rest, rest);
    CHECK(got.batches == after(whole.batches, n));
    CHECK(got.states == after(whole.states, n));
  }
  for (const std::string& state : whole.states) {
    if (state.find("\"taken\":") != std::string::npos) options.resume = state;
  }
  CHECK_THAT(refusal(rt, data.open(options) | flat_map(some) | batch(1)), Contains("flat_map()"));
}

namespace {

/// Stages that are drawn, as a pipeline and as a plain model of it.
class drawn_stages {
 public:
  explicit drawn_stages(rng& random) : salt(random.below(1000)), filters(random.below(2) == 0),
                                       skips(random.below(2) == 0), expands(random.below(3) != 0) {}
  std::uint64_t salt;
  bool filters, skips, expands;

  std::size_t of(const std::string& key, std::size_t n) const { return hash_of(key + std::to_string(salt)) % n; }
  bool wanted(const std::string& key) const { return !filters || of(key + "f", 3) != 0; }
  bool good(const std::string& key) const { return !skips || of(key + "s", 4) != 0; }
  names parts(const std::string& key) const {
    names all;
    if (!wanted(key) || !good(key)) return {"-"};
    if (!expands) return {key};
    for (std::size_t n = of(key, 4); n > 0; --n) all.push_back(key + "#" + std::to_string(n));
    return all.empty() ? names{"-"} : all;
  }

  stream<clip> after(stream<sample> in) const {
    const drawn_stages self = *this;
    auto kept = std::move(in) | filter([self](const sample& s) { return self.wanted(s.key); });
    const auto made = [self](const sample& s) {
      if (!self.good(s.key)) throw decode_error("it is bad");
      return clip_of(s);
    };
    const failure_policy bear{.then = on_failure::skip, .report = false};
    auto clips = std::move(kept) | map_concurrent(made, {.failures = bear});
    if (!expands) return clips;
    return std::move(clips) | flat_map([self](const clip& c) {
             std::vector<clip> all;
             for (const std::string& part : self.parts(c.name)) {
               if (part == "-") break;
               all.push_back(c);
               all.back().name = part;
             }
             return all;
           });
  }
};

/// All ranks, to their ends or for `steps` steps.
std::vector<training> on_all(const tar_dataset& data, runtime& rt, const drawn_stages& stages, test::settings options,
                             std::uint32_t world, const names& resume) {
  std::vector<training> out(world);
  const bool listed = options.streamed;
  test::thread_gather gather(world);
  const std::vector<std::string> errors = test::on_ranks(world, [&](std::size_t r) {
    test::settings mine = options;
    mine.rank = {.index = static_cast<std::uint32_t>(r), .world_size = world};
    if (!resume.empty()) mine.resume = resume[r];
    const std::size_t size = options.batch;
    const equal_batches equal(size, uneven::pad, gather.group(r));
    const auto open = [&] {
      if (!listed) return data.open(mine);
      std::vector<shard> list;
      for (const auto& [url, content] : data.store->objects) list.emplace_back(url, content.size());
      return test::train_on(from_range(std::move(list)), std::shared_ptr<const storage>(data.store), mine);
    };
    if (world > 1 && (stages.expands || listed)) {
      mine.equal = &equal;
      mine.uneven = listed;
      auto run = rt.run(stages.after(open()) | equal.fill() | batch(size));
      out[r] = taken(run, equal.of(run));
    } else {
      auto run = rt.run(stages.after(open()) | batch(size));
      out[r] = taken(run, run);
    }
  });
  REQUIRE(errors == names(world));
  return out;
}

names words_of(const names& batches) {
  names all;
  for (const std::string& b : batches) {
    for (std::size_t at = 0, end = 0; (end = b.find(' ', at)) != std::string::npos; at = end + 1) {
      if (b[at] != '-') all.push_back(b.substr(at, end - at));
    }
  }
  return all;
}

}  // namespace

TEST_CASE("drawn filters, skips, expansions, ranks and stops keep every promise", "[places]") {
  rng random(34);
  runtime rt = quiet();
  for (int c = 0; c < 40; ++c) {
    std::vector<std::size_t> counts(1 + random.below(4));
    for (std::size_t& n : counts) n = 1 + random.below(12);
    const tar_dataset data(counts, 50, random.next());
    const auto world = static_cast<std::uint32_t>(1 + random.below(std::min<std::size_t>(3, counts.size())));
    test::settings options = small();
    options.seed = random.below(100);
    options.batch = 1 + random.below(5);
    options.window = 5;
    if (random.below(3) == 0) options.streamed = true;
    const drawn_stages stages(random);
    // Of one rank, how many entries pad the epoch depends on where a resume begins.
    options.pad = world > 1 || !stages.expands;
    INFO("case " << c << ": " << world << " ranks, batches of " << options.batch << ", filter " << stages.filters
                 << ", skip " << stages.skips << ", flat_map " << stages.expands << ", index "
                 << (!options.streamed));
    const std::vector<training> whole = on_all(data, rt, stages, options, world, {});
    // The model: every sample once an epoch, whatever it becomes.
    names got, wanted;
    for (const training& t : whole) {
      REQUIRE(t.batches.size() == whole[0].batches.size());
      for (const std::string& w : words_of(t.batches)) got.push_back(w);
    }
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (std::size_t n = 0; n < counts.size(); ++n) {
        for (std::size_t i = 0; i < counts[n]; ++i) {
          for (const std::string& p : stages.parts("s" + std::to_string(n) + "/" + std::to_string(i))) {
            if (p != "-") wanted.push_back(p);
          }
        }
      }
    }
    std::sort(got.begin(), got.end());
    std::sort(wanted.begin(), wanted.end());
    REQUIRE(got == wanted);
    // A stop anywhere.
    for (int stops = 0; stops < 4; ++stops) {
      const std::size_t n = random.below(whole[0].states.size());
      names saved;
      for (const training& t : whole) saved.push_back(t.states[n]);
      INFO("after step " << n << ": " << saved[0]);
      const std::vector<training> rest = on_all(data, rt, stages, options, world, saved);
      for (std::uint32_t r = 0; r < world; ++r) {
        REQUIRE(rest[r].batches == after(whole[r].batches, n));
        REQUIRE(rest[r].states == after(whole[r].states, n));
      }
    }
  }
}

TEST_CASE("stages over several sources lose places, and are refused after epochs() by name", "[places]") {
  const tar_dataset data(four, 300);
  runtime rt = quiet();
  const auto two = [&] {
    std::vector<stream<sample>> sources;
    sources.push_back(data.open(small()));
    sources.push_back(data.open(small()));
    return sources;
  };
  CHECK_THAT(refusal(rt, mix(two(), {3, 1}) | batch(4)), Contains("mix, in a pipeline that begins with epochs()"));
  CHECK_THAT(refusal(rt, mix(two(), {3, 1}) | batch(4)), Contains("mix the datasets"));
  CHECK_THAT(refusal(rt, merge(two()) | batch(4)), Contains("merge, in a pipeline"));
  CHECK_THAT(refusal(rt, concat(two()) | batch(4)), Contains("concat, in a pipeline"));
  CHECK_THAT(refusal(rt, zip(data.open(small()), iota(1000)) | batch(4)), Contains("zip, in a pipeline"));
  CHECK_THAT(refusal(rt, zip(iota(1000), data.open(small())) | batch(4)), Contains("a tuple has no place"));
  CHECK_THAT(refusal(rt, zip_equal(data.open(small()), data.open(small())) | batch(4)), Contains("zip_equal, in a"));
  const auto open = [](const sample& s) { return from_range(two_of(s)); };
  test::settings plain = small();
  plain.batch = 1;
  plain.pad = false;
  CHECK_THAT(refusal(rt, data.open(plain) | map(open) | interleave() | batch(4)), Contains("by flat_map()"));
  // Without epochs() they are what they were.
  CHECK(refusal(rt, zip(iota(10), iota(10)) | batch(4)) == "accepted");
  std::vector<stream<int>> numbers;
  numbers.push_back(iota(4));
  numbers.push_back(iota(4));
  CHECK(refusal(rt, mix(std::move(numbers), {1, 1}) | batch(4)) == "accepted");
}
