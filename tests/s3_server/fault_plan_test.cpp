// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/testing/s3_server/fault.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"

namespace {

using millrace::s3_server::fault;
using millrace::s3_server::fault_plan;
using millrace::s3_server::request;
using k = fault::kind;

request get(const std::string& key, const std::string& range = std::string()) {
  request r;
  r.method = "GET";
  r.bucket = "b";
  r.key = key;
  if (!range.empty()) r.fields.emplace_back("range", range);
  return r;
}

TEST_CASE("scripted faults fit by method, bucket, key, prefix and number") {
  fault_plan plan;
  plan.add({.method = "GET", .key = "a", .nth = 2}, fault::no_etag());
  plan.add({.bucket = "b", .key_prefix = "train/", .times = 1}, fault::stall_head());
  plan.add({.method = "PUT"}, fault::garbage_status());
  plan.add({.key = "z", .nth = 2, .times = 2}, fault::page());
  plan.add({.key = ""}, fault::no_content_length());
  CHECK(plan.decide(get("a")).what == k::none);
  CHECK(plan.decide(get("c")).what == k::none);
  CHECK(plan.decide(get("a")).what == k::no_etag);
  CHECK(plan.decide(get("a")).what == k::none);
  CHECK(plan.decide(get("train/1")).what == k::stall_head);
  CHECK(plan.decide(get("train/2")).what == k::none);
  CHECK(plan.decide(get("")).what == k::no_content_length);
  request put = get("a");
  put.method = "PUT";
  CHECK(plan.decide(put).what == k::garbage_status);
  CHECK(plan.decide(put).what == k::garbage_status);
  std::vector<k> z;
  for (int i = 0; i < 4; ++i) z.push_back(plan.decide(get("z")).what);
  CHECK(z == std::vector<k>{k::none, k::page, k::page, k::none});
  request elsewhere = get("train/9");
  elsewhere.bucket = "c";
  CHECK(plan.decide(elsewhere).what == k::none);
  CHECK(plan.injected() == 7);
  plan.clear();
  plan.add({.nth = 1}, fault::no_etag());
  plan.add({.nth = 2}, fault::page());
  CHECK(plan.decide(put).what == k::no_etag);
  CHECK(plan.decide(put).what == k::page);
  plan.clear();
  CHECK(plan.decide(put).what == k::none);
}

TEST_CASE("random faults depend on the question and its number, not on the order of questions") {
  const auto draw = [](std::uint64_t seed, bool backwards) {
    fault_plan plan;
    plan.randomize({.seed = seed, .probability = 0.5});
    std::map<std::string, std::vector<int>> drawn;
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < 50; ++i) {
        const std::string key = std::to_string(backwards ? 49 - i : i);
        const fault f = plan.decide(get(key, "bytes=0-1"));
        drawn[key].push_back(static_cast<int>(f.what) * 1000 + static_cast<int>(f.at % 1000));
      }
    }
    return drawn;
  };
  CHECK(draw(1, false) == draw(1, true));
  CHECK(draw(1, false) != draw(2, false));
}

TEST_CASE("random pauses are as long as allowed, and not longer") {
  const auto longest = [](millrace::duration limit) {
    fault_plan plan;
    plan.randomize({.probability = 1, .per_request = 0, .longest_pause = limit});
    millrace::duration most{0};
    for (int i = 0; i < 200; ++i) most = std::max(most, plan.decide(get("a")).pause);
    return most;
  };
  using std::chrono::milliseconds;
  CHECK(longest(milliseconds(10)) == milliseconds(10));
  CHECK(longest(milliseconds(40'000)) > milliseconds(30'000));
  CHECK(longest(milliseconds(40'000)) <= milliseconds(40'000));
  CHECK(longest(milliseconds(0)) == milliseconds(0));
}

TEST_CASE("random faults come at about the asked rate, of every kind, and let retries through") {
  fault_plan plan;
  plan.randomize({.seed = 3, .probability = 0.25, .per_request = 0});
  std::map<k, int> seen;
  for (int i = 0; i < 4000; ++i) ++seen[plan.decide(get(std::to_string(i))).what];
  CHECK(seen[k::none] > 2800);
  CHECK(seen[k::none] < 3200);
  CHECK(seen.size() >= 20);
  CHECK(plan.injected() == static_cast<std::uint64_t>(4000 - seen[k::none]));

  plan.randomize({.seed = 4, .probability = 1, .per_request = 0, .slow = true, .damage = true});
  seen.clear();
  for (int i = 0; i < 1000; ++i) ++seen[plan.decide(get(std::to_string(i))).what];
  for (k slow : {k::stall_head, k::stall_body, k::drip, k::flipped_bit}) CHECK(seen[slow] > 0);
  seen.clear();
  for (int i = 0; i < 1000; ++i) ++seen[plan.decide(get("", std::to_string(i))).what];
  CHECK(seen[k::flipped_bit] == 0);  // a listing has no checksum

  plan.randomize({.seed = 3, .probability = 1, .per_request = 2, .silent = false});
  for (int i = 0; i < 20; ++i) {
    const std::string key = std::to_string(i);
    CHECK(plan.decide(get(key)).what != k::none);
    const fault second = plan.decide(get(key));
    CHECK(second.what != k::none);
    CHECK(second.what != k::two_content_lengths);
    CHECK(second.what != k::page);
    CHECK(plan.decide(get(key)).what == k::none);
    CHECK(plan.decide(get(key, "bytes=1-")).what != k::none);
    CHECK(plan.decide(get(key, "bytes=0-99")).what != k::none);
    CHECK(plan.decide(get(key, "bytes=7-99")).what != k::none);
    CHECK(plan.decide(get(key, "bytes=80-99")).what == k::none);  // that is the rest of it
    CHECK(plan.decide(get(key, "bytes=100-199")).what != k::none);
  }
}

}  // namespace
