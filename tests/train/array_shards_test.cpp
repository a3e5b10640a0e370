// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// .npy files and Megatron's .bin and .idx as datasets. The files are written here.

#include <millrace/formats/array_shards.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/damaging_storage.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/train/epochs_data.hpp"
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

std::string npy_file(const std::string& type, const std::string& shape, const std::string& data) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header += std::string(63 - (10 + header.size()) % 64, ' ') + "\n";
  return "\x93NUMPY" + std::string("\1\0", 2) + number(header.size(), 2) + header + data;
}

std::string npy_of(const std::vector<std::string>& rows) {
  std::string data;
  for (const std::string& r : rows) data += r;
  return npy_file("<i2", "(" + std::to_string(rows.size()) + ", 3, 2)", data);
}

/// The two files of sequences of 16-bit tokens, of which `documents` have so many each.
std::pair<std::string, std::string> megatron_files(const std::vector<std::string>& sequences,
                                                   const std::vector<std::size_t>& documents) {
  std::string bin;
  std::string sizes;
  std::string pointers;
  for (const std::string& s : sequences) {
    sizes += number(s.size() / 2);
    pointers += number(bin.size(), 8);
    bin += s;
  }
  std::string ends = number(0, 8);
  std::uint64_t end = 0;
  for (const std::size_t d : documents) ends += number(end += d, 8);
  return {bin, std::string("MMIDIDX\0\0", 9) + number(1, 8) + number(8, 1) + number(sequences.size(), 8) +
                   number(documents.size() + 1, 8) + sizes + pointers + ends};
}

std::string drawn(rng& random, std::size_t bytes) {
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>(random.below(256));
  return out;
}

struct case_of {
  record_files records;
  std::map<std::string, std::string> files;
  std::shared_ptr<const shard_format> format;
};

/// kind 0: .npy; 1: documents; 2: sequences.
case_of drawn_case(rng& random, int kind, std::size_t most) {
  case_of out;
  for (std::size_t f = 0; f < 3; ++f) {
    const std::string name = "f" + std::to_string(f);
    if (kind == 0) {
      std::vector<std::string>& rows = out.records[name + ".npy"];
      for (std::size_t n = random.below(most + 1); n > 0; --n) rows.push_back(drawn(random, 12));
      if (f == 0) rows.push_back(drawn(random, 12));
      out.files[name + ".npy"] = npy_of(rows);
      continue;
    }
    std::vector<std::string> sequences;
    std::vector<std::size_t> documents;
    std::vector<std::string>& its = out.records[name + ".bin"];
    for (std::size_t n = random.below(most) + 1; n > 0; --n) {
      documents.push_back(random.below(4));
      std::string whole;
      for (std::size_t k = 0; k < documents.back(); ++k) {
        sequences.push_back(drawn(random, 2 * random.below(9)));
        whole += sequences.back();
        if (kind == 2) its.push_back(sequences.back());
      }
      if (kind == 1) its.push_back(whole);
    }
    std::tie(out.files[name + ".bin"], out.files[name + ".idx"]) = megatron_files(sequences, documents);
  }
  if (kind == 2 && out.records["f0.bin"].empty()) return drawn_case(random, kind, most);
  megatron_options how;
  how.sequences = kind == 2;
  how.type = dtype::u16;
  out.format = kind == 0 ? npy_shards() : megatron(how);
  return out;
}

std::string scanned(const shard_format& format, const std::string& name, const std::string& file,
                    std::shared_ptr<const void> metadata, bool size_known, std::size_t piece = 5,
                    std::size_t* samples = nullptr) {
  shard of("mem:d/" + name);
  if (size_known) of.size = file.size();
  return failure_of([&] {
    const std::unique_ptr<shard_scanner> scanner = format.scanner("x", of, std::move(metadata));
    for (std::size_t at = 0; at < file.size(); at += piece) {
      scanner->add(bytes::copy(std::string_view(file).substr(at, piece)));
    }
    const shard_index index = scanner->finish(file.size(), "\"v1\"");
    for (std::size_t i = 0; i < index.samples(); ++i) CHECK(index.end(i) <= file.size());
    if (samples != nullptr) *samples = index.samples();
  });
}

std::string megatron_said(const std::string& bin, const std::string& idx, megatron_options how = {},
                          bool size_known = true) {
  testing::virtual_loop loop;
  const auto format = megatron(how);
  std::shared_ptr<const void> metadata =
      block_on(loop, format->metadata(test::store_of({{"x.idx", idx}}), {shard("mem:d/x.idx", idx.size())}));
  return scanned(*format, "x.bin", bin, std::move(metadata), size_known);
}

}  // namespace

TEST_CASE("rows of .npy files, documents and sequences on one to three ranks, resumed at each step") {
  rng random(1);
  runtime rt;
  for (const int kind : {0, 1, 2}) {
    CAPTURE(kind);
    const case_of its = drawn_case(random, kind, 9);
    const auto store = test::store_of(its.files);
    const test::temporary_folder folder;
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                       {.index = folder.path() + "/index", .format = its.format, .slice = 4});
    epochs_options o{.seed = 5, .epochs = 2, .batch = 3};
    o.tracks = 4;
    test::check_trainings(rt, data, o, test::model_of(its.records, o, 4));
  }
}

TEST_CASE("drawn .npy files, documents and sequences: bounds and ranks change nothing") {
  rng random(2);
  runtime rt;
  for (int n = 0; n < 30; ++n) {
    CAPTURE(n);
    const case_of its = drawn_case(random, n % 3, 60);
    const auto store = test::store_of(its.files);
    store->delay_us = random.below(2) * 300;
    const test::temporary_folder folder;
    const std::uint64_t slice = 1 + random.below(8);
    const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                       {.index = folder.path() + "/index", .format = its.format, .slice = slice});
    const epochs_options o = test::drawn_options(random);
    trained(rt, data, o, {}, 1);
    test::check_drawn_training(rt, random, data, o, test::model_of(its.records, o, slice));
  }
}

TEST_CASE("a row that comes damaged is read once more, and is refused where it is damaged in the store") {
  rng random(3);
  const record_files records = {{"x.npy", {drawn(random, 12), drawn(random, 12)}}};
  const auto store = test::store_of({{"x.npy", npy_of(records.at("x.npy"))}});
  const auto line = std::make_shared<test::damaging_storage>(store);
  const test::temporary_folder folder;
  epochs_options o{.seed = 5, .epochs = 1, .batch = 1};
  o.tracks = 1;
  runtime rt;
  const auto train = [&] {
    const dataset data(std::shared_ptr<const storage>(line), {shard("mem:d/x.npy")},
                       {.index = folder.path() + "/index", .format = npy_shards(), .prefix = "mem:d/", .slice = 4});
    return trained(rt, data, o).samples;
  };
  CHECK(train() == test::model_of(records, o, 4));
  line->damage("mem:d/x.npy", 128 + 13);
  CHECK(train() == test::model_of(records, o, 4));
  CHECK(line->flips() == 1);
  std::string& file = store->objects["mem:d/x.npy"];
  file[128 + 13] = static_cast<char>(file[128 + 13] ^ 1);
  const std::string said = failure_of([&] { train(); });
  CHECK_THAT(said, Contains("mem:d/x.npy at byte 140"));
  CHECK_THAT(said, Contains("read twice, and both times the same"));
}

TEST_CASE(".npy shards that lie are refused by object, byte and reason") {
  const auto said = [](const std::string& file, npy_shards_options how = {}, bool size_known = true) {
    return scanned(*npy_shards(how), "x.npy", file, nullptr, size_known);
  };
  const std::string rows = std::string(24, 'r');
  const std::string file = npy_file("<i2", "(2, 3, 2)", rows);
  REQUIRE(file.size() == 152);
  CHECK(said(file) == "no error");
  CHECK(said(npy_file("<f4", "(0, 7)", "")) == "no error");
  CHECK(said(npy_file("|u1", "(5,)", "abcde")) == "no error");
  CHECK_THAT(said(npy_file("<i2", "()", "ab")),
             Contains("mem:d/x.npy at byte 0: the .npy has no rows: it is a scalar"));
  CHECK_THAT(said(npy_file("<i2", "(3, 3, 2)", rows)),
             Contains("mem:d/x.npy at byte 0: the file has 152 bytes, and by its header 164"));
  CHECK_THAT(said(npy_file("<i2", "(3, 3, 2)", rows), {}, false), Contains("has 152 bytes, and by its header 164"));
  CHECK_THAT(said(npy_file("<i2", "(1, 3, 2)", rows), {}, false),
             Contains("is longer than its header says: 140 bytes"));
  CHECK_THAT(said(npy_file("<i2", "(4000000000000, 3, 2)", rows)), Contains("by its header 48000000000128"));
  CHECK_THAT(said(npy_file("<i2", "(1, 4000000000000)", rows)), Contains("a row of 4 GiB or more is no sample"));
  CHECK_THAT(said(npy_file("<i2", "(9000000000000000000, 9000000000000000000, 3)", rows)), Contains("4 GiB or more"));
  CHECK_THAT(said(npy_file("<i2", "(3, 0)", "")), Contains("the rows have no elements"));
  CHECK_THAT(said(npy_file(">i2", "(2, 3, 2)", rows)),
             Contains("mem:d/x.npy at byte 0: the elements of the .npy are "));
  CHECK_THAT(said("no array at all"), Contains("mem:d/x.npy at byte 0: not a .npy"));
  CHECK_THAT(said(""), Contains("mem:d/x.npy at byte 0"));
  npy_shards_options how;
  how.type = dtype::i16;
  how.row = shape{3, 2};
  CHECK(said(file, how) == "no error");
  how.type = dtype::f32;
  CHECK_THAT(said(file, how), Contains("the elements are i16, and .type is f32"));
  how.type = dtype::i16;
  how.row = shape{2, 3};
  CHECK_THAT(said(file, how), Contains("the rows are 3x2, and .row is 2x3"));
  for (std::size_t cut = 0; cut < file.size(); ++cut) CHECK(said(file.substr(0, cut), {}, cut % 2 == 0) != "no error");
  rng random(5);
  std::size_t read = 0;
  for (int n = 0; n < 4000; ++n) {
    std::string wrong = file;
    wrong[random.below(wrong.size())] = static_cast<char>(random.below(256));
    if (said(wrong, {}, n % 2 == 0) == "no error") ++read;
  }
  CHECK(read > 100);
  CHECK(read < 3900);
}

TEST_CASE("Megatron's indexes that lie are refused by object, byte and reason") {
  const auto [bin, idx] = megatron_files({"aabb", "", "ccddee", "ff"}, {1, 0, 2, 1});
  const std::size_t sizes = 34;
  const std::size_t pointers = sizes + 16;
  const std::size_t documents = pointers + 32;
  const auto with = [&idx = idx](std::size_t at, const std::string& bytes) {
    std::string out = idx;
    return out.replace(at, bytes.size(), bytes);
  };
  const auto said = [&bin = bin](const std::string& its, megatron_options how = {}) {
    return megatron_said(bin, its, how);
  };
  megatron_options sequences;
  sequences.sequences = true;
  CHECK(said(idx) == "no error");
  CHECK(said(idx, sequences) == "no error");
  CHECK(said(idx + std::string(4, '\0')) == "no error");  // modes of the sequences
  CHECK_THAT(said("none"), Contains("mem:d/x.idx at byte 0: this is no index of Megatron-LM"));
  CHECK_THAT(said(with(9, number(2, 8))), Contains("mem:d/x.idx at byte 9: the file is of version 2 and not 1"));
  CHECK_THAT(said(with(17, number(7, 1))), Contains("the tokens are floating-point numbers"));
  CHECK_THAT(said(with(17, number(9, 1))), Contains("the tokens are of type 9: there is no such type"));
  CHECK_THAT(said(with(18, number(5, 8))), Contains("its head says 5 sequences and 5 documents"));
  CHECK_THAT(said(with(18, number(UINT64_MAX, 8))), Contains("18446744073709551615 sequences"));
  CHECK_THAT(said(with(26, number(UINT64_MAX / 8, 8))), Contains("documents"));
  CHECK_THAT(said(with(sizes, number(0xffffffff))), Contains("at byte 34: sequence 0 has a negative length"));
  CHECK_THAT(said(with(sizes + 12, number(2))), Contains("mem:d/x.idx at byte " + std::to_string(pointers + 24) +
                                                         ": sequence 3 of 2 tokens at byte 10 ends "
                                                         "beyond the .bin, which has 12 bytes"));
  CHECK_THAT(said(with(pointers + 24, number(std::uint64_t{1} << 42, 8))), Contains("ends beyond the .bin"));
  CHECK_THAT(said(with(pointers + 16, number(2, 8))),
             Contains("sequence 2 is at byte 2, and the one before it ends at byte 4"));
  CHECK_THAT(said(with(documents, number(1, 8))), Contains("the documents do not begin with the first sequence"));
  CHECK_THAT(said(with(documents + 8, number(4, 8))), Contains("document 1 ends before it begins"));
  megatron_options type;
  type.type = dtype::i32;
  CHECK_THAT(said(idx, type), Contains("the tokens are u16, and .type is i32"));
  CHECK_THAT(megatron_said(bin.substr(0, 9), idx, {}, false), Contains("ends beyond the .bin, which has 9 bytes"));
  for (std::size_t cut = 0; cut < idx.size(); ++cut) CHECK(said(idx.substr(0, cut)) != "no error");
  rng random(6);
  std::size_t read = 0;
  for (int n = 0; n < 6000; ++n) {
    std::string wrong = idx;
    for (std::size_t k = 1 + random.below(2); k > 0; --k) {
      wrong[random.below(wrong.size())] = static_cast<char>(random.below(3) == 0 ? random.below(256) : random.below(5));
    }
    if (megatron_said(bin, wrong, n % 2 == 0 ? megatron_options() : sequences, n % 3 == 0) == "no error") ++read;
  }
  CHECK(read > 100);
  CHECK(read < 5000);
  // A .bin has its .idx.
  const auto store = test::store_of({{"x.bin", bin}});
  const test::temporary_folder folder;
  const dataset data(std::shared_ptr<const storage>(store), "mem:d/",
                     {.index = folder.path() + "/index", .format = megatron()});
  runtime rt;
  CHECK_THAT(failure_of([&] { trained(rt, data, {.seed = 1, .epochs = 1, .batch = 1}); }),
             Contains("mem:d/x.bin: megatron: there is no mem:d/x.idx beside it"));
}
