// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// TFRecord files as a dataset. The files are written here, by checksums of a table of its own, and by Python.

#include <millrace/formats/tfrecord_shards.hpp>

#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/formats/line_shards.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/records/tfrecord_files.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/damaging_storage.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/scanned.hpp"
#include "tests/tar/tools.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/train/record_epochs.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::failure_of;
using test::record_files;
using test::trained;

namespace {

/// Bit by bit: another way than the library's.
std::uint32_t slow_crc32c(std::string_view data) {
  std::uint32_t r = 0xffffffff;
  for (const char c : data) {
    r ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) r = (r & 1) != 0 ? r >> 1 ^ 0x82f63b78 : r >> 1;
  }
  return ~r;
}

std::string masked(std::string_view data) {
  const std::uint32_t crc = slow_crc32c(data);
  std::string out;
  detail::append_le(out, static_cast<std::uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8), 4);
  return out;
}

std::string framed(std::string_view data) {
  std::string length;
  detail::append_le(length, data.size(), 8);
  return length + masked(length) + std::string(data) + masked(data);
}

std::string file_of(const std::vector<std::string>& records) {
  std::string out;
  for (const std::string& r : records) out += framed(r);
  return out;
}

std::map<std::string, std::string> files_of(const record_files& records) {
  std::map<std::string, std::string> files;
  for (const auto& [name, its] : records) files[name] = file_of(its);
  return files;
}

std::vector<std::string> drawn_records(rng& random, std::size_t most, std::size_t longest) {
  std::vector<std::string> all;
  for (std::size_t n = random.below(most + 1); n > 0; --n) {
    std::string record(random.below(longest + 1), '\0');
    for (char& c : record) c = static_cast<char>(random.below(256));
    all.push_back(std::move(record));
  }
  return all;
}

std::string gzip_of(std::string_view text) { return test::gzip_member(text); }
/// As TensorFlow's TFRecordOptions("ZLIB") writes it.
std::string zlib_stream(std::string_view text) { return test::gzip_member(text, 15); }

/// By pieces of `piece` bytes.
shard_index index_of(const std::string& object, std::size_t piece = 1000, bool size_known = true) {
  shard of("mem:d/x");
  if (size_known) of.size = object.size();
  return test::scanned(detail::tfrecord_scanner(*tfrecord_shards(), "x", of, detail::frame_bounds(1)), object, piece);
}

/// The dataset of such files, with an index that is made of them here.
dataset dataset_of(const std::shared_ptr<const storage>& store, const std::map<std::string, std::string>& files,
                   std::uint64_t slice) {
  std::vector<shard_index> all;
  for (const auto& [name, content] : files) {
    all.push_back(test::scanned(detail::tfrecord_scanner(*tfrecord_shards(), name, shard("mem:d/" + name)), content));
  }
  return dataset(store, std::make_shared<const index_set>(std::move(all)),
                 {.format = tfrecord_shards(), .prefix = "mem:d/", .slice = slice});
}

/// The same, with these bounds of frames.
dataset with_frames(const std::shared_ptr<const storage>& store, const std::map<std::string, std::string>& objects,
                    std::uint64_t slice, detail::frame_bounds frames) {
  std::vector<shard_index> all;
  for (const auto& [name, content] : objects) {
    all.push_back(test::scanned(detail::tfrecord_scanner(*tfrecord_shards(), name, shard("mem:d/" + name), frames),
                                content, 333));
    const std::string text = all.back().text();
    std::string_view rest = text;
    CHECK(shard_index::read(rest, "x") == all.back());
  }
  return dataset(store, std::make_shared<const index_set>(std::move(all)),
                 {.format = tfrecord_shards(), .prefix = "mem:d/", .slice = slice});
}

epochs_options small_training() {
  epochs_options o{.seed = 5, .epochs = 2, .batch = 3};
  o.tracks = 4;
  return o;
}

}  // namespace

TEST_CASE("an index of TFRecords has each record's place, length and CRC32C, however the bytes come") {
  rng random(1);
  for (int n = 0; n < 60; ++n) {
    std::vector<std::string> records = drawn_records(random, 40, n % 3 == 0 ? 3 : 700);
    if (n == 1) records = {""};
    const std::string file = file_of(records);
    const shard_index index = index_of(file, 1 + random.below(200), n % 2 == 0);
    REQUIRE(index.samples() == records.size());
    CHECK(index.fields() == records.size());
    CHECK(index.format() == "tfrecord");
    CHECK_FALSE(index.is_packed());
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
      CHECK(index.offset(i) == at + 12);
      CHECK(index.end(i) == at + 12 + records[i].size());
      CHECK(index.field_at(i, 0).crc == slow_crc32c(records[i]));
      CHECK(index.field_at(i, 0).extension == "record");
      CHECK(index.key(i) == "x#" + std::to_string(i));
      at += records[i].size() + 16;
    }
    const std::string text = index.text();
    std::string_view rest = text;
    CHECK(shard_index::read(rest, "x") == index);
    // Read by need.
    std::string several;
    write_indexes(std::vector<shard_index>{index}, several);
    const std::vector<shard_index> paged =
        detail::open_index_text(several, nullptr, "x");
    CHECK(paged.at(0) == index);
    CHECK(paged.at(0).digest() == index.digest());
    for (std::size_t i = 0; i < records.size(); ++i) CHECK(paged[0].end(i) == index.end(i));
  }
  CHECK(index_of("").samples() == 0);
}

TEST_CASE("records of TFRecord files on one to three ranks, resumed at each step") {
  rng random(2);
  record_files records;
  for (const char* const name : {"a.tfrecord-00000-of-00002", "a.tfrecord-00001-of-00002", "b", "d/c"}) {
    records[name] = drawn_records(random, 11, 90);
  }
  records["empty"] = {};
  records["some"] = {"", "one", "", "", "five"};
  const auto files = files_of(records);
  const auto store = test::store_of(files);
  const epochs_options o = small_training();
  runtime rt;
  test::check_trainings(rt, dataset_of(store, files, 4), o, test::model_of(records, o, 4));
}

TEST_CASE("drawn TFRecord files, ranks and bounds: every record comes once an epoch, in the model's order") {
  rng random(3);
  runtime rt;
  for (int n = 0; n < 40; ++n) {
    CAPTURE(n);
    record_files records;
    for (std::size_t i = 1 + random.below(3); i > 0; --i) {
      records[std::to_string(random.below(1000))] = drawn_records(random, 100, 60);
    }
    records["some"] = {"one"};
    const auto files = files_of(records);
    const auto store = test::store_of(files);
    store->delay_us = random.below(2) * 300;
    const std::uint64_t slice = 1 + random.below(8);
    const epochs_options o = test::drawn_options(random);
    test::check_drawn_training(rt, random, dataset_of(store, files, slice), o, test::model_of(records, o, slice));
  }
}

TEST_CASE("the index of TFRecord files that a run makes, and those of Python") {
  if (!test::have_tool("python3")) MILLRACE_SKIP("no python3");
  const test::temporary_folder folder;
  test::write_file(folder.path() + "/write.py", test::tfrecord_writer);
  REQUIRE(test::shell("cd '" + folder.path() + "' && python3 write.py 4 5 300"));
  record_files records;
  std::map<std::string, std::string> files;
  for (int i = 0; i < 5; ++i) {
    const std::string name = std::to_string(i) + ".tfrecord";
    std::ifstream in(folder.path() + '/' + name, std::ios::binary);
    std::string& file = files[name] = std::string(std::istreambuf_iterator<char>(in), {});
    for (std::size_t at = 0; at < file.size();) {
      const auto size = static_cast<std::size_t>(detail::read_le(file, at, 8));
      records[name].push_back(file.substr(at + 12, size));
      at += size + 16;
    }
    CHECK(records[name].size() == 300);
    CHECK(file_of(records[name]) == file);
  }
  const auto store = test::store_of(files);
  const std::string index = folder.path() + "/train.index";
  epochs_options o{.seed = 3, .epochs = 1, .batch = 64};
  o.tracks = 6;
  runtime rt;
  {
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                       {.index = index, .format = tfrecord_shards(), .slice = 32});
    test::part_of_training first = trained(rt, data, o, {}, 7);
    const test::part_of_training rest = trained(rt, data, o, first.state);
    first.samples.insert(rest.samples.begin(), rest.samples.end());
    CHECK((first.samples == test::model_of(records, o, 32)));
    CHECK(data.samples() == 1500U);
  }
  // As Python's zlib and gzip compress them.
  REQUIRE(test::shell("cd '" + folder.path() +
                      "' && python3 -c \"import gzip, zlib\nfor i in range(5):\n    data = open('%d.tfrecord' % i, "
                      "'rb').read()\n    open('%d.z' % i, 'wb').write((zlib if i % 2 else gzip).compress(data))\""));
  std::map<std::string, std::string> packed;
  for (int i = 0; i < 5; ++i) {
    std::ifstream in(folder.path() + '/' + std::to_string(i) + ".z", std::ios::binary);
    packed[std::to_string(i) + ".tfrecord"] = std::string(std::istreambuf_iterator<char>(in), {});
  }
  const dataset of_packed(std::shared_ptr<const storage>(test::store_of(packed)), "mem:d/",
                          {.index = folder.path() + "/packed.index", .format = tfrecord_shards(), .slice = 32});
  CHECK((trained(rt, of_packed, o).samples == test::model_of(records, o, 32)));
  // The file is there now, and of this format alone.
  const dataset again(std::shared_ptr<const storage>(store), "mem:d/",
                      {.index = index, .format = tfrecord_shards(), .slice = 32});
  CHECK(again.samples() == 1500U);
  CHECK((trained(rt, again, o).samples == test::model_of(records, o, 32)));
  const dataset lines(std::shared_ptr<const storage>(store), "mem:d/", {.index = index, .format = line_shards()});
  CHECK_THAT(failure_of([&] { static_cast<void>(lines.samples()); }),
             Contains("the index is of tfrecord, and dataset_options::format is lines"));
}

TEST_CASE("TFRecord files that are damaged, cut, or none, are refused by object, record and byte") {
  const std::vector<std::string> records = {"first", "", std::string(300, 'r'), "last"};
  const std::string file = file_of(records);
  const std::size_t third = 21 + 16;
  const auto refusal = [](const std::string& object, bool size_known = true) {
    return failure_of([&] { static_cast<void>(index_of(object, 7, size_known)); });
  };
  CHECK(refusal(file) == "no error");
  // Each bit is in a checksum, or is one.
  for (std::size_t byte = 0; byte < file.size(); ++byte) {
    std::string other = file;
    other[byte] = static_cast<char>(other[byte] ^ (1 << byte % 8));
    const std::string record = byte < 21 ? "0" : byte < third ? "1" : byte < third + 316 ? "2" : "3";
    const std::size_t begin = byte < 21 ? 0 : byte < third ? 21 : byte < third + 316 ? third : third + 316;
    const std::string wanted =
        "mem:d/x at byte " + std::to_string(begin) + ": record " + record + " is damaged: the masked CRC32C of its ";
    const std::string said = refusal(other);
    if (said.find(wanted) == std::string::npos) FAIL(byte << ": " << said);
  }
  CHECK_THAT(refusal("this is a text and no record"), Contains("or this is no TFRecord file"));
  // Cut, at each byte, by the length of the object or at its end.
  for (std::size_t length = 0; length < file.size(); ++length) {
    const bool whole = length == 0 || length == 21 || length == third || length == third + 316;
    CAPTURE(length);
    CHECK((refusal(file.substr(0, length), false) == "no error") == whole);
    CHECK((refusal(file.substr(0, length), true) == "no error") == whole);
  }
  CHECK_THAT(refusal(file.substr(0, third + 100), false),
             Contains("mem:d/x at byte 37: the object ends in the middle of record 2: 100 bytes of it are there"));
  CHECK_THAT(refusal(file.substr(0, third + 100)),
             Contains("mem:d/x at byte 37: record 2 ends at byte 353, by its length, and the object ends at byte 137"));
  // A length that was forged, with the right checksum.
  std::string length;
  detail::append_le(length, std::uint64_t{1} << 40, 8);
  CHECK_THAT(refusal(file + length + masked(length) + "abc"),
             Contains("record 4 has 1099511627776 bytes, by its length: an index has records of less than 4 GiB"));
  length.clear();
  detail::append_le(length, UINT64_MAX, 8);
  CHECK_THAT(refusal(length + masked(length)), Contains("record 0 has 18446744073709551615 bytes"));
  length.clear();
  detail::append_le(length, 1'000'000, 8);
  CHECK_THAT(refusal(file + length + masked(length) + "abc"), Contains("record 4 ends at byte 100"));

  CHECK_THAT(refusal("BZh91AY&SY" + file), Contains("this is bzip2 data, of which no record can be read alone"));
  const test::tar_dataset tars({3}, 10);
  CHECK_THAT(refusal(tars.store->objects.begin()->second), Contains("this is a tar archive and no TFRecord file"));
}

TEST_CASE("TFRecord files that begin like gzip are read as what they are") {
  const std::string record(0x00088b1f, 'r');  // so long that its length is the beginning of a member of gzip
  const std::string file = file_of({record, "two"});
  REQUIRE(file.substr(0, 3) == "\x1f\x8b\x08");
  const shard_index index = index_of(file, 100'000);
  CHECK(index.samples() == 2);
  CHECK_FALSE(index.is_packed());
  CHECK(index.end(0) - index.offset(0) == record.size());
}

TEST_CASE("a TFRecord file is verified by its own checksums: it is read once, and again where one is wrong") {
  rng random(6);
  const std::string file = file_of(drawn_records(random, 100, 5000));
  const auto store = test::store_of({{"x", file}});
  const auto line = std::make_shared<test::damaging_storage>(store);  // over_network()
  const auto made = [&] {
    testing::virtual_loop loop;
    return block_on(loop, index_shard(std::shared_ptr<const storage>(line), shard("mem:d/x"), "x", tfrecord_shards()));
  };
  const shard_index wanted = made();
  CHECK(wanted == index_of(file));
  CHECK(store->read_bytes == file.size());
  test::captured_stderr log(test::captured_stderr::into::pipe);
  std::uint64_t readings = 1;
  for (std::size_t byte = 3; byte < file.size(); byte += 1 + file.size() / 40) {
    line->damage("mem:d/x", byte);
    if (made() != wanted) FAIL("another index, by byte " << byte);
    readings += 2;
    CHECK(store->read_bytes == readings * file.size());
  }
  line->damage("mem:d/x", 300, 10, true);
  CHECK_THAT(failure_of(made), Contains("is damaged: the masked CRC32C of its") && Contains("read twice"));
  CHECK_THAT(log.text(), Contains("read once more, over another connection: mem:d/x at byte "));
}

TEST_CASE("a record that is damaged when it is read is an error with its place; on the way it is read once more") {
  const record_files records = {{"x", {"first", "second", std::string(2000, 'r'), "last"}}};
  const auto files = files_of(records);
  const auto store = test::store_of(files);
  epochs_options o{.seed = 1, .epochs = 1, .batch = 1};
  o.tracks = 2;
  runtime rt;
  const test::seen_samples wanted = test::model_of(records, o, 4);
  const auto line = std::make_shared<test::damaging_storage>(store);
  test::captured_stderr log(test::captured_stderr::into::pipe);
  for (const std::size_t byte : {13, 40, 100, 1000}) {
    line->damage("mem:d/x", byte);
    CHECK(trained(rt, dataset_of(line, files, 4), o).samples == wanted);
  }
  CHECK(line->second_readings() >= 3);
  std::string& object = store->objects["mem:d/x"];
  object[400] = 's';  // it is so in the store
  CHECK_THAT(failure_of([&] { static_cast<void>(trained(rt, dataset_of(store, files, 4), o)); }),
             Contains("mem:d/x at byte 55, x#2: the CRC32C of the record is ") && Contains(" as in the index"));
}

TEST_CASE("an index of TFRecords with other bytes is refused, or is another one") {
  rng random(8);
  const shard_index index = index_of(file_of(drawn_records(random, 20, 30)));
  const std::string file = index.text();
  std::size_t refused = 0;
  for (std::size_t at = 0; at + 4 < file.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string other = file;
      other[at] = static_cast<char>(other[at] ^ (1 << bit));
      std::string crc;
      detail::append_le(crc, slow_crc32c(std::string_view(other).substr(0, other.size() - 4)), 4);
      other.replace(other.size() - 4, 4, crc);
      std::string_view rest = other;
      try {
        const shard_index read = shard_index::read(rest, "x");
        if (read == index) FAIL("byte " << at << " says nothing");
        if (read.format() != "tfrecord") continue;
        for (std::size_t i = 0; i < read.samples(); ++i) {
          if (read.end(i) < read.offset(i) || read.end(i) > read.object_size()) {
            FAIL("a record outside of the object");
          }
        }
      } catch (const index_error&) {
        ++refused;
      }
    }
  }
  CHECK(refused > 100);
}

#if defined(MILLRACE_WITH_TAR)

TEST_CASE("compressed TFRecord files are read by members, where these are small") {
  rng random(9);
  record_files records;
  std::map<std::string, std::string> objects;
  for (const char* const name : {"a.gz", "b.gz", "c", "d.z"}) {
    records[name] = drawn_records(random, 60, 90);
    records[name].emplace_back("one more");
    const std::string file = file_of(records[name]);
    std::string& object = objects[name];
    // TensorFlow writes one member; of several, records cross the borders.
    const std::size_t size = *name == 'a' ? file.size() + 1 : 100;
    for (std::size_t at = 0; at < file.size(); at += size) object += test::gzip_member(file.substr(at, size));
    if (*name == 'c') object = file;
    if (*name == 'd') object = zlib_stream(file);
  }
  const auto store = test::store_of(objects);
  const epochs_options o = small_training();
  runtime rt;
  const dataset data = with_frames(store, objects, 4, detail::frame_bounds(1));
  epochs_options mine = o;
  std::size_t count = 0;
  test::seen_samples got;
  for (std::uint32_t r = 0; r < 2; ++r) {
    mine.rank = {.index = r, .world_size = 2};
    const test::part_of_training part = trained(rt, data, mine);
    got.insert(part.samples.begin(), part.samples.end());
    count += part.samples.size();
  }
  CHECK(got == test::model_of(records, o, 4));
  CHECK(count == got.size());

  const std::string small = file_of({"one", "two", "three"});
  std::string damaged = small;
  damaged[25] = '?';
  for (const auto& pack : {gzip_of, zlib_stream}) {
    CHECK_THAT(failure_of([&] { index_of(pack(damaged)); }),
               Contains("mem:d/x at byte 0: record 1, at byte 19 of what the object is unpacked to, is damaged: "));
    CHECK_THAT(failure_of([&] { index_of(pack(small.substr(0, 30))); }),
               Contains("the object ends in the middle of record 1, at byte 19 of what the object is unpacked to,"));
  }
}

TEST_CASE("TFRecord files in large frames, as TensorFlow writes them, are read by groups on one to three ranks") {
  rng random(10);
  record_files records;
  std::map<std::string, std::string> objects;
  // One member or stream each, several of which some end between records, and one file that is not compressed.
  for (const char* const name : {"a.gz", "b.z", "c.gz", "d", "e.zst"}) {
    records[name] = drawn_records(random, 25, 200);
    records[name].resize(std::max<std::size_t>(records[name].size(), 5), "x");
    const std::string file = file_of(records[name]);
    objects[name] = *name == 'a' ? gzip_of(file) : *name == 'b' ? zlib_stream(file) : *name == 'd' ? file : "";
    if (*name == 'e') {
      std::string packed(ZSTD_compressBound(file.size()), '\0');
      packed.resize(ZSTD_compress(packed.data(), packed.size(), file.data(), file.size(), 3));
      objects[name] = packed;
    }
    if (*name != 'c') continue;
    const std::size_t whole = file_of({records[name][0], records[name][1]}).size();
    const std::size_t inside = whole + file_of({records[name][2]}).size() + 3;
    objects[name] = gzip_of(file.substr(0, whole)) + gzip_of(file.substr(whole, inside - whole)) + gzip_of("") +
                    gzip_of(file.substr(inside)) + std::string(700, '\0');
  }
  const auto store = test::store_of(objects);
  runtime rt;
  const dataset data = with_frames(store, objects, 0, detail::frame_bounds(1, 20));
  std::vector<std::uint64_t> counts;
  std::vector<std::uint64_t> groups;
  std::vector<std::vector<std::string>> shards;
  for (const auto& [name, its] : records) {
    counts.push_back(its.size());
    if (name == "c.gz") groups.push_back(2);
    const std::uint64_t rest = its.size() - (name == "c.gz" ? 2 : 0);
    groups.push_back(rest);  // "d" is shorter than a slice
    shards.push_back(its);
    for (std::size_t i = 0; i < its.size(); ++i) shards.back()[i] = name + '#' + std::to_string(i) + '|' + its[i];
  }
  const epochs_options o = small_training();
  test::seen_samples wanted;
  for (std::uint64_t e = 0; e < o.epochs; ++e) {
    const sample_order places(std::make_shared<const shard_counts>(counts, groups), o.seed, e,
                              {.tracks = o.tracks, .slice = *std::max_element(groups.begin(), groups.end()),
                               .groups = true});
    for (std::uint64_t g = 0; g < places.size(); ++g) {
      const sample_place p = places.at(g);
      wanted[e << 32 | g] = shards[static_cast<std::size_t>(p.shard)][static_cast<std::size_t>(p.ordinal)];
    }
  }
  test::check_trainings(rt, data, o, wanted);
}

TEST_CASE("TFRecord files of one member of more than 16 MiB are a dataset by their names alone", "[slow]") {
  rng random(11);
  record_files records;
  std::map<std::string, std::string> objects;
  for (const char* const name : {"0.gz", "1.gz", "2.z"}) {
    for (std::uint64_t n = 18 + random.below(3); n > 0; --n) {
      std::string record(MiB - 20 + random.below(40), static_cast<char>(n));
      for (std::size_t i = 0; i < record.size(); i += 1000) record[i] = static_cast<char>(random.below(256));
      records[name].push_back(std::move(record));
    }
    const std::string file = file_of(records[name]);
    objects[name] = name[2] == 'z' ? zlib_stream(file) : gzip_of(file);
  }
  const auto store = test::store_of(objects);
  runtime rt;
  const test::temporary_folder folder;
  const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                     {.index = folder.path() + "/train.index", .format = tfrecord_shards()});
  std::multiset<std::string> wanted;
  std::multiset<std::string> got;
  for (const auto& [name, its] : records) {
    for (std::size_t i = 0; i < its.size(); ++i) wanted.insert(name + '#' + std::to_string(i) + '|' + its[i]);
  }
  epochs_options o = small_training();
  o.epochs = 1;
  for (const auto& [place, s] : trained(rt, data, o).samples) got.insert(s);
  CHECK(got == wanted);
}

TEST_CASE("frames of TFRecords that are too large to be read together are refused, and groups beyond a run's memory") {
  const std::string small = file_of({"one", "two", "three"});
  const auto object = gzip_of(small) + gzip_of(small);
  const auto made = [&](detail::frame_bounds bounds) {
    return test::scanned(detail::tfrecord_scanner(*tfrecord_shards(), "x", shard("mem:d/x"), bounds), object);
  };
  CHECK(made(detail::frame_bounds(1, 30, 60)).groups() == 2);
  CHECK_THAT(failure_of([&] { made(detail::frame_bounds(1, 30, 40)); }),
             Contains("mem:d/x at byte 0: the frames of gzip that begin here have more than 40 bytes of records, which "
                      "are read together, as none can be read without all of its frame: unpack the object, or write "
                      "it as frames of some MiB, or as several objects"));
  {
    const test::temporary_folder folder;
    const std::string zeros = zlib_stream(file_of(std::vector<std::string>(5, std::string(MiB, '\0'))));
    const auto store = test::store_of({{"x", zeros}});
    const dataset data = with_frames(store, {{"x", zeros}}, 0, detail::frame_bounds(1, MiB));
    epochs_options o = small_training();
    o.bytes = MiB;
    const auto run_of = [&](std::size_t budget) {
      return failure_of([&] {
        auto r = run(epochs(data, o), {.prefetch_bytes = 64 * KiB, .budget = budget});
        while (r.next()) continue;
      });
    };
    CHECK_THAT(run_of(4 * MiB), Contains("mem:d/x at byte 0: the group's 5242960 bytes are more than the 4194304 of "
                                         "the run's memory budget: samples of a group are unpacked together; unpack "
                                         "the object, or write smaller groups or frames"));
    CHECK(run_of(0) == "no error");
  }
  // An index of groups is read as it was written, and the flag is of compressed records alone.
  const shard_index index = made(detail::frame_bounds(1, 30));
  const std::string text = index.text();
  std::string_view rest = text;
  CHECK(shard_index::read(rest, "x") == index);
  CHECK(index.has_groups());
  CHECK(!made(detail::frame_bounds(1)).has_groups());
  CHECK(made(detail::frame_bounds(1)).digest() != index.digest());
  std::string plain = index_of(small).text();
  plain[12] = static_cast<char>(plain[12] | 8);
  const std::uint32_t crc = slow_crc32c(plain.substr(0, plain.size() - 4));
  plain.resize(plain.size() - 4);
  detail::append_le(plain, crc, 4);
  rest = plain;
  CHECK_THAT(failure_of([&] { shard_index::read(rest, "x"); }), Contains("at byte 12: the index has flags that"));
}

TEST_CASE("TFRecord files in large frames that are damaged at drawn places give their samples or an error") {
  rng random(12);
  std::vector<std::string> records = drawn_records(random, 30, 300);
  records.resize(20, "one more");
  const std::string file = file_of(records);
  runtime rt;
  const std::string none = "no error";
  std::size_t refused = 0;
  for (int round = 0; round < 60; ++round) {
    const std::string object = round % 2 == 0 ? gzip_of(file) : zlib_stream(file);
    const auto store = test::store_of({{"x", object}});
    const dataset data = with_frames(store, {{"x", object}}, 0, detail::frame_bounds(1, 20));
    std::string& there = store->objects["mem:d/x"];
    const std::size_t at = random.below(there.size());
    there[at] = static_cast<char>(there[at] ^ (1 << random.below(8)));
    epochs_options o = small_training();
    o.epochs = 1;
    test::seen_samples got;
    const std::string failure = failure_of([&] { got = trained(rt, data, o).samples; });
    if (failure != none) {
      ++refused;
      CHECK_THAT(failure, Contains("mem:d/x at byte 0: the frames of "));
    }
    for (const auto& [place, s] : got) {
      const std::size_t bar = s.find('|');
      CHECK(s.substr(bar + 1) == records[std::stoul(s.substr(s.find('#') + 1, bar))]);
    }
    // The index is made of verified bytes, too.
    const std::string why = failure_of([&] { index_of(there); });
    if (why != none) CHECK_THAT(why, Contains("mem:d/x"));
    CHECK((why == none) == (failure == none));
  }
  CHECK(refused > 50);
}

#endif
