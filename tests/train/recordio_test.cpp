// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// RecordIO files as a dataset. The files are written by Python, as dmlc/recordio.h and mxnet/recordio.py say.

#include <millrace/formats/recordio_shards.hpp>
#include <millrace/records/mx_record.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/train/dataset.hpp>

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

/// `python3 write.py SEED FILES RECORDS`: 0.rec, and 0.txt with each record's data in hexadecimal digits.
constexpr const char* writer = R"PY(
import random, struct, sys
MAGIC = struct.pack('<I', 0xced7230a)

def framed(data):
    """The parts between which the data have the magic at a multiple of 4."""
    cuts = [i for i in range(0, len(data) // 4 * 4, 4) if data[i:i + 4] == MAGIC]
    parts, begin = [], 0
    for c in cuts:
        parts.append(data[begin:c])
        begin = c + 4
    parts.append(data[begin:])
    out = b''
    for i, p in enumerate(parts):
        flag = 0 if len(parts) == 1 else 1 if i == 0 else 3 if i == len(parts) - 1 else 2
        out += MAGIC + struct.pack('<I', flag << 29 | len(p)) + p + b'\0' * (-len(p) % 4)
    return out

def drawn(r):
    data = r.randbytes(r.choice([0, 1, 4, 24, r.randrange(300)]))
    for _ in range(r.choice([0, 0, 1, 3])):
        data += MAGIC * r.randrange(1, 3) + r.randbytes(r.randrange(9))
    return data

seed, files, records = (int(a) for a in sys.argv[1:4])
r = random.Random(seed)
for i in range(files):
    with open('%d.rec' % i, 'wb') as out, open('%d.txt' % i, 'w') as says:
        for _ in range(r.randrange(1, records)):
            data = drawn(r)
            out.write(framed(data))
            says.write(data.hex() + '\n')
)PY";

/// `python3 reference.py SEED FILES RECORDS`: writes d/0.rec with d/0.idx by MXNet's own recordio and, in d/0.txt, what
/// its own reader makes of each record: labels, id, id2 and data. Then reads what `writer` has written in this folder.
/// Ends with 77 where there is no mxnet.
constexpr const char* reference = R"PY(
import os, random, struct, sys
try:
    import numpy as np
    from mxnet import recordio
except ImportError as e:
    print(e, file=sys.stderr)
    sys.exit(77)
MAGIC = struct.pack('<I', 0xced7230a)

def drawn(r):
    """Bytes with the magic at multiples of 4, which makes parts of them, and elsewhere, which does not."""
    data = r.randbytes(r.choice([0, 1, 4, 24, r.randrange(2000)]))
    for _ in range(r.choice([0, 0, 1, 5])):
        data += b'\0' * (-len(data) % 4 if r.random() < 0.7 else r.randrange(4))
        data += MAGIC * r.randrange(1, 4) + r.randbytes(r.randrange(30))
    return data

seed, files, records = (int(a) for a in sys.argv[1:4])
r = random.Random(seed)
os.mkdir('d')
for i in range(files):
    out = recordio.MXIndexedRecordIO('d/%d.idx' % i, 'd/%d.rec' % i, 'w')
    for k in range(records):
        kind = r.randrange(3)
        label = float(r.randrange(1000)) if kind == 0 else r.uniform(-9, 9) if kind == 1 else \
            np.array([r.uniform(-9, 9) for _ in range(r.randrange(1, 20))], dtype=np.float32)
        header = recordio.IRHeader(0, label, r.getrandbits(64), r.choice([0, r.getrandbits(64)]))
        out.write_idx(k, recordio.pack(header, drawn(r)))
    out.close()
    back = recordio.MXIndexedRecordIO('d/%d.idx' % i, 'd/%d.rec' % i, 'r')
    with open('d/%d.txt' % i, 'w') as says:
        for k in range(records):
            header, data = recordio.unpack(back.read_idx(k))
            labels = np.atleast_1d(np.asarray(header.label, dtype='<f4')).tobytes()
            says.write('%s,%d,%d,%s\n' % (labels.hex(), header.id, header.id2, data.hex()))
    assert back.read() is None
for i in range(files):
    theirs = recordio.MXRecordIO('%d.rec' % i, 'r')
    for line in open('%d.txt' % i):
        assert theirs.read().hex() == line.strip(), line
    assert not theirs.read()
)PY";

constexpr std::uint32_t magic = 0xced7230a;

std::string part(std::uint32_t kind, std::string_view data) {
  std::string out;
  detail::append_le(out, magic, 4);
  detail::append_le(out, kind << 29 | static_cast<std::uint32_t>(data.size()), 4);
  out += data;
  out.resize((out.size() + 3) / 4 * 4, '\0');
  return out;
}

std::string bytes_of(const std::string& digits) {
  std::string out;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    out += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return out;
}

shard_index index_of(const std::string& name, const std::string& object, std::size_t piece, bool size_known = true) {
  shard of("mem:d/" + name);
  if (size_known) of.size = object.size();
  return test::scanned(detail::recordio_scanner(*recordio_shards(), name, of), object, piece);
}

dataset dataset_of(const std::shared_ptr<const storage>& store, const std::map<std::string, std::string>& files,
                   std::uint64_t slice) {
  std::vector<shard_index> all;
  for (const auto& [name, content] : files) all.push_back(index_of(name, content, 1000));
  return dataset(store, std::make_shared<const index_set>(std::move(all)), 
                 {.format = recordio_shards(), .prefix = "mem:d/", .slice = slice});
}

class files_of_python {
 public:
  files_of_python(int seed, int count, int most) {
    const test::temporary_folder folder;
    test::write_file(folder.path() + "/write.py", writer);
    REQUIRE(test::shell("cd '" + folder.path() + "' && python3 write.py " + std::to_string(seed) + ' ' +
                        std::to_string(count) + ' ' + std::to_string(most)));
    for (int i = 0; i < count; ++i) {
      const std::string name = std::to_string(i) + ".rec";
      std::ifstream in(folder.path() + '/' + name, std::ios::binary);
      files[name] = std::string(std::istreambuf_iterator<char>(in), {});
      std::ifstream says(folder.path() + '/' + std::to_string(i) + ".txt");
      for (std::string line; std::getline(says, line);) records[name].push_back(bytes_of(line));
    }
  }
  record_files records;
  std::map<std::string, std::string> files;
};

}  // namespace

TEST_CASE("records of RecordIO files of Python, of one part and of several, come as they were written") {
  if (!test::have_tool("python3")) MILLRACE_SKIP("no python3");
  const files_of_python made(1, 8, 1200);
  std::size_t count = 0;
  for (const auto& [name, file] : made.files) {
    const shard_index index = index_of(name, file, 1 + count % 97, count % 2 == 0);
    const std::vector<std::string>& wanted = made.records.at(name);
    REQUIRE(index.samples() == wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto begin = static_cast<std::size_t>(index.offset(i));
      const auto size = static_cast<std::size_t>(index.end(i)) - begin;
      const bytes parts = bytes::copy(file.substr(begin, size));
      const bytes data = detail::recordio_data(parts, where());
      if (data.view() != wanted[i]) FAIL(name << " record " << i);
      const bool single = parts.size() == wanted[i].size() + 8;
      if (single && !data.empty()) CHECK(data.memory() == parts.memory());
      ++count;
    }
    const std::string text = index.text();
    std::string_view rest = text;
    CHECK(shard_index::read(rest, "x") == index);
  }
  CHECK(count > 1000);
}

TEST_CASE("records of RecordIO files on one to three ranks, resumed at each step") {
  if (!test::have_tool("python3")) MILLRACE_SKIP("no python3");
  const files_of_python made(2, 4, 12);
  const auto store = test::store_of(made.files);
  epochs_options o{.seed = 5, .epochs = 2, .batch = 3};
  o.tracks = 4;
  runtime rt;
  test::check_trainings(rt, dataset_of(store, made.files, 4), o, test::model_of(made.records, o, 4));
}

TEST_CASE("drawn RecordIO files, ranks and bounds, and the index that a run makes") {
  if (!test::have_tool("python3")) MILLRACE_SKIP("no python3");
  rng random(3);
  runtime rt;
  for (int n = 0; n < 8; ++n) {
    CAPTURE(n);
    const files_of_python made(10 + n, 1 + n % 3, 150);
    const auto store = test::store_of(made.files);
    const std::uint64_t slice = 1 + random.below(8);
    const epochs_options o = test::drawn_options(random);
    test::check_drawn_training(rt, random, dataset_of(store, made.files, slice), o,
                               test::model_of(made.records, o, slice));
    const test::temporary_folder folder;
    const dataset listed(std::shared_ptr<const storage>(store), "mem:d/",
                         {.index = folder.path() + "/i", .format = recordio_shards(), .slice = slice});
    CHECK(trained(rt, listed, o).samples == test::model_of(made.records, o, slice));
  }
}

TEST_CASE("RecordIO files that are damaged, cut, or none, are refused by object, record and byte") {
  const std::string file = part(0, "first") + part(1, "abcd") + part(2, "") + part(3, "xyz") + part(0, "last");
  const auto refusal = [](const std::string& object, bool size_known = true) {
    return failure_of([&] { static_cast<void>(index_of("x", object, 7, size_known)); });
  };
  CHECK(refusal(file) == "no error");
  CHECK(index_of("x", file, 7).samples() == 3);
  CHECK(index_of("x", "", 7).samples() == 0);
  CHECK_THAT(refusal("text of some length"), Contains("mem:d/x at byte 0: record 0 is damaged") &&
                                                 Contains("or this is no RecordIO file"));
  CHECK_THAT(refusal(part(0, "first") + "abcdefgh"),
             Contains("mem:d/x at byte 16: record 1 is damaged: a part of it does not begin with"));
  CHECK_THAT(refusal(part(0, "first") + part(3, "x")),
             Contains("mem:d/x at byte 16: record 1 begins with a part of another one"));
  CHECK_THAT(refusal(part(1, "abcd") + part(0, "x")), Contains("at byte 0: record 0 ends before its last part"));
  CHECK_THAT(refusal(part(5, "abcd")), Contains("record 0 begins with a part of another one"));
  for (std::size_t length = 0; length < file.size(); ++length) {
    const bool whole = length == 0 || length == 16 || length == 48;
    CAPTURE(length);
    CHECK((refusal(file.substr(0, length), false) == "no error") == whole);
    CHECK((refusal(file.substr(0, length), true) == "no error") == whole);
  }
  CHECK_THAT(refusal(file.substr(0, 50), false),
             Contains("mem:d/x at byte 48: the object ends in the middle of record 2: 2 bytes of it are there"));
  CHECK_THAT(refusal(file.substr(0, 58)), Contains("mem:d/x at byte 48: record 2 has a part that ends at byte 60, by "
                                                   "its length, and the object ends at byte 58"));

  // At the training.
  const std::map<std::string, std::string> files = {{"x", file}};
  const auto store = test::store_of(files);
  epochs_options o{.seed = 1, .epochs = 1, .batch = 1};
  o.tracks = 2;
  runtime rt;
  const test::seen_samples wanted = trained(rt, dataset_of(store, files, 4), o).samples;
  CHECK(wanted.size() == 3);
  const auto line = std::make_shared<test::damaging_storage>(store);
  test::captured_stderr log(test::captured_stderr::into::pipe);
  for (std::size_t byte = 0; byte < file.size(); byte += 3) {
    line->damage("mem:d/x", byte);
    CHECK(trained(rt, dataset_of(line, files, 4), o).samples == wanted);
  }
  CHECK(line->second_readings() > 5);
  const dataset right = dataset_of(store, files, 4);
  store->objects["mem:d/x"][25] = '?';
  CHECK_THAT(failure_of([&] { static_cast<void>(trained(rt, right, o)); }),
             Contains("mem:d/x at byte 16, x#1: the CRC32C of the record is "));
}

TEST_CASE("MXNet's header gives labels, ids and data, and fields of a sample") {
  const auto record = [](std::uint32_t flag, std::string_view label, std::string_view rest) {
    std::string out;
    detail::append_le(out, flag, 4);
    out += label;
    detail::append_le(out, 11, 8);
    detail::append_le(out, 12, 8);
    return out.append(rest);
  };
  const std::string seven("\0\0\xe0\x40", 4);
  const std::string half("\0\0\0\x3f", 4);
  const auto fields = [](const std::string& from) {
    sample s("x#3", origin(std::make_shared<const shard>("mem:x"), 40, 3));
    s.fields.emplace_back("record", bytes::copy(from));
    return mx_fields()(std::move(s));
  };
  const mx_record one(bytes::copy(record(0, seven, "JPEG")));
  CHECK(one.labels == std::vector<float>{7});
  CHECK(one.id == 11);
  CHECK(one.id2 == 12);
  CHECK(one.data.view() == "JPEG");
  const mx_record two(bytes::copy(record(2, "none", half + seven + "JPEG")));
  CHECK(two.labels == std::vector<float>{0.5F, 7});
  CHECK(two.data.view() == "JPEG");

  const sample s = fields(record(0, seven, "JPEG"));
  CHECK(s["data"].view() == "JPEG");
  CHECK(s["label"].view() == seven);
  CHECK(s["cls"].view() == "7");
  CHECK(s.find("record") == nullptr);
  CHECK(fields(record(1, "none", seven + "x"))["cls"].view() == "7");
  CHECK(fields(record(0, half, "x")).find("cls") == nullptr);
  const sample several = fields(record(2, "none", half + seven));
  CHECK(several.find("cls") == nullptr);
  CHECK(several["label"].view() == half + seven);
  CHECK(several["data"].empty());
  CHECK_THAT(failure_of([&] { fields("short"); }),
             Contains("mem:x at byte 40, x#3: the record has 5 bytes, and MXNet's header has 24"));
  CHECK_THAT(failure_of([&] { fields(record(3, "none", half + seven + "abc")); }),
             Contains("the record has 3 labels, by its header, and 11 bytes after it"));
  sample none;
  none.mark.padding = true;
  CHECK(mx_fields()(none).fields.empty());
}

TEST_CASE("what MXNet's own recordio writes is what its own reader reads", "[outside]") {
  if (!test::have_tool("python3")) MILLRACE_SKIP("no python3");
  const test::temporary_folder folder;
  test::write_file(folder.path() + "/write.py", writer);
  test::write_file(folder.path() + "/reference.py", reference);
  const char* const given = std::getenv("MILLRACE_MXNET_PYTHON");
  const std::string python = given == nullptr ? "python3" : given;
  REQUIRE(test::shell("cd '" + folder.path() + "' && python3 write.py 5 6 400"));
  const int status = std::system(("cd '" + folder.path() + "' && " + python + " reference.py 6 6 700 2> said").c_str());
  if (status != 0) {
    std::ifstream said(folder.path() + "/said");
    INFO(std::string(std::istreambuf_iterator<char>(said), {}));
    REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == 77));
    MILLRACE_SKIP("mxnet is not installed (MILLRACE_MXNET_PYTHON names a Python that has it)");
  }
  std::size_t several = 0;
  std::size_t seen = 0;
  std::map<std::string, std::string> wanted;  // by key
  std::map<std::string, std::string> objects;
  for (int i = 0; i < 6; ++i) {
    const std::string name = std::to_string(i) + ".rec";
    std::ifstream in(folder.path() + "/d/" + name, std::ios::binary);
    objects[name] = std::string(std::istreambuf_iterator<char>(in), {});
    std::ifstream says(folder.path() + "/d/" + std::to_string(i) + ".txt");
    std::size_t k = 0;
    for (std::string line; std::getline(says, line); ++k) wanted[name + '#' + std::to_string(k)] = line;
    // The offsets of MXNet's own index are those of ours.
    const shard_index index = index_of(name, objects[name], 997);
    std::ifstream places(folder.path() + "/d/" + std::to_string(i) + ".idx");
    std::size_t number = 0;
    std::uint64_t place = 0;
    for (k = 0; places >> number >> place; ++k) {
      if (number != k || index.offset(k) != place) FAIL(name << " record " << k << " at " << place);
    }
    CHECK(k == index.samples());
  }
  REQUIRE(wanted.size() == 4200);
  const auto hex = [](std::string_view text) {
    std::string out;
    for (const char c : text) {
      out += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
      out += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
    }
    return out;
  };
  const dataset data = dataset_of(test::store_of(objects), objects, 16);
  runtime rt;
  for (const sample& s : rt.run(epochs(data, {.seed = 1, .epochs = 1, .batch = 1}))) {
    const mx_record r(s["record"], s.from.at(s.key));
    std::string labels(4 * r.labels.size(), '\0');
    std::memcpy(labels.data(), r.labels.data(), labels.size());
    const std::string is =
        hex(labels) + ',' + std::to_string(r.id) + ',' + std::to_string(r.id2) + ',' + hex(r.data.view());
    if (is != wanted.at(s.key)) FAIL(s.key << ": " << is << " and not " << wanted.at(s.key));
    ++seen;
    if (r.data.view().find("\x0a\x23\xd7\xce") != std::string_view::npos) ++several;
  }
  CHECK(seen == 4200);
  CHECK(several > 1000);
}
