// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// MDS as a dataset. The shards are written here, and by MosaicML's own writer where that is installed.

#include <millrace/formats/mds.hpp>

#include <zstd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/damaging_storage.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/tar/tools.hpp"
#include "tests/train/epochs_data.hpp"
#include "tests/train/mds_files.hpp"
#include "tests/train/record_epochs.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::failure_of;
using test::record_files;
using test::trained;

namespace {

std::string number(std::uint64_t value, int bytes = 4) {
  std::string out;
  detail::append_le(out, value, bytes);
  return out;
}

/// The description of shards of a text, a number of 4 bytes and an image.
const std::string columns = R"("column_encodings": ["str", "int32", "jpeg"], "column_names": ["a", "b.cls", "c"], )"
                            R"("column_sizes": [null, 4, null], "compression": null, "format": "mds", "hashes": [], )"
                            R"("size_limit": 67108864, "version": 2)";
const std::string config = "{" + columns + "}";

/// What the fields of a record are joined to is the record: texts of `a`, `b` and `c` one after the other.
std::string encoded(const std::string& record) {
  const std::size_t a = (record.size() - 4) / 2;
  return number(a) + number(record.size() - 4 - a) + record;
}

std::string shard_of(const std::vector<std::string>& samples, const std::string& its_config = config) {
  std::string table;
  std::string data;
  const std::size_t begin = 4 + 4 * (samples.size() + 1) + its_config.size();
  for (const std::string& s : samples) {
    table += number(begin + data.size());
    data += s;
  }
  return number(samples.size()) + table + number(begin + data.size()) + its_config + data;
}

std::string mds_file(const std::vector<std::string>& records) {
  std::vector<std::string> samples;
  for (const std::string& r : records) samples.push_back(encoded(r));
  return shard_of(samples);
}

std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string hex(std::string_view raw) {
  std::string out;
  for (const char c : raw) {
    out += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
    out += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

std::string hash(const char* algorithm, std::string_view of) {
  return hex(s3_server::detail::hasher(algorithm).update(of).finish());
}

std::string entry(const std::string& name, const std::string& raw, const std::string& zip, const std::string& ending,
                  std::size_t samples, const std::string& other = {}) {
  const auto object = [&](const std::string& its_name, const std::string& data) {
    return R"({"basename": ")" + its_name + R"(", "bytes": )" + std::to_string(data.size()) +
           R"(, "hashes": {"sha1": ")" + hash("sha1", data) + R"(", "md4": "0123", "xxh64": "0123"}})";
  };
  return "{" + columns + R"(, "raw_data": )" + object(name, raw) + R"(, "samples": )" + std::to_string(samples) +
         R"(, "zip_data": )" + (zip.empty() ? "null" : object(name + ending, zip)) + other + "}";
}

std::string index_json(const std::vector<std::string>& entries) {
  std::string out = R"({"shards": [)";
  for (std::size_t i = 0; i < entries.size(); ++i) out += (i == 0 ? "" : ", ") + entries[i];
  return out + R"(], "version": 2})";
}

/// Streams in folders, by the names of their shards ("0/shard.00000.mds.zstd").
record_files drawn_records(rng& random, std::size_t folders, std::size_t most) {
  record_files all;
  for (std::size_t f = 0; f < folders; ++f) {
    const std::string ending = f % 3 == 0 ? "" : f % 3 == 1 ? ".zstd" : ".gz";
    for (std::size_t k = 1 + random.below(2); k > 0; --k) {
      std::vector<std::string>& its = all[std::to_string(f) + "/shard.0000" + std::to_string(k) + ".mds" + ending];
      for (std::size_t n = 1 + random.below(most); n > 0; --n) {
        std::string record(4 + random.below(60), '\0');
        for (char& c : record) c = static_cast<char>(random.below(256));
        its.push_back(std::move(record));
      }
    }
  }
  return all;
}

std::map<std::string, std::string> files_of(const record_files& records) {
  std::map<std::string, std::string> files;
  std::map<std::string, std::vector<std::string>> entries;
  for (const auto& [name, its] : records) {
    const std::string raw = mds_file(its);
    const std::size_t end = name.find(".mds") + 4;
    const std::string ending = name.substr(end);
    const std::string zip = ending == ".zstd" ? zstd(raw) : ending == ".gz" ? test::gzip_member(raw) : std::string();
    files[name] = zip.empty() ? raw : zip;
    entries[name.substr(0, 2)].push_back(entry(name.substr(2, end - 2), raw, zip, ending, its.size()));
  }
  for (const auto& [folder, its] : entries) files[folder + "index.json"] = index_json(its);
  return files;
}

class one_shard {
 public:
  explicit one_shard(std::map<std::string, std::string> files) : store(test::store_of(files)) {}
  /// What the first run says, or "no error".
  std::string said(mds_options options = {}) const {
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                       {.index = folder.path() + "/index" + std::to_string(++runs), .format = mds(std::move(options))});
    runtime rt;
    return failure_of([&] { trained(rt, data, {.seed = 1, .epochs = 1, .batch = 1}); });
  }
  std::shared_ptr<test::dataset_store> store;
  test::temporary_folder folder;
  mutable int runs = 0;
};

}  // namespace

TEST_CASE("MDS shards, raw and compressed, on one to three ranks, resumed at each step") {
  rng random(1);
  const record_files records = drawn_records(random, 3, 9);
  const auto store = test::store_of(files_of(records));
  const test::temporary_folder folder;
  const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                     {.index = folder.path() + "/index", .format = mds(), .slice = 4});
  epochs_options o{.seed = 5, .epochs = 2, .batch = 3};
  o.tracks = 4;
  runtime rt;
  test::check_trainings(rt, data, o, test::model_of(records, o, 4));
}

TEST_CASE("drawn MDS shards, ranks and bounds: every sample comes once an epoch, in the model's order") {
  rng random(2);
  runtime rt;
  for (int n = 0; n < 16; ++n) {
    CAPTURE(n);
    const record_files records = drawn_records(random, 1 + random.below(4), 60);
    const auto store = test::store_of(files_of(records));
    store->delay_us = random.below(2) * 300;
    const test::temporary_folder folder;
    const std::uint64_t slice = 1 + random.below(8);
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                       {.index = folder.path() + "/index", .format = mds(), .slice = slice});
    const epochs_options o = test::drawn_options(random);
    trained(rt, data, o, {}, 1);
    test::check_drawn_training(rt, random, data, o, test::model_of(records, o, slice));
  }
}

TEST_CASE("columns of MDS are chosen by name, and the index serves any choice") {
  rng random(3);
  const record_files records = drawn_records(random, 2, 9);
  const auto store = test::store_of(files_of(records));
  const test::temporary_folder folder;
  runtime rt;
  for (const std::vector<std::string>& wanted : {std::vector<std::string>{}, {"c", "a"}, {"b.cls"}}) {
    mds_options choice;
    choice.columns = wanted;
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                       {.index = folder.path() + "/index", .format = mds(choice)});
    for (const sample& s : rt.run(epochs(data, {.seed = 1, .epochs = 1, .batch = 1}))) {
      const std::string& record = records.at(s.from.from->url.substr(6)).at(s.from.ordinal);
      std::vector<std::string> names;
      for (const field& f : s.fields) names.push_back(f.extension);
      CHECK(names == (wanted.empty() ? std::vector<std::string>{"a", "b.cls", "c"} : wanted));
      const std::size_t a = (record.size() - 4) / 2;
      if (s.find("a") != nullptr) CHECK(s["a"].view() == record.substr(0, a));
      if (s.find("b.cls") != nullptr) CHECK(s["b.cls"].view() == record.substr(a, 4));
      if (s.find("c") != nullptr) CHECK(s["c"].view() == record.substr(a + 4));
    }
  }
  mds_options wrong;
  wrong.columns = {"d"};
  const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                     {.index = folder.path() + "/index", .format = mds(wrong)});
  CHECK_THAT(failure_of([&] { trained(rt, data, {.seed = 1, .epochs = 1, .batch = 1}); }),
             Contains("there is no column \"d\": there are a, b.cls, c"));
}

TEST_CASE("what index.json says of MDS shards is compared when the index is made") {
  const std::string raw = mds_file({"0000one", "0000", "0000three"});
  const auto with = [&](const std::string& one, const std::string& data = {}) {
    return one_shard({{"x.mds", data.empty() ? raw : data}, {"index.json", index_json({one})}}).said();
  };
  const std::string right = entry("x.mds", raw, "", "", 3);
  {
    test::captured_stderr log(test::captured_stderr::into::pipe);
    CHECK(with(right) == "no error");
    CHECK_THAT(log.text(), Contains("these hashes of index.json are not compared: md4, xxh64"));
  }
  std::string other = raw;
  other.back() = 'E';
  CHECK_THAT(with(right, other), Contains("mem:d/x.mds: the sha1 of the shard is " + hash("sha1", other) + " and not " +
                                          hash("sha1", raw) + " as in index.json"));
  CHECK_THAT(with(entry("x.mds", raw, "", "", 4)), Contains("the shard has 3 samples, and 4 by mem:d/index.json"));
  CHECK_THAT(with(entry("y.mds", raw, "", "", 3)), Contains("there is no object mem:d/y.mds"));
  std::string columns_differ = right;
  columns_differ.replace(columns_differ.find("int32"), 5, "int16");
  CHECK_THAT(with(columns_differ), Contains("the shard has other columns than mem:d/index.json says"));
  std::string version = right;
  version.replace(version.find("\"version\": 2"), 12, "\"version\": 3");
  CHECK_THAT(with(version), Contains("shard 0 of index.json: the shard is of version 3 and not 2"));
  CHECK_THAT(one_shard({{"x.mds", raw}, {"index.json", "{\"version\": 2"}}).said(),
             Contains("mem:d/index.json: index.json is no JSON document of MDS's version 2"));
  CHECK_THAT(one_shard({{"x.mds", raw}, {"y.mds", raw}, {"index.json", index_json({right})}}).said(),
             Contains("mem:d/y.mds: no index.json names this shard"));
  // One index.json may name shards of folders below it; of both kinds the raw shard is read.
  CHECK(one_shard({{"0/x.mds", raw},
                   {"0/x.mds.gz", "none"},
                   {"index.json", index_json({entry("0/x.mds", raw, "none", ".gz", 3)})}})
            .said() == "no error");
  test::captured_stderr log(test::captured_stderr::into::pipe);
  CHECK(one_shard({{"x.mds", raw}}).said() == "no error");
  CHECK_THAT(log.text(), Contains("there is no index.json: shards describe themselves, and no hashes are compared"));
  for (const std::string ending : {"br", "bz2", "snappy"}) {
    CHECK_THAT(one_shard({{"x.mds." + ending, "x"}}).said(),
               Contains("mem:d/x.mds." + ending + " at byte 0: the shard is compressed by " + ending +
                        ", and only zstd and gz are read"));
  }
  CHECK_THAT(one_shard({{"x.tar", raw}}).said(), Contains("none of the 1 objects that are listed is a shard of mds"));
}

TEST_CASE("memory for MDS is bounded by the data, whatever numbers they have") {
  const std::string raw = mds_file({"0000one"});
  std::string keys;
  for (int i = 1; i <= 1000; ++i) keys += (i == 1 ? "\"" : ", \"") + std::to_string(65536ull * i) + "\": \"a\"";
  std::string numbered = entry("x.mds", raw, "", "", 1);
  const std::size_t names = numbered.find("[\"a\", \"b.cls\", \"c\"]");
  numbered.replace(names, 19, "{" + keys + "}");
  CHECK_THAT(one_shard({{"x.mds", raw}, {"index.json", index_json({numbered})}}).said(),
             Contains("mem:d/index.json: shard 0 of index.json: there is a column 65536, and none 3"));
  // A packed head that claims a table of 4 GB: what is unpacked of it stays short.
  const std::string claims = zstd(number(1'000'000'000) + std::string(64 << 20, '\1'));
  CHECK_THAT(
      one_shard({{"x.mds.zstd", claims}}).said(),
      Contains("mem:d/x.mds.zstd: the shard says that it has 1000000000 samples, at byte 0 of what it is unpacked"));
}

TEST_CASE("MDS shards of one dataset have columns of the same encodings") {
  const std::string raw = mds_file({"0000one"});
  std::string other_config = config;
  other_config.replace(other_config.find("int32"), 5, "int16");
  other_config.replace(other_config.find("null, 4"), 7, "null, 2");
  const std::string other = shard_of({number(1) + number(1) + "a" + number(7, 2) + "c"}, other_config);
  const one_shard both({{"x.mds", raw}, {"y.mds", other}});
  CHECK_THAT(both.said(),
             Contains("y.mds: mds: field \"b.cls\" is int16, and in x.mds int32: all shards of a dataset have "
                      "the same fields"));
  CHECK(both.said({.columns = {"a"}}) == "no error");
}

TEST_CASE("MDS shards that lie are refused by object, byte and reason, and none is read that was not written") {
  const std::vector<std::string> records = {"0000first", "0000", "0000third one"};
  const std::string raw = mds_file(records);
  const auto scanned = [](const std::string& name, const std::string& file, std::size_t piece, bool size_known) {
    shard of("mem:d/" + name);
    if (size_known) of.size = file.size();
    const auto format = mds();
    const std::unique_ptr<shard_scanner> scanner = format->scanner("x", of, nullptr);
    for (std::size_t at = 0; at < file.size(); at += piece) {
      scanner->add(bytes::copy(std::string_view(file).substr(at, piece)));
    }
    return scanner->finish(file.size(), "\"v1\"");
  };
  const auto refusal = [&](const std::string& file, bool size_known = true, const char* name = "x.mds") {
    return failure_of([&] { static_cast<void>(scanned(name, file, 7, size_known)); });
  };
  CHECK(refusal(raw) == "no error");
  CHECK(scanned("x.mds", raw, 1, false) == scanned("x.mds", raw, 1000, true));
  CHECK(refusal(zstd(raw), true, "x.mds.zstd") == "no error");
  CHECK(scanned("x.mds", shard_of({}), 3, true).samples() == 0);
  CHECK(scanned("x.mds.zstd", zstd(shard_of({})), 3, true).samples() == 0);
  CHECK_THAT(refusal(number(4'000'000'000) + raw.substr(4)),
             Contains("mem:d/x.mds at byte 0: the shard says that it has 4000000000 samples"));
  CHECK(refusal(number(4'000'000'000) + raw.substr(4), false) != "no error");
  CHECK_THAT(refusal(raw.substr(0, 4) + number(8) + raw.substr(8)), Contains("the first sample is at byte 8"));
  CHECK_THAT(refusal(raw.substr(0, 4) + number(0xffffffff) + raw.substr(8)), Contains("the first sample is at byte"));
  CHECK_THAT(refusal(raw.substr(0, 8) + raw.substr(4, 4) + raw.substr(12)),
             Contains("at byte 8: sample 0 is empty or overlaps the next one"));
  CHECK_THAT(refusal(raw.substr(0, 16) + number(raw.size() + 1) + raw.substr(20)), Contains("the last sample ends at"));
  CHECK_THAT(refusal(raw.substr(0, 16) + number(raw.size() + 1) + raw.substr(20), false), Contains("the shard is cut"));
  CHECK_THAT(refusal(raw + "x", false), Contains("something follows the last sample"));
  std::string length = raw;
  const std::size_t first = detail::read_le(raw, 4, 4);
  length[first] = static_cast<char>(length[first] + 1);
  CHECK_THAT(refusal(length),
             Contains("at byte " + std::to_string(first) + ": sample 0 has 17 bytes, and its columns 18"));
  for (std::size_t cut = 0; cut < raw.size(); ++cut) {
    CHECK(refusal(raw.substr(0, cut), cut % 2 == 0) != "no error");
    const std::string packed = zstd(raw);
    if (cut < packed.size()) CHECK(refusal(packed.substr(0, cut), true, "x.mds.zstd") != "no error");
  }
  // A byte that is wrong is found, or is in a body: then the index is of what is there.
  rng random(7);
  std::size_t read = 0;
  for (int n = 0; n < 4000; ++n) {
    std::string wrong = n % 2 == 0 ? raw : zstd(raw);
    wrong[random.below(wrong.size())] = static_cast<char>(random.below(256));
    try {
      const shard_index index = scanned(n % 2 == 0 ? "x.mds" : "x.mds.zstd", wrong, 1 + random.below(50), n % 3 == 0);
      for (std::size_t i = 0; i < index.samples(); ++i) {
        CHECK(index.end(i) <= (index.groups() != 0 ? index.group_text_end(0) : wrong.size()));
      }
      CHECK(mds()->reader(index) != nullptr);
      ++read;
    } catch (const error&) {
    }
  }
  CHECK(read > 100);
  CHECK(read < 3000);
}

TEST_CASE("a compressed MDS shard that comes damaged is read once more, and one that is damaged is refused") {
  rng random(8);
  const record_files records = {{"0/x.mds.zstd", {"0000one", "0000two", "0000" + std::string(300, 'x')}}};
  const auto store = test::store_of(files_of(records));
  const auto line = std::make_shared<test::damaging_storage>(store);
  const test::temporary_folder folder;
  epochs_options o{.seed = 5, .epochs = 1, .batch = 1};
  o.tracks = 1;
  runtime rt;
  const auto train = [&] {
    const dataset data(std::shared_ptr<const storage>(line), {shard("mem:d/0/x.mds.zstd")},
                       {.index = folder.path() + "/index", .format = mds(), .prefix = "mem:d/", .slice = 4});
    return trained(rt, data, o).samples;
  };
  const test::seen_samples wanted = test::model_of(records, o, 4);
  CHECK(train() == wanted);
  test::captured_stderr log(test::captured_stderr::into::pipe);
  line->damage("mem:d/0/x.mds.zstd", 60);
  CHECK(train() == wanted);
  CHECK(line->flips() == 1);
  std::string& file = store->objects["mem:d/0/x.mds.zstd"];
  file[60] = static_cast<char>(file[60] ^ 4);
  const std::string said = failure_of([&] { train(); });
  CHECK_THAT(said, Contains("0/x.mds.zstd"));
  CHECK_THAT(said, Contains("read twice, and both times the same"));
}

TEST_CASE("numbers, arrays and images of MDS") {
  const where at{"mem:x", 40, "x#3"};
  const auto of = [](std::string_view raw) { return bytes::copy(raw); };
  CHECK(mds_int(of("\xfe\xff\xff\xff\xff\xff\xff\xff"), "int") == -2);
  CHECK(mds_int(of("\xfe"), "int8") == -2);
  CHECK(mds_int(of("\xfe"), "uint8") == 254);
  CHECK(mds_int(of(std::string_view("\xfe\xff\xff\xff", 4)), "uint32") == 0xfffffffe);
  CHECK(mds_int(of("-123"), "str_int") == -123);
  CHECK(mds_float(of(std::string_view("\0\x3c", 2)), "float16") == 1.0);
  CHECK(mds_float(of(std::string_view("\1\x80", 2)), "float16") == -std::ldexp(1.0, -24));
  CHECK(mds_float(of(std::string_view("\xff\x7b", 2)), "float16") == 65504.0);
  CHECK(std::isinf(mds_float(of(std::string_view("\0\x7c", 2)), "float16")));
  CHECK(mds_float(of("1e-3"), "str_float") == 0.001);
  CHECK_THAT(failure_of([&] { mds_int(of("abc"), "int", at); }),
             Contains("mem:x at byte 40, x#3: the field has 3 bytes, and int has 8"));
  CHECK_THAT(failure_of([&] { mds_int(of("\xff\xff\xff\xff\xff\xff\xff\xff"), "uint64", at); }),
             Contains("18446744073709551615"));
  CHECK_THAT(failure_of([&] { mds_int(of("1x"), "str_int", at); }), Contains("no number of 64 bits: 1x"));
  CHECK_THAT(failure_of([&] { mds_float(of("1x"), "str_float", at); }), Contains("no number: 1x"));
  CHECK_THAT(failure_of([&] { mds_int(of("x"), "str"); }), Contains("the encoding \"str\" is of another kind"));
  CHECK_THAT(failure_of([&] { mds_float(of("x"), "int"); }), Contains("of another kind"));
  CHECK_THAT(failure_of([&] { mds_array(of("x"), "ndarrays"); }), Contains("of another kind"));
  CHECK_THAT(failure_of([&] { mds_array(of("x"), "ndarray:complex64"); }), Contains("of another kind"));
  const array a = mds_array(of(std::string_view("\x11\x08\x01\x02\1\2\3\4", 8)), "ndarray");
  CHECK(a.type() == dtype::i16);
  CHECK(a.dims().text() == "1x2");
  CHECK(a.values<std::int16_t>()[1] == 0x403);
  // A field that lies is refused, whatever it says.
  rng random(9);
  const std::string encodings[] = {"ndarray", "ndarray:int32", "ndarray:uint8:2,3",
                                   "ndarray:float64:70000,70000,70000"};
  std::size_t read = 0;
  for (int n = 0; n < 20'000; ++n) {
    std::string field(random.below(20), '\0');
    for (char& c : field) c = static_cast<char>(random.below(4) == 0 ? random.below(256) : random.below(5));
    const std::string said = failure_of([&] { mds_array(of(field), encodings[n % 4], at); });
    if (said == "no error") ++read;
    if (said != "no error" && said.find("shape") == std::string::npos) CHECK_THAT(said, Contains("mem:x at byte 40"));
  }
  CHECK(read > 10);
  const mds_pixels p = mds_image(of(std::string_view("\2\0\0\0\1\0\0\0\1\0\0\0Lab", 15)));
  CHECK(p.width == 2);
  CHECK(p.height == 1);
  CHECK(p.mode == "L");
  CHECK(p.pixels.view() == "ab");
  for (std::size_t length = 0; length < 13; ++length) {
    CHECK_THAT(failure_of([&] { mds_image(of(std::string_view("\2\0\0\0\1\0\0\0\1\0\0\0", length)), at); }),
               Contains("mem:x at byte 40, x#3: the field is too short for an image of PIL"));
  }
  CHECK_THAT(failure_of([&] { mds_image(of(std::string_view("\2\0\0\0\1\0\0\0\xff\0\0\0Lab", 15)), at); }),
             Contains("mem:x at byte 40, x#3: the field is too short for an image of PIL"));
}

TEST_CASE("what MosaicML's own writer writes is what its own reader reads", "[outside]") {
  if (!test::have_tool("python3")) MILLRACE_SKIP("no python3");
  const test::temporary_folder folder;
  test::write_file(folder.path() + "/reference.py", test::mds_reference);
  const char* const python = std::getenv("MILLRACE_MDS_PYTHON");
  const std::string command = (python == nullptr ? std::string("python3") : python) + " '" + folder.path() +
                              "/reference.py' '" + folder.path() + "/d' 4 10 250 2> '" + folder.path() + "/said'";
  const int status = std::system(command.c_str());
  if (status != 0) {
    std::ifstream said(folder.path() + "/said");
    const std::string why(std::istreambuf_iterator<char>(said), {});
    REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == 77));
    MILLRACE_SKIP("mosaicml-streaming is not installed (MILLRACE_MDS_PYTHON names a Python that has it) " + why);
  }
  std::map<std::string, std::string> wanted;  // by key
  for (int i = 0; i < 10; ++i) {
    std::ifstream in(folder.path() + "/d/" + std::to_string(i) + "/expected.txt");
    for (std::string one; std::getline(in, one);) {
      const std::size_t blank = one.find(' ');
      wanted[std::to_string(i) + '/' + one.substr(0, blank)] = one.substr(blank + 1);
    }
  }
  REQUIRE(wanted.size() == 2500);
  const dataset data(files(), folder.path() + "/d/", {.index = folder.path() + "/index", .format = mds()});
  runtime rt;
  std::size_t seen = 0;
  for (const sample& s : rt.run(epochs(data, {.seed = 1, .epochs = 1, .batch = 1}))) {
    ++seen;
    const std::string& right = wanted.at(s.key);
    std::string is;
    for (const field& f : s.fields) {
      const std::size_t at = right.find(f.extension + ':');
      REQUIRE(at != std::string::npos);
      const std::size_t begin = at + f.extension.size() + 1;
      std::string encoding = right.substr(begin, right.find(':', begin) - begin);
      is += f.extension + ':' + encoding + ':';
      for (char& c : encoding) c = c == '=' ? ':' : c;
      const std::string kind = encoding.substr(0, encoding.find_first_of("0123456789:"));
      if (kind == "ndarray") {
        const array a = mds_array(f.data, encoding);
        const char* name = a.type() == dtype::u8    ? "uint8"
                           : a.type() == dtype::i8  ? "int8"
                           : a.type() == dtype::u16 ? "uint16"
                           : a.type() == dtype::i16 ? "int16"
                           : a.type() == dtype::f16 ? "float16"
                           : a.type() == dtype::u32 ? "uint32"
                           : a.type() == dtype::i32 ? "int32"
                           : a.type() == dtype::f32 ? "float32"
                           : a.type() == dtype::u64 ? "uint64"
                           : a.type() == dtype::i64 ? "int64"
                                                    : "float64";
        is += std::string(name) + ':' + a.dims().text() + ':' + hex(a.memory().view());
      } else if (encoding == "uint64") {
        is += std::to_string(detail::read_le(f.data.view(), 0, 8));
      } else if (kind == "int" || kind == "uint" || encoding == "str_int") {
        is += std::to_string(mds_int(f.data, encoding));
      } else if (kind == "float" || encoding == "str_float") {
        const double value = mds_float(f.data, encoding);
        char text[17];
        std::snprintf(text, sizeof text, "%016llx",
                      static_cast<unsigned long long>(__builtin_bit_cast(std::uint64_t, value)));
        is += text;
      } else {
        is += hex(f.data.view());
      }
      is += ';';
    }
    if (is != right) FAIL(s.key << ": " << is << " and not " << right);
  }
  CHECK(seen == 2500);
}
