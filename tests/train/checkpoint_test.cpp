// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/train/checkpoint.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/s3_storage.hpp>

#include "test_data_default.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/memory_storage.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace millrace;
using namespace millrace::test;
using Catch::Matchers::Contains;

namespace {

std::vector<float> counted(std::size_t n, float from = 0) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = from + static_cast<float>(i);
  return v;
}
tensor_view view(std::vector<float>& v, const shape& dims) { return tensor_view(v.data(), dtype::f32, dims); }

/// Counts the reads of another store.
class counting_storage final : public forwarding_storage {
 public:
  explicit counting_storage(std::shared_ptr<const storage> inner) : forwarding_storage(std::move(inner)) {}
  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    ++reads_;
    return forwarding_storage::read(std::move(object), std::move(etag), offset, length, std::move(slabs));
  }
  task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const override {
    ++reads_;
    return forwarding_storage::read_small(std::move(object), std::move(etag), length, std::move(slabs));
  }
  /// Since the last call.
  int reads() const { return std::exchange(reads_, 0); }

 private:
  mutable int reads_ = 0;
};

void put(event_loop& loop, const std::shared_ptr<const storage>& to, const std::string& url, std::string text) {
  block_on(loop, detail::put_text(*to, url, std::move(text)));
}

/// What reading a file with this header, and so much data, says.
std::string refusal(const std::string& json, std::size_t data) {
  std::string text;
  detail::append_le(text, json.size(), 8);
  text += json;
  return failure_of([&] { safetensors_header::parse(text, text.size() + data, "f"); });
}

/// A training of `world` ranks writes rows of "w" (12 x 5), rank 0 "b" as a whole.
void write_all(event_loop& loop, const std::shared_ptr<const storage>& store, const std::string& folder,
               std::uint32_t world, std::uint64_t step, float from, std::uint32_t ranks) {
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const checkpoints saved(store, folder, {.index = r, .world_size = world});
    const std::uint64_t first = 12 * r / world;
    const std::uint64_t rows = 12 * (r + 1) / world - first;
    std::vector<float> w = counted(rows * 5, from + static_cast<float>(first * 5));
    std::vector<float> b = counted(3, from);
    std::vector<tensor_slice> mine;
    mine.emplace_back("w", view(w, {static_cast<std::int64_t>(rows), 5}), first, 12);
    if (r == 0) mine.emplace_back("b", view(b, {3}));
    block_on(loop, saved.write(step, std::move(mine)));
  }
}

void check_ranks(const std::shared_ptr<const storage>& store, const std::string& folder) {
  const auto loop = make_event_loop();
  const checkpoints saved(store, folder, {.index = 0, .world_size = 2});
  CHECK(block_on(*loop, saved.complete()).empty());
  write_all(*loop, store, folder, 2, 7, 100, 2);
  CHECK(block_on(*loop, saved.complete()).empty());
  block_on(*loop, saved.commit(7, "{\"state\": \"\xc3\xa4\\\n\"}"));
  CHECK(block_on(*loop, saved.complete()) == std::vector<std::uint64_t>{7});

  // Killed before all ranks have written: the former one is the latest.
  write_all(*loop, store, folder, 2, 8, 200, 1);
  CHECK_THAT(failure_of([&] { block_on(*loop, saved.commit(8, "")); }), Contains("model-00002-of-00002"));
  CHECK(block_on(*loop, saved.complete()) == std::vector<std::uint64_t>{7});
  CHECK_THAT(failure_of([&] { write_all(*loop, store, folder, 2, 7, 0, 1); }), Contains("is complete"));
  CHECK_THAT(failure_of([&] { block_on(*loop, saved.commit(7, "")); }), Contains("is complete"));

  // Three ranks read what two have written: rows of both files.
  const tensor_files there = block_on(*loop, saved.open(7));
  CHECK(there.state() == "{\"state\": \"\xc3\xa4\\\n\"}");
  REQUIRE(there.find("w") != nullptr);
  CHECK(there.find("w")->dims == shape{12, 5});
  for (std::uint64_t r = 0; r < 3; ++r) {
    std::vector<float> w(20), b(3);
    std::vector<tensor_slice> into;
    into.emplace_back("w", view(w, {4, 5}), 4 * r);
    into.emplace_back("b", view(b, {3}));
    block_on(*loop, there.load(std::move(into)));
    CHECK(w == counted(20, 100 + static_cast<float>(20 * r)));
    CHECK(b == counted(3, 100));
  }

  // Three go on with step 8, whose leftovers of two are removed; two are kept.
  write_all(*loop, store, folder, 3, 8, 200, 3);
  const checkpoints three(store, folder, {.index = 0, .world_size = 3});
  block_on(*loop, three.commit(8, "8"));
  write_all(*loop, store, folder, 3, 9, 300, 1);  // never committed
  write_all(*loop, store, folder, 3, 10, 400, 3);
  block_on(*loop, three.commit(10, "10", 2));
  CHECK(block_on(*loop, three.complete()) == std::vector<std::uint64_t>{8, 10});
  const auto left = block_on(*loop, detail::all_objects(store, folder));
  CHECK(left.size() == 8);
  const tensor_files newer = block_on(*loop, three.open(8));
  std::vector<float> w(60);
  std::vector<tensor_slice> into;
  into.emplace_back("w", view(w, {12, 5}));
  block_on(*loop, newer.load(std::move(into)));
  CHECK(w == counted(60, 200));
}

}  // namespace

TEST_CASE("a checkpoint of any number of ranks, in memory") {
  check_ranks(std::make_shared<memory_storage>(), "mem://run/");
}

TEST_CASE("a checkpoint of any number of ranks, in files") {
  temporary_folder folder;
  std::filesystem::create_directories(folder.path() + "/run");
  check_ranks(files(), folder.path() + "/run/");
}

TEST_CASE("a checkpoint of any number of ranks, in S3") {
  s3_server::background server;
  server.objects().create_bucket("runs");
  const std::string endpoint = server.endpoint();
  s3::config_options o;
  o.endpoint = endpoint;
  const s3::client client(s3::config(o), s3::credentials("test-key", "test-secret"));
  check_ranks(as_storage(client), "s3://runs/17/");
}

namespace {

const std::string step_5 = "mem://run/step-000005/";
const std::string index_5 = step_5 + "model.safetensors.index.json";

/// A committed checkpoint of `world` ranks, in which each row of "w" has a rank of its own.
std::shared_ptr<memory_storage> committed(event_loop& loop, std::uint32_t world, float from = 100) {
  const auto store = std::make_shared<memory_storage>();
  write_all(loop, store, "mem://run/", world, 5, from, world);
  block_on(loop, checkpoints(store, "mem://run/", {.index = 0, .world_size = world}).commit(5, "state"));
  return store;
}

std::vector<float> all_of_w(event_loop& loop, const tensor_files& there) {
  std::vector<float> w(60);
  std::vector<tensor_slice> into;
  into.emplace_back("w", view(w, {12, 5}));
  block_on(loop, there.load(std::move(into)));
  return w;
}

}  // namespace

TEST_CASE("a rank opens a checkpoint by its index alone, whatever the number of files") {
  const auto loop = make_event_loop();
  const auto memory = committed(*loop, 64);
  const auto store = std::make_shared<counting_storage>(memory);
  for (std::uint32_t r = 0; r < 100; ++r) {  // another number of ranks
    const checkpoints saved(store, "mem://run/", {.index = r, .world_size = 100});
    const tensor_files there = block_on(*loop, saved.open(5));
    CHECK(store->reads() == 1);
    CHECK(there.files().size() == 64);
    CHECK(there.state() == "state");
    std::vector<float> row(5);
    std::vector<tensor_slice> into;
    into.emplace_back("w", view(row, {1, 5}), r % 12);
    block_on(*loop, there.load(std::move(into)));
    CHECK(store->reads() == 1);
    CHECK(row == counted(5, 100 + static_cast<float>(r % 12 * 5)));
  }
  // The headers in the index are those of the files.
  const tensor_files there = block_on(*loop, open_safetensors(std::shared_ptr<const storage>(store), step_5));
  for (const tensor_files::file& f : there.files()) {
    const tensor_files::file itself = block_on(*loop, detail::read_front(store, f.object.url));
    CHECK(f.digest == itself.digest);
    CHECK(f.object.etag == itself.object.etag);
    CHECK(f.object.size == itself.object.size);
    REQUIRE(f.header.tensors.size() == itself.header.tensors.size());
    for (std::size_t i = 0; i < f.header.tensors.size(); ++i) {
      const stored_tensor& a = f.header.tensors[i];
      const stored_tensor& b = itself.header.tensors[i];
      CHECK((a.name == b.name && a.type == b.type && a.dims == b.dims && a.begin == b.begin && a.end == b.end));
      CHECK((a.first_row == b.first_row && (b.rows == 0 || a.rows == b.rows)));
    }
  }
  // An index of any length is at most four requests.
  std::string text = memory->find(index_5)->text;
  put(*loop, memory, index_5, text + std::string(9 * MiB, ' '));
  store->reads();
  CHECK(block_on(*loop, checkpoints(store, "mem://run/").open(5)).files().size() == 64);
  CHECK(store->reads() == 4);
}

TEST_CASE("a file that another save has written is no part of a checkpoint, a copy is") {
  const auto loop = make_event_loop();
  const auto memory = committed(*loop, 2);
  const auto store = std::make_shared<counting_storage>(memory);
  const std::string second = "model-00002-of-00002.safetensors";
  // A copy has other versions: each file's header is looked at once.
  const auto copy = std::make_shared<memory_storage>();
  for (const shard& s : block_on(*loop, detail::all_objects(store, step_5))) {
    put(*loop, copy, "mem://else/" + s.url, memory->find(s.url)->text);
    put(*loop, copy, "mem://else/" + s.url, memory->find(s.url)->text);
  }
  const auto counted_copy = std::make_shared<counting_storage>(copy);
  const tensor_files copied =
      block_on(*loop, open_safetensors(std::shared_ptr<const storage>(counted_copy), "mem://else/" + step_5));
  counted_copy->reads();
  CHECK(all_of_w(*loop, copied) == counted(60, 100));
  CHECK(counted_copy->reads() <= 2 + 2 + 2);
  // A rank of a killed attempt was late: its file has the same tensors and lengths.
  const tensor_files there = block_on(*loop, checkpoints(store, "mem://run/").open(5));
  const auto late = committed(*loop, 2, 500);
  put(*loop, memory, step_5 + second, late->find(step_5 + second)->text);
  CHECK_THAT(failure_of([&] { all_of_w(*loop, there); }), Contains("another save") && Contains(second));
  CHECK_THAT(failure_of([&] { all_of_w(*loop, block_on(*loop, checkpoints(store, "mem://run/").open(5))); }),
             Contains("another save"));
}

TEST_CASE("files have no versions: their headers are compared with the index") {
  const auto loop = make_event_loop();
  temporary_folder folder;
  const std::string second = "/step-000005/model-00002-of-00002.safetensors";
  for (const std::string run : {"/a", "/b"}) {
    write_all(*loop, files(), folder.path() + run + "/", 2, 5, run == "/a" ? 100 : 500, 2);
    block_on(*loop, checkpoints(files(), folder.path() + run + "/", {.index = 0, .world_size = 2}).commit(5, ""));
  }
  const checkpoints saved(files(), folder.path() + "/a/");
  CHECK(all_of_w(*loop, block_on(*loop, saved.open(5))) == counted(60, 100));
  std::filesystem::copy_file(folder.path() + "/b" + second, folder.path() + "/a" + second,
                             std::filesystem::copy_options::overwrite_existing);
  CHECK_THAT(failure_of([&] { all_of_w(*loop, block_on(*loop, saved.open(5))); }),
             Contains("another save") && Contains(second));
}

TEST_CASE("of a model with an index of others the headers are read, or of the files that are asked for") {
  const auto loop = make_event_loop();
  const auto memory = std::make_shared<memory_storage>();
  const auto store = std::make_shared<counting_storage>(memory);
  const std::shared_ptr<const storage> as_store = store;
  std::string map;
  for (int i = 0; i < 8; ++i) {
    std::vector<float> values = counted(3, static_cast<float>(i));
    const std::string name = "layer" + std::to_string(i);
    std::vector<tensor_slice> one;
    one.emplace_back(name, view(values, {3}));
    block_on(*loop, put_safetensors(as_store, "mem://m/" + name + ".safetensors", std::move(one)));
    map += (i == 0 ? "\"" : ",\"") + name + "\":\"" + name + ".safetensors\"";
  }
  const std::string index = "mem://m/model.safetensors.index.json";
  // It quotes what an index of ours has, and is none.
  put(*loop, memory, index, "{\"metadata\":{\"note\":\"\\\"millrace_files\\\"\"},\"weight_map\":{" + map + "}}");
  CHECK(block_on(*loop, open_safetensors(as_store, "mem://m/")).tensors().size() == 8);
  CHECK(store->reads() == 1 + 8);
  const tensor_files two = block_on(*loop, open_safetensors(as_store, "mem://m/", {"layer3", "layer5", "layer3"}));
  CHECK(store->reads() == 1 + 2);
  CHECK(two.tensors().size() == 2);
  std::vector<float> got(3);
  std::vector<tensor_slice> into;
  into.emplace_back("layer5", view(got, {3}));
  block_on(*loop, two.load(std::move(into)));
  CHECK(got == counted(3, 5));
  CHECK_THAT(failure_of([&] {
               block_on(*loop, open_safetensors(as_store, "mem://m/", {"layer3", "layer9"}));
             }),
             Contains("but 1"));
}

TEST_CASE("hostile indexes are errors") {
  const auto refused = [](const std::string& metadata) {
    return failure_of([&] {
      const std::string text = "{\"metadata\":{" + metadata + "},\"weight_map\":{}}";
      const detail::safetensors_index all = detail::safetensors_index::parse(text, "mem://f/");
      tensor_files(std::make_shared<memory_storage>(), all.files, all.state, true);
    });
  };
  const std::string w = "\"millrace_tensors\":[[\"w\",\"F32\",[4,2]]],\"millrace_files\":";
  CHECK(refused(w + "[[\"f\",\"\",\"d\",[72,40,0,0,4]]]") == "no error");
  CHECK(refused(w + "[[\"f\",\"\",\"d\",[56,40,0,0,2]],[\"g\",\"\",\"d\",[56,40,0,2,2]]]") == "no error");
  CHECK_THAT(refused(w + "[[\"f\",\"\",\"d\",[73,40,0,0,4]]]"), Contains("of 72 bytes in a file of 73"));
  CHECK_THAT(refused(w + "[[\"f\",\"\",\"d\",[56,40,0,0,2]]]"), Contains("in no file"));
  CHECK_THAT(refused(w + "[[\"f\",\"\",\"d\",[80,40,0,0,5]]]"), Contains("does not have"));
  CHECK_THAT(refused(w + "[[\"f\",\"\",\"d\",[72,40,0,18446744073709551615,4]]]"), Contains("does not have"));
  CHECK_THAT(refused(w + "[[\"f\",\"\",\"d\",[72,40,1,0,4]]]"), Contains("not in the list"));
  CHECK_THAT(refused(w + "[[\"f\",\"\",\"d\",[72,40,0,0]]]"), Contains("without its numbers"));
  CHECK_THAT(refused(w + "[[\"../f\",\"\",\"d\",[72,40,0,0,4]]]"), Contains("outside of the folder"));
  CHECK_THAT(refused(w + "[[\"f\",\"\",\"d\",[72,40,0,0,4]"), Contains("not JSON"));
  CHECK_THAT(refused("\"millrace_tensors\":[[\"w\",\"F32\",[4294967296,4294967296]]],\"millrace_files\":"
                     "[[\"f\",\"\",\"d\",[72,40,0,0,4294967296]]]"),
             Contains("too large"));
  CHECK_THAT(refused("\"millrace_files\":[[\"f\",\"\",\"d\",[72,40,0,0,4]]]," + w + "[]"), Contains("not in the list"));
}

TEST_CASE("large tensors are read into place, short ones together") {
  const auto store = std::make_shared<memory_storage>();
  const auto loop = make_event_loop();
  std::vector<float> large = counted(5'000'000), one = counted(1, 5), a = counted(7), odd = counted(3, 9);
  std::vector<tensor_slice> all;
  all.emplace_back("large", view(large, {5000, 1000}));
  all.emplace_back("a/\"b\"\\", view(a, {7}));
  all.emplace_back("scalar", view(one, {}));
  all.emplace_back("bytes", tensor_view(odd.data(), dtype::u8, {3}));
  all.emplace_back("none", tensor_view(nullptr, dtype::f64, {0, 4}));
  block_on(*loop, put_safetensors(std::shared_ptr<const storage>(store), "mem://m.safetensors", std::move(all),
                                  {{"who", "me"}}));
  const tensor_files there =
      block_on(*loop, open_safetensors(std::shared_ptr<const storage>(store), "mem://m.safetensors"));
  REQUIRE(there.tensors().size() == 5);
  for (const stored_tensor& t : there.files()[0].header.tensors) CHECK(t.begin % size_of(t.type) == 0);
  std::vector<float> rows(2'500'000), got(1), b(7), c(3);
  std::vector<tensor_slice> into;
  into.emplace_back("large", view(rows, {2500, 1000}), 2500);
  into.emplace_back("scalar", view(got, {}));
  into.emplace_back("a/\"b\"\\", view(b, {7}));
  into.emplace_back("none", tensor_view(nullptr, dtype::f64, {0, 4}));
  block_on(*loop, there.load(std::move(into)));
  CHECK(std::equal(rows.begin(), rows.end(), large.begin() + 2'500'000));
  CHECK(got == one);
  CHECK(b == a);
  const auto wrong = [&](tensor_slice slice) {
    std::vector<tensor_slice> w{std::move(slice)};
    return failure_of([&] { block_on(*loop, there.load(std::move(w))); });
  };
  CHECK_THAT(wrong({"absent", view(b, {7})}), Contains("no tensor \"absent\""));
  CHECK_THAT(wrong({"large", view(rows, {2500, 1000}), 2501}), Contains("5000x1000"));
}

TEST_CASE("hostile headers of safetensors are errors") {
  const std::string f = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}";
  CHECK(refusal(f + "}  ", 8) == "no error");
  CHECK_THAT(refusal(f + "}", 9), Contains("ends at byte"));
  CHECK_THAT(refusal(f + "}", 7), Contains("ends at byte"));
  CHECK_THAT(refusal(f, 8), Contains("not JSON"));
  CHECK_THAT(refusal(f + ",\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}", 16),
             Contains("one name"));
  CHECK_THAT(refusal(f + ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12),
             Contains("overlaps"));
  CHECK_THAT(refusal(f + ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[9,17]}}", 17), Contains("hole"));
  CHECK_THAT(refusal(f + ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,17]}}", 17), Contains("8 bytes"));
  CHECK_THAT(refusal(f + ",\"b\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[8,16]}}", 16), Contains("\"F4\""));
  CHECK_THAT(refusal("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0),
             Contains("too large"));
  CHECK_THAT(refusal("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,0]}}", 0), Contains("whole number"));
  CHECK_THAT(refusal("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4), Contains("data_offsets"));
  CHECK_THAT(refusal("{\"a\":[]}", 0), Contains("expected '{'"));
  CHECK_THAT(refusal("{\"__metadata__\":{\"a\":1}}", 0), Contains("expected a string"));
  CHECK_THAT(refusal("[]", 0), Contains("expected '{'"));
  std::string longest("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
  CHECK_THAT(failure_of([&] { safetensors_header::parse(longest, 10, "f"); }), Contains("byte 0"));
}

TEST_CASE("the safetensors package reads and writes the same files", "[outside]") {
  temporary_folder folder;
  const char* const named = std::getenv("MILLRACE_SAFETENSORS_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  const auto loop = make_event_loop();
  std::vector<float> w = counted(24);
  std::vector<tensor_slice> all;
  all.emplace_back("w", view(w, {4, 6}));
  block_on(*loop, put_safetensors(files(), folder.file("ours.safetensors"), std::move(all)));
  std::ofstream(folder.file("t.py")) << "import sys\n"
                                        "try:\n"
                                        "  import numpy as np\n"
                                        "  from safetensors.numpy import load_file, save_file\n"
                                        "except ImportError: sys.exit(77)\n"
                                        "a = load_file(sys.argv[1] + '/ours.safetensors')\n"
                                        "assert (a['w'] == np.arange(24, dtype='float32').reshape(4, 6)).all()\n"
                                        "save_file({'w': a['w'] + 1, 'n': np.arange(3)}, sys.argv[1] + "
                                        "'/theirs.safetensors', {'k': 'v'})\n";
  const int status = std::system((python + " " + folder.file("t.py") + " " + folder.path()).c_str());
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
    MILLRACE_SKIP("safetensors is not installed (MILLRACE_SAFETENSORS_PYTHON names a Python that has it)");
  }
  REQUIRE(status == 0);
  const tensor_files there = block_on(*loop, open_safetensors(files(), folder.file("theirs.safetensors")));
  std::vector<float> got(24);
  std::vector<std::int64_t> n(3);
  std::vector<tensor_slice> into;
  into.emplace_back("w", view(got, {4, 6}));
  into.emplace_back("n", tensor_view(n.data(), dtype::i64, {3}));
  block_on(*loop, there.load(std::move(into)));
  CHECK(got == counted(24, 1));
  CHECK(n == std::vector<std::int64_t>{0, 1, 2});
}

TEST_CASE("PyTorch's distributed checkpoints read and write the same files", "[outside]") {
  const char* const python = std::getenv("MILLRACE_TORCH_PYTHON");
  const std::string which = "MILLRACE_TORCH_PYTHON names a Python that has torch 2.8 or newer, and safetensors";
  if (python == nullptr) MILLRACE_SKIP("torch is not installed (" + which + ")");
  const temporary_folder folder;
  const auto loop = make_event_loop();
  // Of four ranks the second one has no rows: its file says so by having none.
  const std::uint64_t firsts[] = {0, 4, 4, 11, 12};
  for (std::uint32_t r = 0; r < 4; ++r) {
    const std::uint64_t rows = firsts[r + 1] - firsts[r];
    std::vector<float> w = counted(rows * 5, 100 + static_cast<float>(firsts[r] * 5));
    std::vector<float> b = counted(3, 100), s = counted(1, 5);
    std::vector<std::int64_t> n{0, 1, 2};
    std::vector<std::uint16_t> h{0x3f80, 0x4000};
    std::vector<tensor_slice> mine;
    mine.emplace_back("w", view(w, {static_cast<std::int64_t>(rows), 5}), firsts[r], 12);
    if (r == 2) {
      mine.emplace_back("b", view(b, {3}));
      mine.emplace_back("s", view(s, {}));
      mine.emplace_back("n", tensor_view(n.data(), dtype::i64, {3}));
      mine.emplace_back("h", tensor_view(h.data(), dtype::bf16, {2}));
    }
    const checkpoints saved(files(), folder.path() + "/", {.index = r, .world_size = 4});
    block_on(*loop, saved.write(1, std::move(mine)));
    if (r == 3) block_on(*loop, saved.commit(1, "state"));
  }
  const std::string theirs = folder.path() + "/theirs/";
  const std::string command = std::string(python) + " '" + MILLRACE_TEST_SOURCE_DIR +
                              "/tests/train/torch_checkpoint.py' '" + folder.path() + "/step-000001' '" + theirs + "'";
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) MILLRACE_SKIP("its torch is too old (" + which + ")");
  REQUIRE(status == 0);
  const tensor_files there = block_on(*loop, open_safetensors(files(), theirs));
  CHECK(there.files().size() == 2);
  CHECK(all_of_w(*loop, there) == counted(60, 101));
  std::vector<float> b(3), s(1);
  std::vector<std::int64_t> n(3);
  std::vector<tensor_slice> into;
  into.emplace_back("b", view(b, {3}));
  into.emplace_back("s", view(s, {}));
  into.emplace_back("n", tensor_view(n.data(), dtype::i64, {3}));
  block_on(*loop, there.load(std::move(into)));
  CHECK(b == counted(3, 101));
  CHECK(s == counted(1, 6));
  CHECK(n == std::vector<std::int64_t>{1, 2, 3});
}
