// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What run_stats say of the reads of a run: how many, how long, and what the limit is.

#include <millrace/loader/run_stats.hpp>

#include <cstddef>
#include <string>

#include <millrace/base/units.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/testing/s3_server/background.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

stage_stats of_fetch(const s3::client& s3, runtime& rt, const fetch_options& o, std::string& verdict) {
  auto r = rt.run(s3.list("s3://b/") | fetch(s3, o), {.show = progress::off});
  while (r.next()) continue;
  const run_stats all = r.stats();
  verdict = all.verdict();
  for (const stage_stats& s : all.stages) {
    if (s.name == "fetch") return s;
  }
  FAIL("there is no fetch");
  return {};
}

TEST_CASE("a run's stats say how many reads of which length were chosen, and what the limit is", "[slow]") {
  s3_server::options away;
  away.away.first_byte = std::chrono::milliseconds(10);
  away.away.connection_rate = 50'000'000;
  s3_server::background server(away);
  for (int i = 0; i < 4; ++i) server.put("b", std::to_string(i), bytes::copy(std::string(24 * MiB, 'x')));
  s3::config_options co;
  const std::string endpoint = server.endpoint();
  co.endpoint = endpoint;
  const s3::client s3(s3::config(co), s3::credentials("test-key", "test-secret"));
  runtime rt;
  std::string verdict;
  const stage_stats few = of_fetch(s3, rt, {.requests = 3}, verdict);
  CHECK(few.reads == 3);
  CHECK(few.read_part >= 1 * MiB);
  CHECK(few.limit == read_limit::requests);
  CHECK_THAT(verdict, Contains("3 requests of up to ") && Contains("raise its .requests"));
  const stage_stats narrow = of_fetch(s3, rt, {.shards = 1, .window = 4 * MiB, .part = 1 * MiB}, verdict);
  CHECK(narrow.reads <= 4);
  CHECK(narrow.read_part == 1 * MiB);
  CHECK(narrow.limit == read_limit::memory);
  CHECK_THAT(verdict, Contains("its memory holds: raise its .window"));
}

}  // namespace
