// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/array.hpp>
#include <millrace/decode/decode_arrays.hpp>
#include <millrace/decode/npz.hpp>

#include <archive.h>
#include <archive_entry.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_data.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

/// A .npy with any header, as NumPy lays one out.
std::string npy(std::string header, std::string_view data, int version = 1) {
  const std::size_t front = version == 1 ? 10 : 12;
  while ((front + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string made = "\x93NUMPY";
  made += static_cast<char>(version);
  made += '\0';
  for (std::size_t i = 0; i < front - 8; ++i) made += static_cast<char>(header.size() >> 8 * i);
  return made + header + std::string(data);
}

std::string header_of(const std::string& type, const std::string& dims, bool fortran = false) {
  return "{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + dims + ", }";
}

template <class T>
std::string raw(std::vector<T> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <class T>
std::vector<T> values_of(const array& a) {
  const std::span<const T> values = a.values<T>();
  return std::vector<T>(values.begin(), values.end());
}

std::string reason_for(const std::string& file) {
  try {
    parse_npy(bytes::copy(file), where{"s3://b/a.tar", 512, "k"});
  } catch (const decode_error& e) {
    CHECK(std::string(e.what()).starts_with("s3://b/a.tar at byte 512, k: "));
    return e.reason();
  }
  return "none";
}

/// A zip of such members, deflated.
std::string zip(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string made(1 << 20, '\0');
  std::size_t used = 0;
  struct archive* const out = archive_write_new();
  archive_write_set_format_zip(out);
  archive_write_open_memory(out, made.data(), made.size(), &used);
  for (const auto& [name, body] : members) {
    archive_entry* const e = archive_entry_new();
    archive_entry_set_pathname(e, name.c_str());
    archive_entry_set_size(e, static_cast<la_int64_t>(body.size()));
    archive_entry_set_filetype(e, AE_IFREG);
    archive_write_header(out, e);
    archive_write_data(out, body.data(), body.size());
    archive_entry_free(e);
  }
  archive_write_close(out);
  archive_write_free(out);
  made.resize(used);
  return made;
}

bytes contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return bytes::copy(std::string(std::istreambuf_iterator<char>(in), {}));
}

std::vector<std::int32_t> counted(int n) {
  std::vector<std::int32_t> made(static_cast<std::size_t>(n));
  std::iota(made.begin(), made.end(), 0);
  return made;
}

}  // namespace

TEST_CASE("a .npy is read where it lies, whatever its version and the order of its keys") {
  for (const int version : {1, 2, 3}) {
    const bytes file = bytes::copy(npy(header_of("<i4", "(2, 3)"), raw(counted(6)), version));
    const array a = parse_npy(file);
    CHECK(a.type() == dtype::i32);
    CHECK(a.dims() == shape{2, 3});
    CHECK(values_of<std::int32_t>(a) == counted(6));
    CHECK(a.memory().memory() == file.memory());
    CHECK_THROWS_AS(a.values<float>(), configuration_error);
  }
  const std::string turned = "{\"shape\": (3L,),\"fortran_order\":False , \"descr\":\"|u1\"}";
  CHECK(values_of<std::uint8_t>(parse_npy(bytes::copy(npy(turned, "abc")))) == std::vector<std::uint8_t>{97, 98, 99});
  CHECK(parse_npy(bytes::copy(npy(header_of(">u1", "()"), "a"))).dims() == shape());
  CHECK(parse_npy(bytes::copy(npy(header_of("<f8", "(0, 5)"), ""))).dims() == shape{0, 5});
  CHECK(parse_npy(bytes::copy(npy(header_of("<i4", "(1, 6)", true), raw(counted(6))))).dims() == shape{1, 6});
}

TEST_CASE("elements that are not aligned are copied, and others are not") {
  const std::string file = npy(header_of("<i4", "(6,)"), raw(counted(6)));
  for (const std::size_t offset : {0, 1, 2, 3, 4}) {
    const bytes whole = bytes::copy(std::string(offset, '-') + file);
    const array a = parse_npy(whole.slice(offset, file.size()));
    CHECK(values_of<std::int32_t>(a) == counted(6));
    CHECK((a.memory().memory() == whole.memory()) == (offset % 4 == 0));
    CHECK(reinterpret_cast<std::uintptr_t>(a.data()) % 4 == 0);
  }
}

TEST_CASE("what is no .npy, or none of a tensor, is refused with a sentence") {
  const std::string six = raw(counted(6));
  CHECK(reason_for("") == "not a .npy: it begins otherwise");
  CHECK(reason_for("\x93NUMPY") == "the .npy is cut short");
  const std::string good = npy(header_of("<i4", "(6,)"), six);
  CHECK(reason_for(good) == "none");
  CHECK(reason_for(good.substr(0, 50)) == "the .npy is cut short in its header");
  CHECK(reason_for(good.substr(0, good.size() - 1)) == "an array of i32 6 has 24 bytes, and 23 are there");
  CHECK(reason_for(good + "x") == "an array of i32 6 has 24 bytes, and 25 are there");
  CHECK(reason_for(npy(header_of("<i4", "(6,)"), six, 4)) == "the .npy is of version 4, and known are 1 to 3");
  CHECK(reason_for(npy(header_of("<i4", "(2, 3)", true), six)) ==
        "the .npy is in Fortran's order: save numpy.ascontiguousarray() of it");
  CHECK(reason_for(npy(header_of(">i4", "(6,)"), six)) ==
        "the elements of the .npy are big-endian (>i4): save it with .astype(\"<i4\")");
  CHECK(reason_for(npy(header_of(">f8", "(3,)"), six)) ==
        "the elements of the .npy are big-endian (>f8): save it with .astype(\"<f8\")");
  for (const char* type :
       {"<c8", "|O", "<U2", "<M8[ns]", "<f16", "", "b1 ", " ", "<", "|S5", "|V4", "<m8[s]", "g", "G8"}) {
    CHECK(reason_for(npy(header_of(type, "(6,)"), six)) ==
          "the elements of the .npy are of type \"" + std::string(type) + "\", for which there is no tensor");
  }
  CHECK(reason_for(npy("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (6,), }", six)) ==
        "the elements of the .npy are structures, for which there is no tensor");
  CHECK(reason_for(npy(header_of("<i4", "(1, 1, 1, 1, 1, 1, 1, 1, 6)"), six)) == "the .npy has more than 8 extents");
  CHECK(reason_for(npy(header_of("<i4", "(6, 4294967296, 4294967296)"), six)) ==
        "an array of i32 6x4294967296x4294967296 is too large");
  CHECK(reason_for(npy(header_of("<i4", "(0, 4294967296, 4294967296)"), "")) ==
        "an array of i32 0x4294967296x4294967296 is too large");
  const std::string damaged = "the header of the .npy is damaged";
  for (const char* header :
       {"", "{", "{}", "[]", "{'descr': '<i4'}", "{'descr': '<i4', 'fortran_order': False, 'shape': (6,)} x",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (6,), 'more': 1}", "{'descr' '<i4'}",
        "{'descr': '<i4', 'descr': '<i4', 'fortran_order': False, 'shape': (6,)}", "{'descr': <i4}",
        "{'descr': '<i4', 'fortran_order': Maybe, 'shape': (6,)}", "{'descr': '<i4",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (-6,)}",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (6",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<i4', 'fortran_order': False, 'shape': 6}",
        "{'descr': '<i4' 'fortran_order': False, 'shape': (6,)}"}) {
    CAPTURE(header);
    CHECK(reason_for(npy(header, six)) == damaged);
  }
  CHECK_THAT(reason_for(npy(header_of("<i4", "(6,)") + std::string(70000, ' '), six, 2)), Contains("a header of 7"));
}

// What is right is what numpy.lib.format.read_array() of NumPy 1.24 makes of it.
TEST_CASE("the header of a .npy is read as Python reads a dictionary") {
  const std::string six = raw(counted(6));
  for (const std::string header : {"{'descr':\t'<i4',\t'fortran_order':\tFalse,\t'shape':\t(2,\t3)\t}\t",
                                   "{'descr': '<i4',\r\n'fortran_order': False,\r\n 'shape': (2, 3),\r\n}\r",
                                   "{u'descr': u'<i4', u'fortran_order': False, u'shape': (2L, 3L), }",
                                   "{U'descr': r'<i4','fortran_order':False,'shape':(2,3,)}",
                                   "{\"descr\": \"<i4\", \"fortran_order\": False, \"shape\": (2, 3)}",
                                   "  {\f'shape' : ( 2 , 3 , ) , 'fortran_order' : False , 'descr' : '<i4' , }",
                                   "\n{'fortran_order': False, 'descr': '=i4', 'shape': (2,\n3)}"}) {
    CAPTURE(header);
    CHECK(reason_for(npy(header, six)) == "none");
    const array a = parse_npy(bytes::copy(npy(header, six, 3)));
    CHECK(a.dims() == shape{2, 3});
    CHECK(values_of<std::int32_t>(a) == counted(6));
  }
  // Headers that are not padded, or with more than there need be.
  const auto with_length = [&](const std::string& header) {
    return std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(header.size()) + '\0' + header + six;
  };
  CHECK(reason_for(with_length("{'descr':'<i4','fortran_order':False,'shape':(6,)}")) == "none");
  CHECK(reason_for(with_length("{'descr':'<i4','fortran_order':False,'shape':(6,)}\n\n   \n")) == "none");
  // The spellings of numpy.dtype().
  for (const char* type : {"<i4", "|i4", "=i4", "i4", "i", "<i", "int32"}) {
    CAPTURE(type);
    CHECK(parse_npy(bytes::copy(npy(header_of(type, "(6,)"), six))).type() == dtype::i32);
  }
  const std::pair<const char*, dtype> others[] = {
      {"?", dtype::boolean},   {"|b1", dtype::boolean}, {"bool", dtype::boolean}, {"b", dtype::i8},  {"B", dtype::u8},
      {">b1", dtype::boolean}, {"uint8", dtype::u8},    {"<u1", dtype::u8},       {">i1", dtype::i8}};
  for (const auto& [type, meant] : others) {
    CAPTURE(type);
    CHECK(parse_npy(bytes::copy(npy(header_of(type, "(3,)"), "abc"))).type() == meant);
  }
  CHECK(parse_npy(bytes::copy(npy(header_of("float64", "(3,)"), six))).type() == dtype::f64);
  CHECK(parse_npy(bytes::copy(npy(header_of("=f2", "(12,)"), six))).type() == dtype::f16);
  CHECK(parse_npy(bytes::copy(npy(header_of("<L", "(3,)"), six))).type() == dtype::u64);
  CHECK(parse_npy(bytes::copy(npy(header_of("<f8", "( )"), six.substr(0, 8)))).dims() == shape());
  CHECK(parse_npy(bytes::copy(npy(header_of("<f8", "(0,)", true), ""))).dims() == shape{0});
  CHECK(parse_npy(bytes::copy(npy(header_of("<f8", "(3, 0, 2)"), ""))).dims() == shape{3, 0, 2});
  CHECK(reason_for(npy(header_of("<f8", "(3, 0, 2)", true), "")) == "none");
  for (const char* dims : {"(,)", "(6,,)", "(6 6)", "[6]", "6,", "(6.0,)", "(-6,)"}) {
    CAPTURE(dims);
    CHECK(reason_for(npy(header_of("<i4", dims), six)) == "the header of the .npy is damaged");
  }
  CHECK(reason_for(npy("{'descr': ('<i4', (2,)), 'fortran_order': False, 'shape': (3,)}", six)) ==
        "the elements of the .npy are structures, for which there is no tensor");
}

TEST_CASE("of an archive with arrays of other kinds the rest is read, and arrays are picked by name") {
  const std::string x = npy(header_of("<i4", "(6,)"), raw(counted(6)));
  const std::string turned = npy(header_of("<i4", "(2, 3)", true), raw(counted(6)));
  const std::pair<std::string, std::string> kinds[] = {
      {"f.npy", turned},
      {"o.npy", npy(header_of("|O", "(1,)"), "pickle")},
      {"s.npy", npy("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (6,), }", raw(counted(6)))},
      {"c.npy", npy(header_of("<c8", "(3,)"), raw(counted(6)))},
      {"b.npy", npy(header_of(">i4", "(6,)"), raw(counted(6)))},
      {"u.npy", npy(header_of("<U3", "(2,)"), raw(counted(6)))},
      {"v.npy", npy(header_of("<i4", "(6,)"), raw(counted(6)), 4)},
      {"n.npy", npy(header_of("<i4", "(1, 1, 1, 1, 1, 1, 1, 1, 6)"), raw(counted(6)))},
      {"notes.txt", "a text"},
      {"t.npy", "bytes, as numpy.load() gives them"}};
  const where at{"s3://b/a.tar", 512, "k"};
  for (const auto& kind : kinds) {
    CAPTURE(kind.first);
    const std::string name = kind.first == "notes.txt" ? kind.first : kind.first.substr(0, 1);
    for (const bool first : {false, true}) {
      const std::pair<std::string, std::string> good{"x.npy", x};
      const bytes file = bytes::copy(zip({first ? kind : good, first ? good : kind}));
      const npz_arrays all = read_npz(file, {}, at);
      REQUIRE(all.arrays.size() == 1);
      CHECK(values_of<std::int32_t>(all.arrays[0].value) == counted(6));
      REQUIRE(all.unread.size() == 1);
      CHECK(all.unread[0].name == name);
      CHECK_FALSE(all.unread[0].reason.empty());
      CHECK(read_npz(file, {"x"}, at).unread.empty());
      const std::vector<std::string> names{name};
      CHECK_THROWS_WITH(read_npz(file, names, at), Contains("s3://b/a.tar at byte 512, k: ") &&
                                                       Contains(all.unread[0].reason) && Contains("of the member"));
      sample s("k", origin());
      s.fields.emplace_back("npz", file);
      const array_sample made = read_arrays(s);
      CHECK(made["x"].dims() == shape{6});
      CHECK_THROWS_WITH(made[name], Contains("was not read: " + all.unread[0].reason));
      CHECK(read_arrays(s, {"x"})["x"].dims() == shape{6});
      CHECK_THROWS_WITH(read_arrays(s, names), Contains("was not read: " + all.unread[0].reason));
    }
    // Nothing but such: an error, as before.
    CHECK_THROWS_AS(read_npz(bytes::copy(zip({kind})), {}, at), decode_error);
    CHECK_THROWS_AS(parse_npz(bytes::copy(zip({kind, kind})), at), decode_error);
  }
  // What is damaged is damaged, beside whatever.
  for (const std::string& bad : {x.substr(0, x.size() - 1), x.substr(0, 40), npy("{'descr': '<i4'}", "")}) {
    CHECK_THROWS_AS(read_npz(bytes::copy(zip({{"x.npy", x}, {"y.npy", bad}}))), decode_error);
    CHECK(read_npz(bytes::copy(zip({{"x.npy", x}, {"y.npy", bad}})), {"x"}).arrays.size() == 1);
  }
  const bytes two = bytes::copy(zip({{"x.npy", x}, {"y.npy", x}}));
  CHECK(parse_npz(two, std::vector<std::string>{"y"}, at).at(0).name == "y");
  CHECK_THROWS_WITH(read_npz(two, {"y", "z"}, at), Contains("the .npz has no array \"z\" (it has: x, y)"));

  test::captured_stderr log(test::captured_stderr::into::pipe);
  for (int twice = 0; twice < 2; ++twice) {
    CHECK(parse_npz(bytes::copy(zip({{"x.npy", x}, {"once.npy", turned}})), at).size() == 1);
  }
  CHECK(log.text() ==
        "millrace: s3://b/a.tar at byte 512, k: the array once of a .npz is left out: the .npy is in Fortran's order: "
        "save numpy.ascontiguousarray() of it\n");
}

TEST_CASE("a stage reads the arrays that are named") {
  sample s("k", origin());
  const std::string x = npy(header_of("<i4", "(3,)"), raw(std::vector<std::int32_t>{7, 8, 9}));
  s.fields.emplace_back("x.npy", bytes::copy(x));
  s.fields.emplace_back("bad.npy", bytes::copy("no array"));
  s.fields.emplace_back("npz", bytes::copy(zip({{"y.npy", x}, {"f.npy", npy(header_of("<i4", "(3, 1)"), "")}})));
  testing::virtual_loop loop;
  cpu_pool cores(2);
  const auto run = [&](std::vector<std::string> names) {
    auto batches = from_range(std::vector<sample>{s, s}) | decode_arrays(std::move(names), {.on = cores}) | batch(2) |
                   to_device(host_device());
    return block_on(loop, collect(std::move(batches)));
  };
  const std::vector<device_batch> all = run({"y", "x"});
  REQUIRE(all.size() == 1);
  CHECK(all[0].field("x").values<std::int32_t>()[5] == 9);
  CHECK(all[0].field("y").values<std::int32_t>()[3] == 7);
  CHECK_THROWS_WITH(run({"x", "z"}), Contains("the sample has no array \"z\""));
  CHECK_THROWS_WITH(run({"f"}), Contains("(of the member f.npy)"));
}

TEST_CASE("NumPy's files that people reported") {
  const std::string folder = test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data: set MILLRACE_TEST_DATA");
  const array tabs = parse_npy(bytes::copy(test::read_file(folder + "/odd/tabs.npy")));
  CHECK(tabs.dims() == shape{3, 4});
  CHECK(tabs.values<float>()[11] == 11);
  const auto all = read_npz(bytes::copy(test::read_file(folder + "/odd/one_fortran_array.npz")));
  REQUIRE(all.arrays.size() == 1);
  CHECK(all.arrays[0].name == "x");
  CHECK(all.arrays[0].value.values<float>()[11] == 11);
  CHECK(all.unread.at(0).name == "f");
}

TEST_CASE("elements without a header are one dimension of them") {
  const array a = parse_raw(bytes::copy(raw(counted(6))), dtype::i32);
  CHECK(a.dims() == shape{6});
  CHECK(values_of<std::int32_t>(a) == counted(6));
  CHECK(array(a.memory(), dtype::u16, {3, 4}).dims() == shape{3, 4});
  CHECK_THROWS_WITH(parse_raw(bytes::copy("abc"), dtype::u16, where{"s", 1, "k"}),
                    "s at byte 1, k: 3 bytes are no whole number of elements of u16");
}

TEST_CASE("a .npz has its arrays under their names") {
  const std::string file = zip(
      {{"x.npy", npy(header_of("<i4", "(6,)"), raw(counted(6)))}, {"deep/y.npy", npy(header_of("|u1", "()"), "a")}});
  const std::vector<named_array> all = parse_npz(bytes::copy(file));
  REQUIRE(all.size() == 2);
  CHECK(all[0].name == "x");
  CHECK(values_of<std::int32_t>(all[0].value) == counted(6));
  CHECK(all[1].name == "deep/y");
  CHECK(all[1].value.type() == dtype::u8);
}

TEST_CASE("a .npz that is damaged, too large, or has something else in it, is refused") {
  const where at{"s3://b/a.tar", 512, "k"};
  const std::string x = npy(header_of("<i4", "(6,)"), raw(counted(6)));
  const auto refused = [&](const std::string& file, const std::string& why, std::uint64_t most = GiB) {
    CAPTURE(why);
    CHECK_THROWS_AS(parse_npz(bytes::copy(file), at, most), decode_error);
    CHECK_THROWS_WITH(parse_npz(bytes::copy(file), at, most),
                      Catch::Matchers::StartsWith("s3://b/a.tar at byte 512, k: ") && Contains(why));
  };
  refused("", "not a .npz");
  refused(x, "not a .npz");
  const std::string whole = zip({{"x.npy", x}, {"y.npy", x}});
  refused(whole.substr(0, 100), "the .npz cannot be unpacked");
  refused(whole.substr(0, whole.size() - 30), "the .npz cannot be unpacked");
  refused(zip({{"x.npy", x}, {"x.npy", x}}), "the .npz has two members x.npy");
  refused(zip({{"x.txt", x}}), "the member x.txt of the .npz is no .npy");
  refused(zip({{"x.npy", x.substr(0, 100)}}), "the .npy is cut short in its header (of the member x.npy)");
  const std::string zeros = npy(header_of("<i4", "(10000,)"), std::string(40000, '\0'));
  CHECK(parse_npz(bytes::copy(zip({{"x.npy", zeros}})), at, 41000).size() == 1);
  refused(zip({{"x.npy", zeros}}), "more than max_", 40000);
  refused(zip({{"x.npy", zeros}, {"y.npy", zeros}}), "more than max_output_bytes", 50000);
  std::string flipped = whole;
  flipped[60] ^= 0x10;
  refused(flipped, "the .npz cannot be unpacked");
}

TEST_CASE("whatever the header of a .npy is damaged to, it is read or refused, within its bytes") {
  rng random(3);
  const std::string whole = npy(header_of("<i4", "(2, 3)"), raw(counted(6)));
  const std::string letters = "(){}[]',:\"0123456789LTF<>|=iufb \n";
  int read = 0;
  for (int n = 0; n < 20000; ++n) {
    std::string hostile = whole;
    for (std::uint64_t k = 1 + random.below(4); k > 0; --k) {
      const std::size_t at = random.below(n % 4 == 0 ? hostile.size() : 75);
      hostile[at] = n % 3 == 0 ? static_cast<char>(random.next()) : letters[random.below(letters.size())];
    }
    if (n % 5 == 0) hostile.resize(random.below(hostile.size() + 1));
    try {
      const array a = parse_npy(bytes::copy(hostile));
      CHECK(a.dims().elements() * size_of(a.type()) == a.memory().size());
      ++read;
    } catch (const decode_error& e) {
      if (e.reason().empty()) FAIL("an error without a reason");
    }
  }
  CHECK(read > 100);
}

TEST_CASE("samples become batches of their arrays and labels; other fields stay") {
  std::vector<sample> samples;
  const auto from = std::make_shared<const shard>("s3://b/a.tar");
  for (int i = 0; i < 5; ++i) {
    sample s("k" + std::to_string(i), origin(from, 512 * static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(i)));
    const std::string x = npy(header_of("<i4", "(3,)"), raw(std::vector<std::int32_t>{i, i, i}));
    s.fields.emplace_back("x.npy", bytes::copy(x));
    s.fields.emplace_back("npz", bytes::copy(zip({{"y.npy", npy(header_of("<f2", "(2,)"), "abcd")}})));
    s.fields.emplace_back("cls", bytes::copy(std::to_string(10 * i)));
    s.fields.emplace_back("json", bytes::copy("{}"));
    samples.push_back(std::move(s));
  }
  testing::virtual_loop loop;
  cpu_pool cores(2);
  const host_device device;
  auto batches = from_range(samples) | decode_arrays({.on = cores}) | batch(3) | to_device(device);
  const std::vector<device_batch> all = block_on(loop, collect(std::move(batches)));
  REQUIRE(all.size() == 2);
  CHECK(all[0].field("x").dims() == shape{3, 3});
  CHECK(all[1].field("x").values<std::int32_t>()[4] == 4);
  CHECK(all[0].field("y").type() == dtype::f16);
  CHECK(std::memcmp(all[0].field("y").data(), "abcdabcdabcd", 12) == 0);
  CHECK(all[1].field("label").values<std::int64_t>()[1] == 40);
  CHECK(all[1].keys()[1] == "k4");
  CHECK(all[0].tags<origin>()[2].ordinal == 2);
  array_sample one = read_arrays(samples[0]);
  CHECK(one.of["json"].view() == "{}");
  CHECK(one.of.fields.size() == 1);
  CHECK(values_of<std::int32_t>(one["x"]) == std::vector<std::int32_t>{0, 0, 0});
  CHECK_THROWS_WITH(one["z"], Contains("s3://b/a.tar") && Contains("k0: the sample has no array \"z\" (it has: x, y)"));
  samples[0].fields.emplace_back("y.npy", bytes::copy(npy(header_of("|u1", "()"), "a")));
  CHECK_THROWS_WITH(read_arrays(samples[0]), Contains("k0: the sample has two arrays \"y\""));
}

TEST_CASE("a sample without arrays is an error that says what it has") {
  sample s;
  s.key = "k7";
  s.fields.emplace_back("jpg", bytes::copy("x"));
  s.fields.emplace_back("cls", bytes::copy("1"));
  CHECK_THROWS_WITH(read_arrays(s), Contains("the sample has no arrays") && Contains("it has: jpg, cls"));
}

TEST_CASE("of a training, arrays that cannot be had are a row of zeros in their place") {
  std::vector<sample> samples;
  for (std::uint64_t i = 0; i < 3; ++i) {
    sample s("k" + std::to_string(i), origin());
    const std::string x = npy(header_of("<i4", "(1,)"), raw(std::vector<std::int32_t>{7}));
    s.fields.emplace_back("npy", bytes::copy(i == 0 ? "no array" : x));
    s.mark.known = s.mark.counted = true;
    s.mark.position = i;
    samples.push_back(std::move(s));
  }
  testing::virtual_loop loop;
  cpu_pool cores(2);
  const host_device device;
  const failure_policy bear{.then = on_failure::skip, .report = false};
  auto batches = from_range(samples) | decode_arrays({.on = cores, .failures = bear}) | batch(3) | to_device(device);
  const std::vector<device_batch> all = block_on(loop, collect(std::move(batches)));
  REQUIRE(all.size() == 1);
  const auto values = all[0].field("npy").values<std::int32_t>();
  CHECK(std::vector<std::int32_t>(values.begin(), values.end()) == std::vector<std::int32_t>{0, 7, 7});
  CHECK(all[0].weights()[0] == 0);
  CHECK(all[0].weights()[1] == 1);
}

TEST_CASE("what NumPy writes is what is read") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("millrace-arrays-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string script = std::string(MILLRACE_TEST_SOURCE_DIR) + "/tests/arrays/make_arrays.py";
  int status = 77;
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    const int result = std::system((std::string(python) + " '" + script + "' '" + folder.string() + "'").c_str());
    status = WIFEXITED(result) ? WEXITSTATUS(result) : -1;
    if (status == 127) status = 77;
    if (status != 77) break;
  }
  if (status == 77) MILLRACE_SKIP("NumPy is not installed (Debian: python3-numpy)");
  REQUIRE(status == 0);
  const auto read = [&](const char* name) { return parse_npy(contents(folder / (std::string(name) + ".npy"))); };
  const auto numbers = counted(24);
  const auto same = [&]<class T>(const char* name, T) {
    const array a = read(name);
    CHECK(a.type() == dtype_of<T>);
    CHECK(a.dims() == shape{2, 3, 4});
    CHECK(values_of<T>(a) == std::vector<T>(numbers.begin(), numbers.end()));
  };
  same("u1", std::uint8_t());
  same("i1", std::int8_t());
  same("u2", std::uint16_t());
  same("i2", std::int16_t());
  same("u4", std::uint32_t());
  same("i4", std::int32_t());
  same("u8", std::uint64_t());
  same("i8", std::int64_t());
  same("f4", float());
  same("f8", double());
  CHECK(read("b1").type() == dtype::boolean);
  CHECK(read("f2").type() == dtype::f16);
  for (const char* version : {"version1", "version2", "version3"}) {
    CHECK(read(version).dims() == shape{4, 6});
    CHECK(values_of<float>(read(version)) == std::vector<float>(numbers.begin(), numbers.end()));
  }
  CHECK(read("scalar").dims() == shape());
  CHECK(values_of<double>(read("scalar")) == std::vector<double>{2.5});
  CHECK(read("empty").dims() == shape{0, 7});
  CHECK(values_of<std::int32_t>(read("row")) == numbers);
  CHECK_THROWS_WITH(read("fortran"), Contains("Fortran"));
  CHECK_THROWS_WITH(read("big"), Contains("big-endian"));
  for (const char* name : {"complex", "text", "object"}) CHECK_THROWS_WITH(read(name), Contains("no tensor"));
  CHECK_THROWS_WITH(read("struct"), Contains("structures"));
  for (const char* name : {"plain.npz", "packed.npz"}) {
    const std::vector<named_array> all = parse_npz(contents(folder / name));
    REQUIRE(all.size() >= 2);
    CHECK(all[0].name == "x");
    CHECK(values_of<float>(all[0].value) == std::vector<float>(numbers.begin(), numbers.end()));
    CHECK(all[1].name == "y");
    CHECK(values_of<std::int64_t>(all[1].value) == std::vector<std::int64_t>{7});
    if (all.size() == 3) CHECK(all[2].value.dims() == shape{100000});
  }
  std::filesystem::remove_all(folder);
}
