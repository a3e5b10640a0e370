// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What a training is written as, on datasets. Ranks are threads here, and what they were trained on is counted.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <millrace/feed/dataset.hpp>
#include <millrace/feed/equal_batches.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/loader/runtime.hpp>

#include "tests/feed/epochs_data.hpp"
#include "tests/feed/rank_threads.hpp"
#include "tests/io/temporary_folder.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace {

/// What a rank was trained on.
struct seen {
  std::multiset<std::string> keys;
  std::size_t steps = 0;
  std::string state;
};

template <class Batch>
void train_step(seen& m, const Batch& batch) {
  ++m.steps;
  for (const auto& item : batch) {
    if (!mark_of(item).padding) m.keys.insert(item.key);
  }
}

// begin world
/// On whatever number of ranks this start has: the state before may be of another one.
void train(mill::runtime& rt, const mill::dataset& corpus, mill::rank mine, std::string saved, std::size_t most,
           seen& m) {
  auto run = rt.run(mill::epochs(corpus, {.seed = 7, .epochs = 3, .batch = 4, .rank = mine}, std::move(saved)) |
                    mill::batch());
  for (const std::vector<mill::sample>& batch : run) {
    train_step(m, batch);
    if (--most == 0) break;
  }
  m.state = run.state();
}
// end world

// begin filter
void train_long_ones(mill::runtime& rt, const mill::dataset& corpus, mill::rank mine, seen& m) {
  auto run = rt.run(mill::epochs(corpus, {.seed = 7, .batch = 4, .rank = mine}) |
                    mill::filter([](const mill::sample& s) { return s["bin"].size() > 50; }) | mill::batch());
  for (const std::vector<mill::sample>& batch : run) train_step(m, batch);
}
// end filter

// begin clips
std::vector<mill::sample> clips(mill::sample recording) { return {recording, recording}; }

void train_clips(mill::runtime& rt, const mill::dataset& recordings, const mill::rank_group& ranks, seen& m) {
  const mill::equal_batches equal(4, mill::uneven::pad, ranks);
  auto run = rt.run(mill::epochs(recordings, {.seed = 7, .batch = 4, .ranks = ranks, .equal = &equal, .uneven = true}) |
                    mill::flat_map(clips) | equal.fill() | mill::batch());
  for (const std::vector<mill::sample>& batch : equal.of(run)) train_step(m, batch);
}
// end clips

// begin weights
void train_both(mill::runtime& rt, const mill::dataset& web, const mill::dataset& books, seen& m) {
  const mill::dataset both({{web, 3}, {books, 1}}, {.until = mill::mix_until::last_end});
  auto run = rt.run(mill::epochs(both, {.seed = 7, .batch = 4, .tracks = 40}) | mill::batch());
  for (const std::vector<mill::sample>& batch : run) train_step(m, batch);
}
// end weights

// begin validation
void train_and_validate(mill::runtime& rt, const mill::dataset& corpus, const mill::dataset& held_back, seen& m,
                        seen& validated) {
  for (const std::vector<mill::sample>& batch :
       rt.run(mill::epochs(corpus, {.seed = 7, .epochs = 2, .batch = 4}) | mill::batch())) {
    train_step(m, batch);
    if (!batch.back().mark.last) continue;  // of an epoch
    for (const std::vector<mill::sample>& other : rt.run(mill::epochs(held_back, {.batch = 8}) | mill::batch())) {
      train_step(validated, other);
    }
  }
}
// end validation

// begin own
class transcript {
 public:
  std::string key;
  std::size_t letters = 0;
  mill::epoch_mark mark;  // what epochs() has set on the sample

  friend mill::epoch_mark mark_of(const transcript& t) noexcept { return t.mark; }
};

transcript read(const mill::sample& s) {
  transcript t;
  t.mark = s.mark;
  if (s.weight() == 0) return t;
  t.key = s.key;
  t.letters = s["txt"].size();
  return t;
}

void train_on_transcripts(mill::runtime& rt, const mill::dataset& corpus, mill::rank mine, seen& m) {
  auto run = rt.run(mill::epochs(corpus, {.seed = 7, .batch = 4, .rank = mine}) | mill::map(read) | mill::batch());
  for (const std::vector<transcript>& batch : run) train_step(m, batch);
}
// end own

mill::rank of(std::size_t r, std::size_t world) {
  return {.index = static_cast<std::uint32_t>(r), .world_size = static_cast<std::uint32_t>(world)};
}
std::multiset<std::string> keys_of(const mill::test::tar_dataset& data, std::size_t times) {
  std::multiset<std::string> all;
  for (const std::string& key : data.order(0, 0, {.tracks = 1})) {
    for (std::size_t i = 0; i < times; ++i) all.insert(key);
  }
  return all;
}

}  // namespace

TEST_CASE("guide: a training goes on in a world that shrinks and grows") {
  const mill::test::tar_dataset data({7, 20, 2, 30}, 100);
  const std::shared_ptr<const mill::storage> store = data.store;
  mill::test::temporary_folder at;
  std::string state;
  std::multiset<std::string> keys;
  for (const std::size_t world : {4U, 3U, 1U, 2U}) {
    const std::size_t most = world == 2 ? SIZE_MAX : 3;
    for (std::size_t r = 0; r < world; ++r) {
      const mill::dataset corpus(store, "mem:", {.index = at.file("train.index")});
      mill::runtime rt;
      seen m;
      train(rt, corpus, of(r, world), state, most, m);
      keys.insert(m.keys.begin(), m.keys.end());
      if (r + 1 == world) state = m.state;
    }
  }
  CHECK(keys == keys_of(data, 3));
}

TEST_CASE("guide: a filter leaves equally many steps on all ranks") {
  const mill::test::tar_dataset data({7, 20, 2, 30}, 100);
  const std::shared_ptr<const mill::storage> store = data.store;
  const mill::dataset corpus(store, data.indexes, {.prefix = "mem:"});
  seen both[2];
  for (std::size_t r = 0; r < 2; ++r) {
    mill::runtime rt;
    train_long_ones(rt, corpus, of(r, 2), both[r]);
  }
  CHECK(both[0].steps == both[1].steps);
  CHECK(both[0].keys.size() + both[1].keys.size() > 10);
  CHECK(both[0].keys.size() + both[1].keys.size() < 50);
}

TEST_CASE("guide: clips of recordings without an index come in equally many steps") {
  const mill::test::tar_dataset data({7, 20, 2, 30}, 100);
  mill::test::thread_gather gather(2);
  std::vector<seen> ranks(2);
  const auto errors = mill::test::on_ranks(2, [&](std::size_t r) {
    const mill::test::tar_dataset own({7, 20, 2, 30}, 100);
    mill::runtime rt;
    const mill::dataset recordings(std::shared_ptr<const mill::storage>(own.store), "mem:", {.window = 16});
    train_clips(rt, recordings, gather.group(r), ranks[r]);
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(ranks[0].steps == ranks[1].steps);
  std::multiset<std::string> keys = ranks[0].keys;
  keys.insert(ranks[1].keys.begin(), ranks[1].keys.end());
  CHECK(keys == keys_of(data, 2));
}

TEST_CASE("guide: two datasets by weights, validation beside training, and a type of the program's") {
  const auto store = std::make_shared<mill::test::dataset_store>(1);
  const std::shared_ptr<const mill::storage> from = store;
  const mill::test::tar_dataset web_data({30, 18, 12}, 300, 1, "web/", store);
  const mill::test::tar_dataset books_data({5, 20}, 300, 2, "books/", store);
  mill::test::temporary_folder at;
  const mill::dataset web(from, "mem:web/", {.index = at.file("web.index")});
  const mill::dataset books(from, "mem:books/", {.index = at.file("books.index")});
  mill::runtime rt;
  seen mixed;
  train_both(rt, web, books, mixed);
  std::size_t of_books = 0;
  for (const std::string& key : mixed.keys) of_books += key.substr(0, 5) == "books" ? 1 : 0;
  CHECK((mixed.keys.size() + 3) / 4 == of_books);
  CHECK(of_books >= 25);

  seen trained, validated;
  train_and_validate(rt, web, books, trained, validated);
  CHECK(trained.keys == keys_of(web_data, 2));
  CHECK(validated.keys == keys_of(books_data, 2));

  seen read;
  train_on_transcripts(rt, web, of(0, 1), read);
  CHECK(read.keys == keys_of(web_data, 1));
}
