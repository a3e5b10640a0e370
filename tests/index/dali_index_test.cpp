// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/index/dali_index.hpp>

#include <string>
#include <string_view>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

shard_index read(const std::string& text) { return read_dali_index(text, "x.tar", 100000, "x.idx"); }
void check_refused(const std::string& text, const std::string& message) {
  try {
    const shard_index index = read(text);
    FAIL("was read: " << text);
  } catch (const index_error& e) {
    CHECK_THAT(e.what(), Catch::Matchers::Contains(message));
  }
}

}  // namespace

TEST_CASE("an index of DALI is read, with names and without") {
  const shard_index named = read(
      "v1.2 2\n"
      "jpg 512 3 a.jpg cls 1536 1 a.cls\n"
      "JPG 2560 1000 dir/b.JPG\n");
  REQUIRE(named.samples() == 2);
  CHECK(named.name() == "x.tar");
  CHECK(named.object_size() == 100000);
  CHECK(named.has_keys());
  CHECK_FALSE(named.has_headers());
  CHECK_FALSE(named.has_checksums());
  CHECK(named.key_hash(0) == key_hash("a"));
  CHECK(named.key_hash(1) == key_hash("dir/b"));
  REQUIRE(named.field_count(0) == 2);
  CHECK(named.field_at(0, 1).extension == "cls");
  CHECK(named.field_at(0, 1).offset == 1536);
  CHECK(named.field_at(0, 1).size == 1);
  CHECK(named.field_at(1, 0).extension == "jpg");
  CHECK(named.end(1) == 3560);
  const shard_index nameless = read("v1.1 2\njpg 512 3 cls 1536 1\r\njpg 2560 1000");
  REQUIRE(nameless.samples() == 2);
  CHECK_FALSE(nameless.has_keys());
  CHECK(nameless.key_hash(0) == 0);
  CHECK(nameless.field_at(0, 1).extension == "cls");
  // They are files as any index.
  const std::string text = nameless.text();
  std::string_view rest = text;
  CHECK(shard_index::read(rest, "i") == nameless);
}

TEST_CASE("the names in an index of DALI are grouped as group_samples does it") {
  const shard_index index = read(
      "v1.2 3\n"
      "jpg 512 3 a.jpg cls 1536 1 a.cls\n"
      "readm 2560 10 readme\n"
      "json 3584 2 a.json\n");
  REQUIRE(index.samples() == 1);
  CHECK(index.field_count(0) == 3);
}

TEST_CASE("what is no index of DALI is refused with its place") {
  check_refused("", "x.idx at byte 0: not an index of DALI");
  check_refused("v1.0 1\njpg 512 3\n", "not an index of DALI");
  check_refused("v1.2\njpg 512 3 a.jpg\n", "the first line is not a version and a number");
  check_refused("v1.2 x\n", "the first line is not a version and a number");
  check_refused("v1.2 1\njpg 512 3\n", "at byte 7: the line of a sample is not a list");
  check_refused("v1.2 1\njpg 512 3 a b.jpg\n", "the line of a sample is not a list");
  check_refused("v1.1 2\njpg 512 3\n\n", "at byte 17: the line of a sample is not a list");
  check_refused("v1.1 1\njpg x 3\n", "an offset or a length is not a number");
  check_refused("v1.1 1\njpg 512 -3\n", "an offset or a length is not a number");
  check_refused("v1.1 1\njpg 513 3\n", "an offset is not that of a body");
  check_refused("v1.1 1\njpg 0 3\n", "an offset is not that of a body");
  check_refused("v1.1 1\njpg 512 3 cls 512 1\n", "a body begins before the one before it ends");
  check_refused("v1.1 1\njpg 512 99489\n", "a body reaches beyond the shard's end");
  check_refused("v1.1 2\njpg 512 3\n", "the index has 1 samples and says that it has 2");
  check_refused("v1.1 1\njpg 512 3 jpg 1536 1\n", "two members with the extension \"jpg\"");
  CHECK(read("v1.1 1\njpg 512 99488\n").samples() == 1);
  CHECK(read("v1.2 0\n").samples() == 0);
}
