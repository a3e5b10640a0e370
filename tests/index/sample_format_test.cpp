// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Lines and objects as the samples of a dataset. Each expectation comes from a model of its own: lines are cut by
// hand, folders are sorted by hand, and the order is sample_order's over the counts of that.

#include <millrace/formats/line_shards.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/formats/object_samples.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/order/sample_order.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/detail/listed_index.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/checking_client.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

using test::failure_of;

using texts = std::vector<std::string>;

// --- models ---

/// The lines of a text.
texts lines_of(const std::string& text) {
  texts all;
  std::string line;
  bool open = false;
  const auto close = [&] {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    all.push_back(line);
    line.clear();
    open = false;
  };
  for (const char c : text) {
    if (c == '\n') {
      close();
    } else {
      line += c;
      open = true;
    }
  }
  if (open) close();
  return all;
}

/// What a sample is seen as: its key, and each field with its bytes.
std::string seen(const std::string& key, const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string all = key;
  for (const auto& [name, content] : fields) all += '|' + name + '=' + content;
  return all;
}

/// Samples by shard; shards are numbered as in an index_set.
struct model {
  std::vector<texts> shards;

  /// The samples of an epoch, in the canonical order.
  texts order(std::uint64_t seed, std::uint64_t epoch, order_options o) const {
    std::vector<std::uint64_t> counts;
    for (const texts& s : shards) counts.push_back(s.size());
    const sample_order places(std::make_shared<const shard_counts>(counts), seed, epoch, o);
    texts all;
    for (std::uint64_t g = 0; g < places.size(); ++g) {
      const sample_place p = places.at(g);
      all.push_back(shards[static_cast<std::size_t>(p.shard)][static_cast<std::size_t>(p.ordinal)]);
    }
    return all;
  }
};

model model_of_lines(const std::map<std::string, std::string>& files) {
  model m;
  for (const auto& [name, text] : files) {
    texts samples;
    for (const std::string& line : lines_of(text)) {
      samples.push_back(seen(name + '#' + std::to_string(samples.size()), {{"line", line}}));
    }
    m.shards.push_back(samples);
  }
  return m;
}

// --- trainings ---

struct taken {
  std::map<std::uint64_t, std::string> samples;  // by epoch * 2^32 + position
  std::size_t empty = 0;
  std::size_t steps = 0;
  std::string state;
};

task<void> take(stream<sample> in, std::size_t batch, std::size_t most, taken& out) {
  const std::shared_ptr<const stream_position> position = in.position();
  epoch_mark mark;
  for (std::size_t n = 0; n < most * batch; ++n) {
    std::optional<sample> s = co_await in.next();
    if (!s) break;
    mark.join(s->mark);
    if ((n + 1) % batch == 0) ++out.steps;
    if (s->weight() == 0) {
      ++out.empty;
      continue;
    }
    std::vector<std::pair<std::string, std::string>> fields;
    for (const field& f : s->fields) fields.emplace_back(f.extension, std::string(f.data.view()));
    out.samples[s->mark.epoch << 32 | s->mark.position] = seen(s->key, fields);
  }
  out.state = position->state(mark);
}

taken taken_by(stream<sample> in, std::size_t batch, std::size_t most = SIZE_MAX / 65536, std::uint64_t loop_seed = 0) {
  testing::virtual_loop loop(loop_seed);
  taken out;
  block_on(loop, take(std::move(in), batch, most, out));
  return out;
}

std::map<std::uint64_t, std::string> by_position(const model& m, const epochs_options& o, std::uint64_t slice) {
  std::map<std::uint64_t, std::string> all;
  for (std::uint64_t e = 0; e < o.epochs; ++e) {
    const texts order = m.order(o.seed, e, {.tracks = o.tracks, .slice = slice});
    for (std::size_t g = 0; g < order.size(); ++g) all[e << 32 | g] = order[g];
  }
  return all;
}

constexpr epochs_options small{.seed = 5, .epochs = 2, .batch = 3, .tracks = 4};

/// Whole, and stopped at every step, on one to three ranks.
void check_training(const dataset& data, const model& m, std::uint64_t slice) {
  const std::map<std::uint64_t, std::string> wanted = by_position(m, small, slice);
  for (std::uint32_t world = 1; world <= 3; ++world) {
    std::map<std::uint64_t, std::string> all;
    std::size_t steps = 0;
    for (std::uint32_t r = 0; r < world; ++r) {
      epochs_options o = small;
      o.rank = {.index = r, .world_size = world};
      const taken whole = taken_by(epochs(data, o), o.batch);
      if (r == 0) steps = whole.steps;
      CHECK(whole.steps == steps);
      CHECK(whole.samples.size() + whole.empty == steps * o.batch);
      all.insert(whole.samples.begin(), whole.samples.end());
      for (std::size_t stop = 0; stop <= steps; ++stop) {
        const taken first = taken_by(epochs(data, o), o.batch, stop);
        taken joined = taken_by(epochs(data, o, first.state), o.batch);
        CHECK(joined.samples.size() + first.samples.size() == whole.samples.size());
        joined.samples.insert(first.samples.begin(), first.samples.end());
        CHECK(joined.samples == whole.samples);
      }
    }
    CHECK(all == wanted);
  }
}

std::shared_ptr<test::dataset_store> store_of(const std::map<std::string, std::string>& files,
                                              const std::string& below = "mem:d/") {
  const auto store = std::make_shared<test::dataset_store>(1);
  for (const auto& [name, content] : files) store->objects[below + name] = content;
  return store;
}

const std::string long_line(70'000, 'x');

/// What lines may be.
const std::map<std::string, std::string> some_files{
    {"a.jsonl", "{\"n\": 1}\n{\"n\": 2}\r\n\n\r\n{\"n\": 5}"},
    {"b.jsonl", ""},
    {"c.jsonl", "\n"},
    {"d/e.txt", std::string("nul \0 in it\n\0\n", 14) + long_line + "\r\nlast\r"},
    {"f.txt", "\r\r\n\xff\xfe\n"},
};

shard_index index_of_lines(const std::string& text, const std::vector<std::size_t>& cuts = {},
                           std::size_t longest = 16 * MiB) {
  detail::line_scanner scanner(*line_shards(), "x", shard("mem:x"), longest);
  scanner.begin(text, std::nullopt, 4 * MiB);
  std::size_t at = 0;
  for (const std::size_t cut : cuts) {
    scanner.add(bytes::copy(std::string_view(text).substr(at, cut - at)));
    at = cut;
  }
  scanner.add(bytes::copy(std::string_view(text).substr(at)));
  return scanner.finish(text.size(), "\"v1\"");
}

async_generator<chunk> chunks_of(std::string content) {
  chunk c(std::make_shared<const shard>("x", content.size()), 0, bytes::copy(content), true);
  co_yield give(c);
}
task<void> collect_lines(stream<line_batch> in, texts& out) {
  while (auto b = co_await in.next()) {
    for (const std::string_view l : *b) out.emplace_back(l);
  }
}

/// An index with other bytes in it, and the checksum of those.
std::string forged(std::string text, std::size_t at, char value) {
  text[at] = value;
  std::string crc;
  detail::append_le(crc, crc32c(0, text.data(), text.size() - 4), 4);
  return text.replace(text.size() - 4, 4, crc);
}

index_set objects_of(const std::map<std::string, std::string>& files, const std::shared_ptr<const shard_format>& format,
                     const std::string& etag = "\"v1\"") {
  detail::object_index_builder builder(format, "mem:d/");
  for (const auto& [path, content] : files) builder.add(shard("mem:d/" + path, content.size(), etag));
  return builder.finish();
}

const std::map<std::string, std::string> some_images{
    {"a-b/1.jpg", "one"}, {"a-b/1.json", "{}"},     {"a-b/1-2.jpg", "other"},  {"a-b/deep/3.JPG", "three"},
    {"a/x.jpg", ""},      {"a/y.jpg", "why"},       {"z/0.jpg", "zero"},       {"README", "left out"},
    {"root.jpg", "root"}, {"z/.hidden", "hidden"},  {"z/no-extension", "none"}, {"z/4.seg.png", "dots"},
};
/// The samples of class_folders(): folders a, a-b, z.
model model_of_classes() {
  const auto cls = [](int n) { return std::pair<std::string, std::string>("cls", std::to_string(n)); };
  model m;
  m.shards = {{seen("a/x", {{"jpg", ""}, cls(0)}), seen("a/y", {{"jpg", "why"}, cls(0)})},
              {seen("a-b/1", {{"jpg", "one"}, {"json", "{}"}, cls(1)}), seen("a-b/1-2", {{"jpg", "other"}, cls(1)}),
               seen("a-b/deep/3", {{"jpg", "three"}, cls(1)})},
              {seen("z/0", {{"jpg", "zero"}, cls(2)}), seen("z/4", {{"seg.png", "dots"}, cls(2)})}};
  return m;
}

}  // namespace

TEST_CASE("an index of lines has the lines that lines() makes, however the bytes come") {
  rng random(7);
  const std::string letters("ab\n\n\r\0", 6);
  for (int n = 0; n < 3000; ++n) {
    std::string text;
    for (std::size_t i = random.below(20); i > 0; --i) text += letters[random.below(letters.size())];
    std::vector<std::size_t> cuts;
    for (std::size_t i = random.below(4); i > 0; --i) cuts.push_back(random.below(text.size() + 1));
    std::sort(cuts.begin(), cuts.end());
    const shard_index index = index_of_lines(text, cuts);
    texts got;
    for (std::size_t i = 0; i < index.samples(); ++i) {
      const shard_index::field f = index.field_at(i, 0);
      got.push_back(text.substr(f.offset, f.size));
      if (f.crc != crc32c(0, got.back().data(), got.back().size())) FAIL("the CRC32C of a line is wrong");
    }
    testing::virtual_loop loop;
    texts staged;
    block_on(loop, collect_lines(stream<chunk>(chunks_of(text)) | lines(), staged));
    if (got == lines_of(text) && got == staged) continue;
    CAPTURE(text);
    CHECK(got == lines_of(text));
    CHECK(got == staged);
  }
}

TEST_CASE("the lines of text files are samples, in the canonical order, exactly resumed on any ranks") {
  const auto store = store_of(some_files);
  test::temporary_folder at;
  const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                     {.index = at.file("train.index"), .format = line_shards(), .slice = 2});
  check_training(data, model_of_lines(some_files), 2);
  CHECK(data.samples() == 12U);
  CHECK(data.shards() == 5U);
  // By the indexes alone, whose format is said.
  std::ifstream in(at.path() + "/train.index", std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const auto read = std::make_shared<const index_set>(read_indexes(text, "x"));
  CHECK((*read)[0].format() == "lines");
  const dataset given(std::shared_ptr<const storage>(store), read,
                      {.format = line_shards(), .prefix = "mem:d/", .slice = 2});
  CHECK(taken_by(epochs(given, small), 3).samples == by_position(model_of_lines(some_files), small, 2));
}

TEST_CASE("drawn lines, files, ranks and stops: every line comes once an epoch, in the order of the model") {
  rng random(3);
  for (int n = 0; n < 60; ++n) {
    std::map<std::string, std::string> files;
    for (std::size_t i = 1 + random.below(4); i > 0; --i) {
      std::string text;
      for (std::size_t k = random.below(60); k > 0; --k) text += "ab\n\n\r"[random.below(5)];
      files[std::to_string(random.below(1000)) + ".txt"] = text;
    }
    files["some.txt"] = "one\n";
    const auto store = store_of(files);
    store->delay_us = random.below(2) * 500;
    test::temporary_folder at;
    const std::uint64_t slice = 1 + random.below(4);
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                       {.index = at.file("i"), .format = line_shards(), .slice = slice});
    epochs_options o{.seed = random.below(9), .epochs = 1 + random.below(3), .batch = 1 + random.below(4)};
    o.tracks = 1 + random.below(6);
    o.part = 1 + random.below(40);
    o.gap = random.below(4);
    o.bytes = 1 + random.below(4000);
    std::map<std::uint64_t, std::string> all;
    std::string state;
    for (bool more = true; more;) {  // each time on other ranks
      const auto world = static_cast<std::uint32_t>(1 + random.below(3));
      const std::size_t most = 1 + random.below(30);
      std::string next;
      for (std::uint32_t r = 0; r < world; ++r) {
        epochs_options mine = o;
        mine.rank = {.index = r, .world_size = world};
        const taken part = taken_by(epochs(data, mine, state), o.batch, most, n);
        for (const auto& [place, s] : part.samples) CHECK(all.emplace(place, s).second);
        if (r == 0) next = part.state;
        CHECK(part.state == next);
        more = part.steps == most;
      }
      state = next;
    }
    CHECK(all == by_position(model_of_lines(files), o, slice));
  }
}

TEST_CASE("what is no plain text, and a line that is too long, is refused by name") {
  const auto refusal = [](const std::string& text, std::size_t longest = 100) {
    return failure_of([&] { static_cast<void>(index_of_lines(text, {}, longest)); });
  };
  CHECK_THAT(refusal("short\n" + std::string(101, 'x')), Contains("mem:x at byte 6: line 1 is longer than 100 bytes"));
  CHECK(refusal("short\n" + std::string(100, 'x') + "\nshort") == "no error");
  CHECK_THAT(refusal("BZh91AY&SY" + std::string(600, '\0')), Contains("this is bzip2 data, of which no line can be"));
  const test::tar_dataset tars({3}, 10);
  CHECK_THAT(refusal(tars.store->objects.begin()->second), Contains("this is a tar archive and no text"));
  // A dataset says which file it is.
  test::temporary_folder at;
  const std::shared_ptr<const storage> store = store_of({{"a.txt", "a\n"}, {"b.bz2", "BZh91AY&SY" + long_line}});
  const dataset packed(store, "mem:d/", {.index = at.file("i"), .format = line_shards()});
  CHECK_THAT(failure_of([&] { taken_by(epochs(packed, small), 3); }),
             Contains("mem:d/b.bz2 at byte 0: this is bzip2 data"));
  const auto tar_options = dataset_options{.index = at.file("j")};
  const dataset text_as_tar(std::shared_ptr<const storage>(store_of({{"a.jsonl", "{}\n" + long_line}})), "mem:d/",
                            tar_options);
  CHECK_THAT(failure_of([&] { taken_by(epochs(text_as_tar, small), 3); }),
             Contains("dataset_options::format is line_shards()"));
}

TEST_CASE("a text file that is another version than its index is named") {
  const auto store = store_of(some_files);
  test::temporary_folder at;
  const dataset_options how{.index = at.file("train.index"), .format = line_shards()};
  const auto refusal = [&] {
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/", how);
    return failure_of([&] { taken_by(epochs(data, small), 3); });
  };
  CHECK(refusal() == "no error");
  const std::string before = store->objects["mem:d/a.jsonl"];
  std::string& text = store->objects["mem:d/a.jsonl"];
  text += "\nmore";
  CHECK_THAT(refusal(), Contains("mem:d/a.jsonl: the index \"a.jsonl\" is of another version of this shard"));
  text = before;
  text[6] = '7';  // of the same size, and its ETag has not changed
  CHECK_THAT(refusal(), Contains("mem:d/a.jsonl at byte 0, a.jsonl#0: the CRC32C of the record is"));
  text = before;
  store->bad["mem:d/d/e.txt"] = test::harm::changed;
  CHECK_THAT(refusal(), Contains("mem:d/d/e.txt"));
  store->bad.clear();
  store->objects["mem:d/new.txt"] = "x\n";
  CHECK_THAT(refusal(), Contains("mem:d/new.txt: the index " + how.index + " is of another list"));
}

TEST_CASE("objects are samples, of folders that are classes, in the canonical order, exactly resumed on any ranks") {
  const auto store = store_of(some_images);
  test::temporary_folder at;
  const dataset data(std::shared_ptr<const storage>(store), "mem:d",  // a folder, with or without its slash
                     {.index = at.file("train.index"), .format = class_folders()});
  CHECK_THAT(failure_of([&] { static_cast<void>(data.classes()); }), Contains("its classes are not known yet"));
  store->requests = 0;
  check_training(data, model_of_classes(), 1);
  CHECK(data.classes() == texts{"a", "a-b", "z"});
  CHECK(data.samples() == 7U);
  CHECK(data.bytes() == 26U);
  // The index was made of the listing: each object is read whole, when its sample is taken, and an empty one not.
  epochs_options one = small;
  one.epochs = 1;
  store->requests = 0;
  CHECK(taken_by(epochs(data, one), 3).samples.size() == 7);
  CHECK(store->requests == 7);
}

TEST_CASE("objects without classes, and folders as samples") {
  const auto slow = store_of(some_images);
  slow->delay_us = 500;  // the objects of a sample come one after the other
  const std::shared_ptr<const storage> store = slow;
  test::temporary_folder at;
  model keys;
  keys.shards = {{seen("a/x", {{"jpg", ""}}), seen("a/y", {{"jpg", "why"}}),
                  seen("a-b/1", {{"jpg", "one"}, {"json", "{}"}}), seen("a-b/1-2", {{"jpg", "other"}}),
                  seen("a-b/deep/3", {{"jpg", "three"}}),
                  seen("root", {{"jpg", "root"}}), seen("z/0", {{"jpg", "zero"}}),
                  seen("z/4", {{"seg.png", "dots"}})}};
  std::sort(keys.shards[0].begin(), keys.shards[0].end(), [](const std::string& x, const std::string& y) {
    return x.substr(0, x.find('|')) < y.substr(0, y.find('|'));
  });
  check_training(dataset(store, "mem:d/", {.index = at.file("a"), .format = object_samples()}), keys, 1);
  model folders;
  folders.shards = {{seen("a", {{"x.jpg", ""}, {"y.jpg", "why"}}),
                     seen("a-b", {{"1-2.jpg", "other"}, {"1.jpg", "one"}, {"1.json", "{}"}}),
                     seen("a-b/deep", {{"3.JPG", "three"}}),
                     seen("z", {{"0.jpg", "zero"}, {"4.seg.png", "dots"}, {"no-extension", "none"}})}};
  const dataset recordings(store, "mem:d/", {.index = at.file("b"), .format = sample_folders()});
  check_training(recordings, folders, 1);
  CHECK_THAT(failure_of([&] { static_cast<void>(recordings.classes()); }), Contains("only data of"));
}

TEST_CASE("objects that are new, gone or another version are named") {
  const auto store = store_of(some_images);
  test::temporary_folder at;
  const dataset_options how{.index = at.file("train.index"), .format = class_folders()};
  const auto refusal = [&] {
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/", how);
    return failure_of([&] { taken_by(epochs(data, small), 3); });
  };
  CHECK(refusal() == "no error");
  store->objects["mem:d/a/x.jpg"] = "longer";
  CHECK_THAT(refusal(), Contains("mem:d/a/x.jpg: the index " + how.index +
                                 " is of another list: this object had 0 bytes and has 6"));
  store->objects["mem:d/a/x.jpg"] = "";
  store->objects["mem:d/b/new.jpg"] = "";
  CHECK_THAT(refusal(), Contains("mem:d/b/new.jpg") && Contains("it does not have this object"));
  store->objects.erase("mem:d/b/new.jpg");
  store->objects.erase("mem:d/z/0.jpg");
  CHECK_THAT(refusal(), Contains("mem:d/z/0.jpg") && Contains("this object is not listed"));
  store->objects["mem:d/z/0.jpg"] = "zero";
  CHECK(refusal() == "no error");
  store->etag = "\"v2\"";
  CHECK_THAT(refusal(), Contains("mem:d/a/x.jpg") && Contains("ETag was \"v1\" and is \"v2\""));
  store->etag = "\"v1\"";
  // While the training runs: an error that names it, or an empty entry.
  store->bad["mem:d/a-b/1.json"] = test::harm::missing;  // the second one of its sample
  CHECK_THAT(refusal(), Contains("mem:d/a-b/1.json at byte 0: there is no such object"));
  store->bad.clear();
  store->bad["mem:d/a/y.jpg"] = test::harm::missing;
  CHECK_THAT(refusal(), Contains("mem:d/a/y.jpg at byte 0: there is no such object"));
  const dataset data(std::shared_ptr<const storage>(store), "mem:d/", how);
  epochs_options lenient = small;
  lenient.failures = {.then = on_failure::skip, .limit = 9};
  const taken some = taken_by(epochs(data, lenient), 3);
  CHECK(some.samples.size() == 2 * 6);
  CHECK(some.empty == 2 * 3);  // two places of each epoch's end are empty, too
  store->bad["mem:d/a/y.jpg"] = test::harm::changed;
  CHECK_THAT(refusal(), Contains("mem:d/a/y.jpg") && Contains("is of another version of this object"));
  store->bad["mem:d/a/y.jpg"] = test::harm::cut;
  CHECK_THAT(refusal(), Contains("mem:d/a/y.jpg"));
}

TEST_CASE("the index of objects is written once, and a rank that has listed others gets an error") {
  const auto store = store_of(some_images);
  test::temporary_folder at;
  const std::string file = at.file("i");
  const dataset_options how{.index = file, .format = class_folders()};
  const auto made = std::make_shared<const index_set>(objects_of(some_images, class_folders()));
  auto others = some_images;
  others.erase("z/0.jpg");
  const auto other = std::make_shared<const index_set>(objects_of(others, class_folders()));
  detail::listed_index first(store, "mem:d/", how, {});
  testing::virtual_loop loop;
  CHECK(block_on(loop, first.of_objects(made))->digest() == made->digest());
  detail::listed_index second(store, "mem:d/", how, {});
  CHECK_THAT(failure_of([&] { block_on(loop, second.of_objects(other)); }), Contains("mem:d/z/0.jpg"));
  CHECK(block_on(loop, second.of_objects(made))->digest() == made->digest());
  CHECK(std::distance(std::filesystem::directory_iterator(at.path()), {}) == 1);
}

TEST_CASE("objects that cannot be samples are refused by name") {
  const auto refusal = [](const std::map<std::string, std::string>& files,
                          const std::shared_ptr<const shard_format>& format) {
    return failure_of([&] { static_cast<void>(objects_of(files, format)); });
  };
  CHECK_THAT(refusal({{"a/1.JPG", ""}, {"a/1.jpg", ""}}, object_samples()),
             Contains("mem:d/a/1.jpg: the sample has two objects with the extension \"jpg\""));
  CHECK_THAT(refusal({{"a/1.cls", ""}}, class_folders()), Contains("mem:d/a/1.cls: the sample has an object"));
  CHECK(refusal({{"a/1.cls", ""}}, object_samples()) == "no error");
  CHECK_THAT(refusal({{"a/1.__key__", ""}}, object_samples()), Contains("stands for what a sample has"));
  detail::object_index_builder builder(object_samples(), "mem:d/");
  CHECK_THAT(failure_of([&] { builder.add(shard("mem:e/1.jpg", 1)); }),
             Contains("does not lie under the prefix mem:d/"));
  CHECK_THAT(failure_of([&] { builder.add(shard("mem:d/1.jpg")); }), Contains("how long this object is"));
  detail::object_index_builder web(object_samples(), "https://h/");
  CHECK_THAT(failure_of([&] { web.add(shard("https://h/1.jpg?secret=x", 1)); }), Contains("cannot have signed URLs"));

  const std::shared_ptr<const storage> store = store_of({{"README", ""}});
  test::temporary_folder at;
  const dataset none(store, "mem:d/", {.index = at.file("i"), .format = object_samples()});
  CHECK_THAT(failure_of([&] { taken_by(epochs(none, small), 3); }), Contains("there is no object that is a sample"));
  const auto refused = [&](auto&&... given) {
    return failure_of([&] { dataset made(store, std::forward<decltype(given)>(given)...); });
  };
  CHECK_THAT(refused("mem:d/", dataset_options{.format = line_shards()}),
             Contains("samples of lines need an index: give .index"));
  CHECK_THAT(
      refused(std::vector<shard>{shard("mem:d/1.jpg", 1)}, dataset_options{.index = "i", .format = object_samples()}),
      Contains("with a slash at its end, as .prefix"));
  CHECK_THAT(failure_of([] { dataset made(files(), "d/*", {.index = "i", .format = object_samples()}); }),
             Contains("no pattern"));
}

TEST_CASE("the index of another format is refused by name") {
  const auto store = store_of(some_files);
  test::temporary_folder at;
  const std::string file = at.file("i");
  const std::shared_ptr<const storage> from = store;
  taken_by(epochs(dataset(from, "mem:d/", {.index = file, .format = line_shards()}), small), 3);
  const dataset other(from, "mem:d/", {.index = file, .format = object_samples()});
  CHECK_THAT(failure_of([&] { taken_by(epochs(other, small), 3); }),
             Contains(file + ": the index is of lines, and dataset_options::format is objects"));
  CHECK_THAT(failure_of([&] { static_cast<void>(other.samples()); }), Contains("the index is of lines"));
  const auto objects = std::make_shared<const index_set>(objects_of(some_images, class_folders()));
  CHECK_THAT(failure_of([&] { dataset made(from, objects, {.format = line_shards()}); }),
             Contains(".format is lines, and the indexes that are given are of classes"));
  CHECK_THAT(failure_of([&] { dataset made(from, objects, {.format = class_folders(), .prefix = "mem:d"}); }),
             Contains("ends in a slash"));
  CHECK(dataset(from, objects, {.format = class_folders(), .prefix = "mem:d/"}).classes() == texts{"a", "a-b", "z"});
  std::vector<shard_index> both{(*objects)[0], index_of_lines("a\n")};
  CHECK_THAT(failure_of([&] { index_set mixed(both); }), Contains("an index is of lines, and that of a of classes"));
}

TEST_CASE("indexes of lines and of objects are written and read; whatever is wrong with one is found") {
  const std::string md5 = "\"0123456789abcdef0123456789abcdef\"";
  for (const std::string& etag : {md5, std::string(), std::string("\"0123456789abcdef0123456789abcdef-7\"")}) {
    const index_set all = objects_of(some_images, class_folders(), etag);
    CHECK(all[1].object_at(0, 1).path == "1.json");
    CHECK(all[1].object_at(0, 1).etag == etag);
    std::string text;
    write_indexes(all, text);
    CHECK(read_indexes(text, "f") == std::vector<shard_index>(all.begin(), all.end()));
  }
  const shard_index lines = index_of_lines(some_files.at("d/e.txt"));
  const index_set objects = objects_of(some_images, class_folders(), md5);
  // Its second line, whose offset is the byte at 96, begins in the first one.
  CHECK_THAT(failure_of([text = forged(lines.text(), 96, 3)] {
               std::string_view left = text;
               static_cast<void>(shard_index::read(left, "f"));
             }),
             Contains("f at byte 96: a record begins before the one before it ends"));
  rng random(1);
  for (const shard_index* index : {&lines, &objects[0], &objects[1]}) {
    const std::string text = index->text();
    CHECK(text.size() == index->file_bytes());
    // A program that knows version 1 alone says so: this is the number that it looks at, at byte 8.
    CHECK(detail::read_le(text, 8, 4) == 2);
    std::string_view rest = text;
    CHECK(shard_index::read(rest, "f") == *index);
    CHECK(rest.empty());
    const auto refused = [](const std::string& wrong) {
      std::string_view left = wrong;
      return failure_of([&] { static_cast<void>(shard_index::read(left, "f")); });
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
      CHECK(refused(text.substr(0, i)) != "no error");
      std::string wrong = text;
      wrong[i] = static_cast<char>(wrong[i] ^ 1);
      CHECK(refused(wrong) != "no error");
    }
    CHECK_THAT(refused(forged(text, 8, 5)), Contains("has version 5; this program reads versions 1 to 4"));
    CHECK_THAT(refused(forged(text, 8, 4)), Contains("a format that version 4 does not know"));
    CHECK_THAT(refused(forged(text, 13, 0)), Contains("a format that version 2 does not know"));
    CHECK_THAT(refused(forged(text, 13, 9)), Contains("a format that version 2 does not know"));
    CHECK(refused(forged(text, 12, 0x10)) != "no error");
    // A forged one is refused, or is an index: whatever it says can be asked.
    std::size_t read = 0;
    for (int n = 0; n < 20'000; ++n) {
      std::string wrong = text;
      for (std::size_t k = 1 + random.below(3); k > 0; --k) {
        wrong = forged(std::move(wrong), 12 + random.below(text.size() - 16), static_cast<char>(random.below(256)));
      }
      std::string_view left = wrong;
      try {
        const shard_index other = shard_index::read(left, "f");
        ++read;
        for (std::size_t i = 0; i < other.samples(); ++i) {
          for (std::size_t k = 0; k < other.field_count(i); ++k) {
            static_cast<void>(other.field_at(i, k));
            if (other.of_objects()) static_cast<void>(other.object_at(i, k));
          }
          static_cast<void>(other.key(i));
        }
      } catch (const index_error&) {
      }
    }
    CHECK(read != 0);
  }
}

TEST_CASE("an index of a tar is the bytes that it was before there were others") {
  std::string golden = "mrindex\n";
  const auto add = [&](std::uint64_t value, int bytes) { detail::append_le(golden, value, bytes); };
  add(1, 4);                                   // version
  add(7, 4);                                   // flags
  add(64 + 16 + 16 + 16 + 4, 8);               // length
  add(2048, 8);                                // of the object
  add(1, 8);                                   // samples
  add(1, 8);                                   // fields
  for (const int n : {5, 4, 1, 5}) add(static_cast<std::uint64_t>(n), 4);
  golden += "x.tar\"v1\"";
  add(3, 2);
  golden += "jpg";
  add(0, 2);  // up to 16
  add(key_hash("a"), 8);
  add(0, 6);
  add(1, 2);
  add(1, 4);
  add(0x12345678, 4);
  add(77, 5);
  add(0, 3);
  add(crc32c(0, golden.data(), golden.size()), 4);
  std::string_view rest = golden;
  const shard_index index = shard_index::read(rest, "f");
  CHECK(index.format() == "tar");
  CHECK(index.field_at(0, 0).offset == 512);
  CHECK(index.field_at(0, 0).crc == 0x12345678);
  CHECK(index.text() == golden);
}

TEST_CASE("lines, tars and classes mix by weights") {
  const auto store = std::make_shared<test::dataset_store>(1);
  const test::tar_dataset tars({9, 4}, 20, 1, "tars/", store);
  for (const auto& [name, content] : some_files) store->objects["mem:text/" + name] = content;
  for (const auto& [name, content] : some_images) store->objects["mem:images/" + name] = content;
  const std::shared_ptr<const storage> from = store;
  test::temporary_folder at;
  const dataset text(from, "mem:text/", {.index = at.file("t"), .format = line_shards()});
  const dataset images(from, "mem:images/", {.index = at.file("i"), .format = class_folders()});
  const dataset all({{text, 2}, {dataset(from, tars.indexes, {.prefix = "mem:tars/"}), 1}, {images, 1}},
                    {.until = mix_until::last_end});
  epochs_options o = small;
  o.tracks = 8;
  const taken whole = taken_by(epochs(all, o), 3);
  std::map<std::string, int> of_tars;  // which take longest
  for (const auto& [place, s] : whole.samples) {
    if (s.substr(0, 5) == "tars/") ++of_tars[std::to_string(place >> 32) + s.substr(0, s.find('|'))];
  }
  CHECK(of_tars.size() == 2 * 13U);
  CHECK(whole.samples.size() > 4 * of_tars.size() - 8);
  const taken first = taken_by(epochs(all, o), 3, 11);
  taken second = taken_by(epochs(all, o, first.state), 3);
  second.samples.insert(first.samples.begin(), first.samples.end());
  CHECK(second.samples == whole.samples);
  std::map<std::string, int> of_class;
  for (const auto& [place, s] : whole.samples) {
    const std::size_t at_class = s.find("|cls=");
    if (at_class != std::string::npos) ++of_class[s.substr(at_class + 5)];
  }
  CHECK(of_class.size() == 3);  // numbered in the member, not in the mix
  CHECK(of_class.count("2") == 1);
}

TEST_CASE("lines and objects of an S3 store are read as the versions that were indexed") {
  s3_server::background server;
  for (const auto& [name, content] : some_files) server.put("corpus", "text/" + name, content);
  for (const auto& [name, content] : some_images) server.put("corpus", "images/" + name, content);
  const s3::client s3 = test::checking_client(server);
  test::temporary_folder at;
  const dataset text(s3, "s3://corpus/text/", {.index = at.file("t"), .format = line_shards(), .slice = 2});
  const dataset images(s3, "s3://corpus/images", {.index = at.file("i"), .format = class_folders()});
  const auto got = [](const dataset& data) {
    runtime rt;
    std::map<std::uint64_t, std::string> all;
    for (const sample& s : rt.run(epochs(data, {.seed = 5, .tracks = 4}))) {
      std::vector<std::pair<std::string, std::string>> fields;
      for (const field& f : s.fields) fields.emplace_back(f.extension, std::string(f.data.view()));
      all[s.mark.position] = seen(s.key, fields);
    }
    return all;
  };
  for (int run = 0; run < 2; ++run) {
    CHECK(got(text) == by_position(model_of_lines(some_files), {.seed = 5, .tracks = 4}, 2));
    CHECK(got(images) == by_position(model_of_classes(), {.seed = 5, .tracks = 4}, 1));
  }
  // Of the indexes alone nothing is listed, and each read asks for the version.
  std::ifstream in(at.path() + "/i", std::ios::binary);
  const std::string index(std::istreambuf_iterator<char>(in), {});
  const auto indexes = std::make_shared<const index_set>(read_indexes(index, "i"));
  const dataset given(s3, indexes, {.format = class_folders(), .prefix = "s3://corpus/images/"});
  server.put("corpus", "images/a/y.jpg", std::string("not"));  // of the same size
  CHECK_THAT(failure_of([&] { got(given); }),
             Contains("s3://corpus/images/a/y.jpg") && Contains("another version of this object"));
  CHECK_THAT(failure_of([&] { got(images); }), Contains("s3://corpus/images/a/y.jpg") && Contains("ETag was"));
}

TEST_CASE("a local folder of images is a dataset, with the index in it") {
  test::temporary_folder at;
  const std::string folder = at.path() + "/images";
  for (const auto& [path, content] : some_images) {
    const std::filesystem::path file = folder + '/' + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
  }
  const dataset data(files(), folder, {.index = folder + "/train.index", .format = class_folders()});
  for (int run = 0; run < 2; ++run) {
    runtime rt;
    std::map<std::uint64_t, std::string> got;
    for (const sample& s : rt.run(epochs(data, {.seed = 5, .tracks = 4}))) {
      std::vector<std::pair<std::string, std::string>> fields;
      for (const field& f : s.fields) fields.emplace_back(f.extension, std::string(f.data.view()));
      got[s.mark.position] = seen(s.key, fields);
    }
    CHECK(got == by_position(model_of_classes(), {.seed = 5, .tracks = 4}, 1));
  }
  std::ofstream(folder + "/a/y.jpg", std::ios::binary) << "longer";
  runtime rt;
  CHECK_THAT(failure_of([&] { static_cast<void>(rt.run(epochs(data, {})).next()); }),
             Contains(folder + "/a/y.jpg: the index") && Contains("had 3 bytes and has 6"));
  std::filesystem::remove_all(folder);
}
