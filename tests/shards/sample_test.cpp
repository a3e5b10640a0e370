// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/shards/sample.hpp>

#include <memory>
#include <string>

#include <millrace/data/shard.hpp>

#include "tests/support/catch.hpp"

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
