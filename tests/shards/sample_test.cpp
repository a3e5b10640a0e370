// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/sample.hpp>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <millrace/data/shard.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/test_data.hpp"

using namespace millrace;

namespace {

sample labelled_image() {
  sample s("train/cat-1", origin(std::make_shared<const shard>("s3://b/7.tar"), 5120, 3));
  s.fields.emplace_back("jpg", bytes::copy("pixels"));
  s.fields.emplace_back("cls", bytes::copy("9"));
  return s;
}

std::string problem(const sample& s, const char* extension) {
  try {
    s[extension];
  } catch (const decode_error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a sample gives its fields by their extensions") {
  const sample s = labelled_image();
  CHECK(s["jpg"].view() == "pixels");
  CHECK(s["cls"].view() == "9");
  REQUIRE(s.find("cls") != nullptr);
  CHECK(s.find("cls")->view() == "9");
  CHECK(s.find("json") == nullptr);
  CHECK(byte_size(s) == 11 + 6 + 1);
}

TEST_CASE("a field that is not there is an error that tells the shard, the place, the key and what is there") {
  CHECK(problem(labelled_image(), "json") ==
        "s3://b/7.tar at byte 5120, train/cat-1: the sample has no field \"json\" (it has: jpg, cls)");
  CHECK(problem(labelled_image(), "JPG") ==
        "s3://b/7.tar at byte 5120, train/cat-1: the sample has no field \"JPG\" (it has: jpg, cls)");
}

namespace {

std::string kind_text(const sample_name& n) {
  switch (n.kind()) {
    case sample_name::disposition::sample:
      return "sample";
    case sample_name::disposition::skip_no_key:
      return "skip:no-key";
    default:
      return "skip:meta";
  }
}

std::string unescape(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      out += text[i] == 'n' ? '\n' : text[i];
    } else {
      out += text[i];
    }
  }
  return out;
}

/// WebDataset's expression, tried at every place where its parts may meet: slow and plainly right.
bool matches(const std::string& name, std::string& key, std::string& extension) {
  for (std::size_t prefix = name.size() + 1; prefix-- > 0;) {
    if (prefix != 0 && (prefix > name.size() || name[prefix - 1] != '/')) continue;
    if (name.substr(0, prefix).find('\n') != std::string::npos) continue;
    for (std::size_t dot = name.size(); dot-- > prefix + 1;) {
      if (name[dot] != '.') continue;
      if (name.substr(prefix, dot - prefix).find('.') != std::string::npos) continue;
      if (name.find('/', dot) != std::string::npos) continue;
      key = name.substr(0, dot);
      extension = name.substr(dot + 1);
      return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("sample names split as WebDataset splits them") {
  const sample_name n = sample_name::parse("train/000123.seg.PNG");
  REQUIRE(n.is_sample());
  CHECK(n.key() == "train/000123");
  CHECK(n.extension() == "seg.PNG");
  CHECK(n.lower_extension() == "seg.png");

  CHECK(kind_text(sample_name::parse("")) == "skip:no-key");
  CHECK(kind_text(sample_name::parse("__")) == "skip:no-key");
  CHECK(kind_text(sample_name::parse("____")) == "skip:meta");
  CHECK(kind_text(sample_name::parse("__a__\n")) == "skip:meta");
  CHECK(kind_text(sample_name::parse("__.__")) == "skip:meta");
  CHECK(kind_text(sample_name::parse("a.b/.c")) == "skip:no-key");
  CHECK(kind_text(sample_name::parse("d.1\n/y.jpg")) == "skip:no-key");
  CHECK(sample_name::parse("x\n/y.jpg").key() == "x\n/y");
  CHECK(sample_name::parse("a.b/c/.h").key() == "a.b/c/");
  CHECK(sample_name::parse("/.h").key() == "/");
}

TEST_CASE("sample names agree with the table of WebDataset's own answers") {
  const std::string folder = millrace::test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data folder");
  std::istringstream table(millrace::test::read_file(folder + "/tar/webdataset/NAMING.tsv"));
  std::string line;
  std::getline(table, line);
  int rows = 0;
  while (std::getline(table, line)) {
    std::vector<std::string> column;
    std::size_t at = 0;
    for (std::size_t tab; (tab = line.find('\t', at)) != std::string::npos; at = tab + 1) {
      column.push_back(line.substr(at, tab - at));
    }
    column.push_back(line.substr(at));
    REQUIRE(column.size() == 4);
    CAPTURE(line);
    const std::string name = unescape(column[0]);
    const sample_name n = sample_name::parse(name);
    CHECK(kind_text(n) == column[1]);
    if (n.is_sample()) {
      CHECK(n.key() == unescape(column[2]));
      CHECK(n.lower_extension() == (column[3] == "(empty)" ? std::string() : unescape(column[3])));
    }
    ++rows;
  }
  CHECK(rows == 43);
}

TEST_CASE("sample names agree with the expression on every short name") {
  // All names of up to six of these letters: every arrangement of dots, slashes and line feeds.
  const std::string letters = "a./\n";
  int samples = 0;
  for (std::size_t length = 0; length <= 6; ++length) {
    std::size_t count = 1;
    for (std::size_t i = 0; i < length; ++i) count *= letters.size();
    for (std::size_t code = 0; code < count; ++code) {
      std::string name;
      for (std::size_t i = 0, rest = code; i < length; ++i, rest /= letters.size())
        name += letters[rest % letters.size()];
      std::string key;
      std::string extension;
      const bool expected = matches(name, key, extension);
      const sample_name n = sample_name::parse(name);
      if (n.is_sample() != expected || n.key() != key || n.extension() != extension) {
        CAPTURE(name, key, extension, std::string(n.key()));
        FAIL("differs from the expression");
      }
      samples += expected;
    }
  }
  CHECK(samples > 500);
}
