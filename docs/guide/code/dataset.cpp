// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What a training is written as, on datasets. Ranks are threads here, and what they were trained on is counted.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <millrace/decode/array.hpp>
#include <millrace/decode/decode_arrays.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/formats/mds.hpp>
#include <millrace/formats/object_samples.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/equal_batches.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/train/rank_threads.hpp"

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

/// What one was trained on that takes tensors: rows, by their labels; those of weight 0 have the label 0.
struct model {
  std::map<std::int64_t, std::size_t> times;
  std::size_t steps = 0;
  std::size_t wrong = 0;
  std::string state;
};
void train_step(model& m, const mill::tensor_view& x, const mill::tensor_view& y) {
  ++m.steps;
  for (std::size_t i = 0; i < y.elements(); ++i) {
    const std::int64_t label = y.values<std::int64_t>()[i];
    if (label == 0) continue;
    ++m.times[label];
    for (int k = 0; k < 3; ++k) m.wrong += x.values<float>()[3 * i + k] == static_cast<float>(10 * label + k) ? 0 : 1;
  }
}

// begin mds
void train_on_mds(mill::runtime& rt, const std::string& folder, mill::rank mine, std::int64_t& sum, seen& m) {
  const mill::dataset corpus(mill::files(), folder, {.index = folder + "/train.index", .format = mill::mds()});
  auto run = rt.run(mill::epochs(corpus, {.seed = 7, .batch = 4, .rank = mine}) | mill::batch());
  for (const std::vector<mill::sample>& batch : run) {
    for (const mill::sample& s : batch) {
      if (s.weight() != 0) sum += mill::mds_int(s["id"], "int", s.from.at(s.key));  // columns = {"id": "int", ...}
    }
    train_step(m, batch);
  }
}
// end mds

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

// begin folder
void train_on_folder(mill::runtime& rt, const std::string& folder, mill::rank mine, seen& m) {
  const mill::dataset images(mill::files(), folder,
                             {.index = folder + "/train.index", .format = mill::class_folders()});
  auto run = rt.run(mill::epochs(images, {.seed = 7, .batch = 4, .rank = mine}) | mill::batch());
  for (const std::vector<mill::sample>& batch : run) train_step(m, batch);  // s["jpg"], s["cls"]
}
// end folder

// begin arrays
void train_on_arrays(mill::runtime& rt, const std::string& folder, std::vector<std::int64_t> labels, mill::rank mine,
                     std::string saved, std::size_t most, model& m) {
  const auto rows = static_cast<std::int64_t>(labels.size());
  const mill::dataset train(
      mill::arrays({{"x", mill::map_npy(folder + "/x.npy")}, {"y", mill::array(std::move(labels), {rows})}}));
  auto run = rt.run(mill::epochs(train, {.seed = 7, .epochs = 90, .batch = 4, .rank = mine}, std::move(saved)) |
                    mill::decode_arrays() | mill::batch() | mill::to_device(mill::host_device()));
  for (mill::device_batch& b : run) {
    train_step(m, b.field("x"), b.field("y"));
    if (--most == 0) break;
  }
  m.state = run.state();
}
// end arrays

// begin parts
/// A tenth of the samples is held back for validation, by their keys; a quick run takes some of the others.
void try_out(mill::runtime& rt, const mill::dataset& corpus, seen& trained, seen& validated) {
  const auto held_back = [](const mill::indexed_sample& s) { return s.key_hash % 10 == 0; };
  const mill::dataset validation = corpus.subset(held_back);
  const mill::dataset training = corpus.subset(std::not_fn(held_back)).take(20);
  train_and_validate(rt, training, validation, trained, validated);
}
// end parts

// begin balanced
/// Every class comes equally often. `labels`: by the samples' keys, of which an index has the hashes.
void train_balanced(mill::runtime& rt, const mill::dataset& corpus, const std::map<std::string, std::uint32_t>& labels,
                    mill::rank mine, seen& m) {
  std::map<std::uint64_t, std::uint32_t> class_of;
  for (const auto& [key, label] : labels) class_of[mill::key_hash(key)] = label;
  const mill::dataset balanced =
      corpus.balanced([class_of](const mill::indexed_sample& s) { return class_of.at(s.key_hash); }, {.samples = 600});
  auto run = rt.run(mill::epochs(balanced, {.seed = 7, .batch = 4, .rank = mine}) | mill::batch());
  for (const std::vector<mill::sample>& batch : run) train_step(m, batch);
}
// end balanced

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

/// By one rank: several that run one after the other would wait for each other's shares.
void make_index(const mill::dataset& data) {
  mill::runtime rt;
  auto run = rt.run(mill::epochs(data, {}));
  REQUIRE(run.next());
}

}  // namespace

TEST_CASE("guide: a training goes on in a world that shrinks and grows") {
  const mill::test::tar_dataset data({7, 20, 2, 30}, 100);
  const std::shared_ptr<const mill::storage> store = data.store;
  mill::test::temporary_folder at;
  make_index(mill::dataset(store, "mem:", {.index = at.file("train.index")}));
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

TEST_CASE("guide: every image of a folder is trained on once, by one of two ranks, in equally many steps") {
  mill::test::temporary_folder at;
  const std::string folder = at.path() + "/images";
  std::multiset<std::string> wanted;
  for (const std::string name : {"cat", "cat-like", "dog"}) {
    std::filesystem::create_directories(folder + '/' + name);
    for (std::size_t i = 0; i < 3 + name.size(); ++i) {
      wanted.insert(name + '/' + std::to_string(i));
      std::ofstream(folder + '/' + name + '/' + std::to_string(i) + ".jpg") << name;
    }
  }
  std::vector<seen> ranks(2);
  mill::runtime rt;
  for (std::size_t r = 0; r < 2; ++r) train_on_folder(rt, folder, of(r, 2), ranks[r]);
  CHECK(ranks[0].steps == ranks[1].steps);
  ranks[0].keys.insert(ranks[1].keys.begin(), ranks[1].keys.end());
  CHECK(ranks[0].keys == wanted);
  const mill::dataset images(mill::files(), folder,
                             {.index = folder + "/train.index", .format = mill::class_folders()});
  CHECK(images.classes() == std::vector<std::string>{"cat", "cat-like", "dog"});
  for (const mill::sample& s : rt.run(mill::epochs(images, {}))) {
    CHECK(images.classes()[std::stoul(std::string(s["cls"].view()))] == s["jpg"].view());
    CHECK(s.key.substr(0, s.key.find('/')) == s["jpg"].view());
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("guide: samples of MDS shards are trained on once, by two ranks in equally many steps") {
  mill::test::temporary_folder at;
  const auto number = [](std::uint64_t value, int size) {
    std::string out;
    for (; size > 0; --size, value >>= 8) out += static_cast<char>(value & 255);
    return out;
  };
  const std::string columns =
      R"({"column_encodings": ["int", "str"], "column_names": ["id", "text"], "column_sizes": [8, null],)"
      R"( "compression": null, "format": "mds", "hashes": [], "size_limit": 67108864, "version": 2)";
  std::string index;
  for (std::uint64_t shard = 0; shard < 2; ++shard) {
    std::string table;
    std::string samples;
    const std::size_t begin = 4 + 4 * 12 + columns.size() + 1;
    for (std::uint64_t i = 0; i < 11; ++i) {
      table += number(begin + samples.size(), 4);
      samples += number(2, 4) + number(11 * shard + i, 8) + "hi";
    }
    const std::string file = number(11, 4) + table + number(begin + samples.size(), 4) + columns + "}" + samples;
    const std::string name = "shard.0000" + std::to_string(shard) + ".mds";
    std::ofstream(at.file(name), std::ios::binary) << file;
    index += (shard == 0 ? "" : ", ") + columns + R"(, "raw_data": {"basename": ")" + name + R"(", "bytes": )" +
             std::to_string(file.size()) + R"(, "hashes": {}}, "samples": 11, "zip_data": null})";
  }
  std::ofstream(at.file("index.json")) << R"({"shards": [)" << index << R"(], "version": 2})";
  seen ranks[2];
  std::int64_t sum = 0;
  mill::runtime rt;
  train_on_mds(rt, at.path(), {}, sum, ranks[0]);
  CHECK(sum == 21 * 22 / 2);
  CHECK(ranks[0].keys.size() == 22);
  CHECK(ranks[0].keys.count("shard.00001.mds#10") == 1);
  ranks[0] = seen();
  for (std::uint32_t r = 0; r < 2; ++r) train_on_mds(rt, at.path(), {.index = r, .world_size = 2}, sum, ranks[r]);
  CHECK(sum == 21 * 22);
  CHECK(ranks[0].steps == ranks[1].steps);
}

TEST_CASE("guide: rows of arrays are trained on in every epoch, by four ranks and then by three") {
  mill::test::temporary_folder at;
  std::vector<std::int64_t> labels(50);
  std::string head = "{'descr': '<f4', 'fortran_order': False, 'shape': (50, 3), }";
  head.resize(117, ' ');
  std::ofstream out(at.file("x.npy"), std::ios::binary);
  out << std::string("\x93NUMPY\1\0\x76\0", 10) << head << '\n';
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<std::int64_t>(i) + 1;
    for (int k = 0; k < 3; ++k) {
      const auto value = static_cast<float>(10 * labels[i] + k);
      out.write(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  out.close();
  std::map<std::int64_t, std::size_t> times;
  std::string state;
  mill::runtime rt;
  for (const std::size_t world : {4U, 3U}) {
    std::set<std::size_t> steps;
    std::string next;
    for (std::size_t r = 0; r < world; ++r) {
      model m;
      train_on_arrays(rt, at.path(), labels, of(r, world), state, world == 4 ? 10 : SIZE_MAX, m);
      for (const auto& [label, n] : m.times) times[label] += n;
      CHECK(m.wrong == 0);
      steps.insert(m.steps);
      next = m.state;
    }
    CHECK(steps.size() == 1);
    state = next;
  }
  CHECK(times.size() == 50);
  for (const auto& [label, n] : times) CHECK(n == 90);
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
  std::multiset<std::string> kept = both[0].keys;
  kept.insert(both[1].keys.begin(), both[1].keys.end());
  std::multiset<std::string> wanted;  // by the headers of the tars
  for (const auto& [url, tar] : data.store->objects) {
    for (std::size_t at = tar.find(".bin"); at != std::string::npos; at = tar.find(".bin", at + 4)) {
      const std::size_t header = at / 512 * 512;
      if (std::stoul(tar.substr(header + 124, 11), nullptr, 8) > 50) wanted.insert(tar.substr(header, at - header));
    }
  }
  CHECK(wanted.size() > 10);
  CHECK(kept == wanted);
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

TEST_CASE("guide: classes come equally often on two ranks, and a part of the samples is a dataset") {
  const mill::test::tar_dataset data({7, 20, 2, 30}, 100);
  const std::shared_ptr<const mill::storage> store = data.store;
  mill::test::temporary_folder at;
  const mill::dataset corpus(store, "mem:", {.index = at.file("train.index")});
  make_index(corpus);
  std::map<std::string, std::uint32_t> labels;  // 0: 2 samples, 1: 7, 2: 50
  std::map<std::uint32_t, std::multiset<std::string>> members;
  for (const std::string& key : keys_of(data, 1)) {
    labels[key] = key.substr(0, 3) == "s2/" ? 0 : key.substr(0, 3) == "s0/" ? 1 : 2;
    members[labels[key]].insert(key);
  }
  std::map<std::uint32_t, std::size_t> times;
  std::set<std::string> different;
  std::size_t steps[2] = {};
  for (std::size_t r = 0; r < 2; ++r) {
    mill::runtime rt;
    seen m;
    train_balanced(rt, corpus, labels, of(r, 2), m);
    steps[r] = m.steps;
    for (const std::string& key : m.keys) ++times[labels.at(key)];
    different.insert(m.keys.begin(), m.keys.end());
  }
  CHECK(steps[0] == 75);
  CHECK(steps[1] == 75);
  for (std::uint32_t c = 0; c < 3; ++c) {
    CHECK(times[c] > 160);
    CHECK(times[c] < 240);
  }
  CHECK(times[0] + times[1] + times[2] == 600);
  CHECK(different.size() > 50);

  mill::runtime rt;
  seen trained, validated;
  try_out(rt, corpus, trained, validated);
  std::multiset<std::string> held_back;
  std::vector<std::string> others;
  for (std::size_t shard = 0; shard < 4; ++shard) {
    for (std::size_t i = 0; i < data.indexes->counts()->count(shard); ++i) {
      const std::string key = "s" + std::to_string(shard) + "/" + std::to_string(i);
      if (mill::key_hash(key) % 10 != 0) others.push_back(key);
      for (int epoch = 0; epoch < 2 && mill::key_hash(key) % 10 == 0; ++epoch) held_back.insert(key);
    }
  }
  CHECK(validated.keys == held_back);
  std::multiset<std::string> first;
  for (int epoch = 0; epoch < 2; ++epoch) first.insert(others.begin(), others.begin() + 20);
  CHECK(trained.keys == first);
}
