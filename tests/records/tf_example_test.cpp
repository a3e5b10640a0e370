// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/records/tf_example.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/shards/sample.hpp>

#include "tests/records/tfrecord_files.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/tar/tools.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::failure_of;

namespace {

std::string hex(std::string_view text) {
  std::string out;
  char digits[3];
  for (const char c : text) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += digits;
  }
  return out;
}

/// As tfrecord_writer says it.
std::string said_by(const tf_feature& f) {
  std::string out = std::to_string(static_cast<int>(f.of)) + ':';
  const std::size_t begin = out.size();
  const auto add = [&](const std::string& value) {
    if (out.size() > begin) out += ',';
    out += value;
  };
  std::size_t n = 0;
  for (const bytes& s : f.strings) out += (n++ > 0 ? "," : "") + hex(s.view());
  for (const float x : f.floats) {
    char digits[16];
    std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(std::bit_cast<std::uint32_t>(x)));
    add(digits);
  }
  for (const std::int64_t x : f.int64s) add(std::to_string(x));
  return out + ';';
}

std::string said_by(const tf_example& e) {
  std::string out;
  for (const tf_feature& f : e.features()) out += hex(f.name) + ':' + said_by(f);
  for (const tf_feature_list& l : e.lists()) {
    out += '|' + hex(l.name) + '[';
    for (const tf_feature& step : l.steps) out += said_by(step);
    out += ']';
  }
  return out;
}

std::string content_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::vector<std::string> records_of(std::string_view file) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < file.size();) {
    const auto size = static_cast<std::size_t>(detail::read_le(file, at, 8));
    all.emplace_back(file.substr(at + 12, size));
    at += size + 16;
  }
  return all;
}

// A message by hand.
std::string part(int number, std::string_view data) {
  std::string head(1, static_cast<char>(number << 3 | 2));
  if (data.size() > 127) head += static_cast<char>(data.size() % 128 + 128);
  head += static_cast<char>(data.size() > 127 ? data.size() / 128 : data.size());
  return head + std::string(data);
}
std::string entry(std::string_view name, std::string_view feature) {
  return part(1, part(1, name) + part(2, feature));
}
std::string strings(const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& v : values) list += part(1, v);
  return part(1, list);
}
std::string int64s(std::string_view packed) { return part(3, part(1, packed)); }
std::string floats(std::string_view packed) { return part(2, part(1, packed)); }

sample sample_of(const std::string& record) {
  sample s("x#3", origin(std::make_shared<const shard>("mem:x"), 40, 3));
  s.fields.emplace_back("record", bytes::copy(record));
  return s;
}

std::string fields_of(const sample& s) {
  std::string out;
  for (const field& f : s.fields) out += f.extension + '=' + std::string(f.data.view()) + ' ';
  return out;
}

}  // namespace

TEST_CASE("tf.Example and tf.SequenceExample are read as an encoder of its own wrote them") {
  if (!test::have_tool("python3")) MILLRACE_SKIP("no python3");
  const test::temporary_folder folder;
  test::write_file(folder.path() + "/write.py", test::tfrecord_writer);
  REQUIRE(test::shell("cd '" + folder.path() + "' && python3 write.py 1 4 1000"));
  std::size_t count = 0;
  for (int i = 0; i < 4; ++i) {
    const std::string name = folder.path() + '/' + std::to_string(i);
    std::ifstream says(name + ".txt");
    std::string wanted;
    for (const std::string& record : records_of(content_of(name + ".tfrecord"))) {
      REQUIRE(std::getline(says, wanted));
      const bytes memory = bytes::copy(record);
      const tf_example read(memory);
      if (said_by(read) != wanted) FAIL(said_by(read) << "\nis not\n" << wanted);
      for (const tf_feature& f : read.features()) {
        CHECK(read.find(f.name) == &f);
        for (const bytes& s : f.strings) {  // no copies
          if (!s.empty() && s.memory() != memory.memory()) FAIL("copied");
        }
      }
      ++count;
    }
    CHECK_FALSE(std::getline(says, wanted));
  }
  CHECK(count == 4000);
}

TEST_CASE("features are found by name, and become fields of a sample") {
  const std::string label("\x07", 1);
  const std::string record =
      part(1, entry("image/encoded", strings({"JPEG"})) + entry("label", int64s(label)) +
                  entry("box", floats(std::string("\0\0\x80\x3f\0\0\0\x40", 8))) +
                  entry("names", strings({"a", "", "c"})) + entry("none", "") + entry("empty", strings({})) +
                  entry("n", int64s(std::string("\x05\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x80\x01", 13))));
  const tf_example e(bytes::copy(record), where{"mem:x", 40, "x#3"});
  CHECK(e["label"].int64s == std::vector<std::int64_t>{7});
  CHECK(e["box"].floats == std::vector<float>{1, 2});
  CHECK(e["n"].int64s == std::vector<std::int64_t>{5, -1, 128});
  CHECK(e["image/encoded"].strings.at(0).view() == "JPEG");
  CHECK(e["none"].of == tf_feature::kind::none);
  CHECK(e["empty"].of == tf_feature::kind::strings);
  CHECK(e.find("labels") == nullptr);
  CHECK(e.find_list("label") == nullptr);
  CHECK_THAT(failure_of([&] { static_cast<void>(e["labels"]); }),
             Contains("mem:x at byte 40, x#3: the record has no feature \"labels\" (it has: box, empty, image/encoded, "
                      "label, n, names, none)"));

  sample s = sample_of(record);
  s.fields.emplace_back("other", bytes::copy("kept"));
  CHECK(fields_of(tf_fields()(s)) == std::string("other=kept box=\0\0\x80\x3f\0\0\0\x40 image/encoded=JPEG label=7 "
                                                 "n=5 -1 128 names=a names#1= names#2=c ",
                                                 89));
  CHECK(fields_of(tf_fields({"label", "image/encoded"})(s)) == "other=kept image/encoded=JPEG label=7 ");
  const sample made = tf_fields()(s);
  CHECK(made.key == "x#3");
  CHECK(made["image/encoded"].memory() == s["record"].memory());
  CHECK_THAT(failure_of([&] { tf_fields({"label", "y"})(s); }),
             Contains("mem:x at byte 40, x#3: the record has no feature \"y\" (it has: box, empty, image/encoded, "));
  CHECK_THAT(failure_of([&] { tf_fields()(made); }), Contains("the sample has no field \"record\""));
  sample none;
  none.mark.padding = true;
  CHECK(tf_fields({"label"})(none).fields.empty());

  // A sequence: the context, and lists of two steps.
  const std::string sequence =
      part(1, entry("length", int64s("\x02"))) +
      part(2, entry("frames", part(1, strings({"f0"})) + part(1, strings({"f1", "f2"}))) +
                  entry("tokens", part(1, int64s("\x01\x02")) + part(1, int64s("\x03"))) +
                  entry("gains", part(1, floats("abcd")) + part(1, floats("efgh"))));
  CHECK(fields_of(tf_fields()(sample_of(sequence))) ==
        "length=2 frames=f0 frames#1=f1 frames#2=f2 gains=abcdefgh tokens=1 2\n3 ");
  CHECK(fields_of(tf_fields({"tokens"})(sample_of(sequence))) == "tokens=1 2\n3 ");
  const tf_example steps(bytes::copy(sequence));
  REQUIRE(steps.find_list("tokens") != nullptr);
  CHECK(steps.find_list("tokens")->steps.at(1).int64s == std::vector<std::int64_t>{3});
  CHECK(steps.find("length")->int64s == std::vector<std::int64_t>{2});
}

TEST_CASE("fields of tf.Examples are of one kind, and each name stands once") {
  const auto one = [&](const std::string& features) { return sample_of(part(1, features)); };
  const tf_fields fields({"x", "y"});
  const tf_fields copy = fields;
  CHECK(fields_of(fields(one(entry("x", int64s("\x07")) + entry("y", "")))) == "x=7 ");
  CHECK(fields_of(copy(one(entry("x", int64s("\x08")) + entry("y", floats("abcd"))))) == "x=8 y=abcd ");
  CHECK_THAT(failure_of([&] { copy(one(entry("x", floats("abcd")) + entry("y", ""))); }),
             Contains("mem:x at byte 40, x#3: feature \"x\" is a list of floats, and in x#3 of integers"));
  CHECK_THAT(failure_of([&] { fields(one(entry("x", "") + entry("y", strings({"a"})))); }), Contains("\"y\""));
  // With no names, samples of several kinds may be meant.
  const tf_fields any;
  CHECK(fields_of(any(one(entry("x", int64s("\x07"))))) == "x=7 ");
  CHECK(fields_of(any(one(entry("x", floats("abcd"))))) == "x=abcd ");
  const std::string steps = part(2, entry("l", part(1, floats("abcd")) + part(1, int64s("\x01"))));
  CHECK_THAT(failure_of([&] { any(sample_of(steps)); }),
             Contains("the steps of the list \"l\" are floats and integers"));

  const std::string two = entry("s", strings({"a", "b"}));
  CHECK(fields_of(any(one(two + entry("s#2", strings({"c"})) + entry("s#01", strings({"d"}))))) ==
        "s=a s#1=b s#01=d s#2=c ");
  CHECK_THAT(failure_of([&] { any(one(two + entry("s#1", strings({"c"})))); }),
             Contains("mem:x at byte 40, x#3: two fields would be called \"s#1\": the feature of it, and value 1 "
                      "of \"s\""));
  CHECK(fields_of(tf_fields({"s#1"})(one(two + entry("s#1", strings({"c"}))))) == "s#1=c ");
  CHECK_THAT(failure_of([&] { any(sample_of(part(1, two) + part(2, entry("s", part(1, strings({"c"})))))); }),
             Contains("a feature of the context and a list have this name"));
  sample s = one(two);
  s.fields.emplace_back("s", bytes::copy("there"));
  CHECK_THAT(failure_of([&] { any(s); }), Contains("the sample has one, and the record a feature of this name"));
}

TEST_CASE("what is no tf.Example is refused with the byte of the record") {
  const auto refusal = [](const std::string& record) {
    return failure_of([&] { tf_example(bytes::copy(record), where{"mem:x", 40, "x#3"}); });
  };
  CHECK(refusal("") == "no error");
  CHECK(refusal(part(1, "")) == "no error");
  CHECK_THAT(refusal("\x0a\x05" "abc"),
             Contains("mem:x at byte 40, x#3: ") &&
                 Contains("the record is no tf.Example: at its byte 0 a field has 5 bytes, and its message 3 more"));
  CHECK_THAT(refusal(part(1, "\x0a\x80")), Contains("at its byte 4 a number is cut"));
  CHECK_THAT(refusal("\x0b"), Contains("at its byte 0 a field has the wire type 3"));
  CHECK_THAT(refusal("\x0f"), Contains("at its byte 0 a field has the wire type 7"));
  CHECK_THAT(refusal("\x02"), Contains("at its byte 0 a field has the number 0"));
  CHECK_THAT(refusal(part(5, "") + "\x08" + std::string(11, '\xff')), Contains("at its byte 3 a number has more than"));
  CHECK_THAT(refusal(part(1, entry("x", floats("abcde")))), Contains("packed floats have a part of one"));
  CHECK_THAT(refusal(part(1, entry("x", int64s("\x80")))), Contains("a number is cut"));
  CHECK_THAT(refusal(std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11)),
             Contains("a field has 18446744073709551615 bytes"));
}

TEST_CASE("whatever the bytes of a record are, they are read or refused") {
  rng random(7);
  std::string seed = part(1, entry("image/encoded", strings({"JPEG", "x"})) + entry("label", int64s("\x07\x80\x01")) +
                                 entry("box", floats("abcdefgh")));
  seed += part(2, entry("frames", part(1, strings({"f0"})) + part(1, int64s("\x01"))));
  std::size_t refused = 0;
  std::size_t read = 0;
  for (int n = 0; n < 40'000; ++n) {
    std::string record = seed;
    for (std::uint64_t k = random.below(5); k > 0 && !record.empty(); --k) {
      const std::size_t at = random.below(record.size());
      switch (random.below(5)) {
        case 0: record[at] = static_cast<char>(random.below(256)); break;
        case 1: record[at] = static_cast<char>(record[at] ^ (1 << random.below(8))); break;
        case 2: record.erase(at, 1 + random.below(4)); break;
        case 3: record.insert(at, 1, static_cast<char>(random.below(256))); break;
        default: record.resize(at);
      }
    }
    // Memory of exactly its size: a sanitizer sees a byte beyond it.
    try {
      const bytes memory = bytes::copy(record);
      const tf_example e(memory);
      for (const tf_feature& f : e.features()) {
        for (const bytes& s : f.strings) {
          if (s.empty()) continue;
          if (s.data() < memory.data() || s.data() + s.size() > memory.data() + memory.size()) FAIL("out of bounds");
        }
      }
      ++read;
    } catch (const decode_error&) {
      ++refused;
    }
  }
  CHECK(read > 5000);
  CHECK(refused > 5000);
}
