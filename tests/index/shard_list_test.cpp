// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/index/shard_list.hpp>

#include <string>
#include <vector>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

void check_refused(const std::string& text, const std::string& message) {
  try {
    const std::vector<counted_shard> all = read_shard_list(text, "list.json");
    FAIL("was read: " << text);
  } catch (const index_error& e) {
    CHECK_THAT(e.what(), Catch::Matchers::Contains("list.json: ") && Catch::Matchers::Contains(message));
  }
}

}  // namespace

TEST_CASE("the shard index of wids is read") {
  const std::vector<counted_shard> all = read_shard_list(
      R"({"__kind__": "wids-shard-index-v1", "wids_version": 1, "name": "train", "shardlist": [
        {"url": "b.tar", "nsamples": 9, "filesize": 3563520, "dataset": "x"},
        {"nsamples": 3, "url": "http://h/a.tar", "extra": [{"url": "no"}, 1]}]})",
      "list.json");
  REQUIRE(all.size() == 2);
  CHECK(all[0].url == "b.tar");
  CHECK(all[0].samples == 9);
  CHECK(all[0].size == 3563520u);
  CHECK(all[1].url == "http://h/a.tar");
  CHECK(all[1].samples == 3);
  CHECK_FALSE(all[1].size.has_value());
}

TEST_CASE("an object of names and counts is read") {
  const std::vector<counted_shard> all = read_shard_list(R"({"b.tar": 1000, "dir/a.tar": 0})", "sizes.json");
  REQUIRE(all.size() == 2);
  CHECK(all[0].url == "b.tar");
  CHECK(all[0].samples == 1000);
  CHECK(all[1].url == "dir/a.tar");
  CHECK(all[1].samples == 0);
}

TEST_CASE("what is no list of shards is refused") {
  check_refused("", "no intact JSON");
  check_refused(R"({"a.tar": 1)", "no intact JSON");
  check_refused("{}", "the list has no shards");
  check_refused(R"({"shardlist": []})", "the list has no shards");
  check_refused(R"({"wids_version": 1})", "the list has no shards");
  check_refused(R"({"a.tar": "many"})", "\"a.tar\" is not a number");
  check_refused(R"({"a.tar": -1})", "\"a.tar\" is not a number");
  check_refused(R"({"a.tar": 1.5})", "\"a.tar\" is not a number");
  check_refused(R"({"wids_version": 2, "shardlist": [{"url": "a", "nsamples": 1}]})", "wids_version 2");
  check_refused(R"({"shardlist": [{"url": "a", "nsamples": 1}, {"url": "b"}]})",
                "shard 1 of the list, b, has no nsamples");
  check_refused(R"({"shardlist": [{"nsamples": 1}]})", "shard 0 of the list has no url");
  check_refused(R"({"shardlist": [{}, {"url": "a", "nsamples": 1}]})", "shard 0 of the list has no url");
  check_refused(R"({"shardlist": [{"url": "a", "nsamples": 1}, {"url": "a", "nsamples": 1}]})", "the list has a twice");
  check_refused(R"({"shardlist": {"x": 1}})", "\"shardlist\" is not a list");
  check_refused(R"({"shardlist": {"99999999999999999": 1}})", "\"shardlist\" is not a list");
  check_refused(R"({"shardlist": [{"url": "a", "nsamples": "x"}]})", "is not a number");
}
