// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What run_stats say of the reads of a run: how many, how long, and what the limit is.

#include <millrace/loader/run_stats.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
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

stage_stats of_fetch(const s3::client& s3, runtime& rt, const fetch_options& o, std::string& verdict,
                     const std::string& prefix = "s3://b/") {
  auto r = rt.run(s3.list(prefix) | fetch(s3, o), {.show = progress::off});
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
  // Slow enough that a busy machine is not the limit itself.
  s3_server::options away;
  away.away.first_byte = std::chrono::milliseconds(10);
  away.away.connection_rate = 5'000'000;
  s3_server::background server(away);
  for (int i = 0; i < 4; ++i) server.put("b", std::to_string(i), bytes::copy(std::string(6 * MiB, 'x')));
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
  CHECK_THAT(verdict, Contains("3 requests of up to ") && Contains("; try .requests = 64 (now 3)"));
  // Long enough that its end, where fewer parts are left than the window holds, is a small part of it.
  server.put("long", "0", bytes::copy(std::string(20 * MiB, 'x')));
  const fetch_options one{.shards = 1, .window = 4 * MiB, .part = 1 * MiB};
  // Where others use the cores, the loop or the server may be the limit: what the reads took shows that.
  stage_stats narrow;
  for (int n = 0; n < 5; ++n) {
    narrow = of_fetch(s3, rt, one, verdict, "s3://long/");
    if (narrow.limit == read_limit::memory || narrow.read_first_byte < 0.02) break;
  }
  CHECK(narrow.reads <= 4);
  CHECK(narrow.read_part == 1 * MiB);
  if (!MILLRACE_ASAN && !MILLRACE_TSAN) {  // these are the limit themselves
    CHECK(narrow.limit == read_limit::memory);
    CHECK_THAT(verdict, Contains("its memory holds; try .window = 8 * MiB (now 4 * MiB)"));
  }

  // A link that carries little more than one connection.
  s3_server::options narrow_link = away;
  narrow_link.away.connection_rate = 20'000'000;
  narrow_link.away.link_rate = 24'000'000;
  s3_server::background far(narrow_link);
  for (int i = 0; i < 4; ++i) far.put("b", std::to_string(i), bytes::copy(std::string(12 * MiB, 'x')));
  s3::config_options there;
  const std::string address = far.endpoint();
  there.endpoint = address;
  const s3::client far_s3(s3::config(there), s3::credentials("test-key", "test-secret"));
  read_limit limit = read_limit::none;
  for (int n = 0; n < 3 && limit != read_limit::link; ++n) limit = of_fetch(far_s3, rt, {}, verdict).limit;
  CHECK(limit == read_limit::link);
  CHECK_THAT(verdict, Contains(" on a connection) the link, or what the store sends in all, is the limit"));

  // What is known of the host is shown by later runs, and before them.
  CHECK(narrow.read_first_byte > 0.009);
  CHECK(narrow.read_rate > 2.5e6);
  std::vector<host_stats> known = rt.hosts();
  REQUIRE(known.size() == 2);
  if (known[0].name != endpoint) std::swap(known[0], known[1]);
  CHECK(known[0].name == endpoint);
  CHECK(known[0].measured);
  CHECK(known[0].in_flight == 0);
  CHECK(known[0].first_byte == Approx(narrow.read_first_byte).epsilon(0.5));
  CHECK(known[0].rate > 5e6);
  const std::string plan = rt.plan(s3.list("s3://b/"));
  CHECK_THAT(plan, Contains(endpoint + ": up to ") && Contains("; measured: "));
  auto again = rt.run(s3.list("s3://b/") | fetch(s3, {}), {.show = progress::off});
  REQUIRE(again.next());
  CHECK_THAT(again.stats().table(), Contains(endpoint + ": up to ") && Contains(" to the first byte, "));
  REQUIRE(again.stats().hosts.size() == 2);
  CHECK(again.stats().hosts[0].readers + again.stats().hosts[1].readers > 0);
}

TEST_CASE("what is known of a host is one line for people") {
  host_stats s;
  s.name = "https://store.example";
  s.requests = 6;
  s.part = 2 * MiB;
  s.in_flight = 1;
  CHECK(s.text() ==
        "https://store.example: up to 6 requests of up to 2.10 MB at a time, 1 in flight; not measured yet");
  s.measured = true;
  s.first_byte = 0.0153;
  s.connection_rate = 30e6;
  const std::string figures = "https://store.example: up to 6 requests of up to 2.10 MB at a time, 1 in flight; "
                              "measured: 15.3 ms to the first byte, 30.0 MB/s on a connection";
  CHECK(s.text() == figures);
  s.rate = 160e6;
  CHECK(s.text() == figures + ", 160 MB/s in all");
  s.limit = read_limit::link;
  CHECK(s.text() == figures + ", 160 MB/s in all; the limit: the link, or what the store sends in all");
  s.limit = read_limit::memory;
  CHECK(s.text() == figures + ", 160 MB/s in all; the limit: the memory of its readers");
  s.limit = read_limit::requests;
  CHECK(s.text() ==
        figures + ", 160 MB/s in all; the limit: the rate of a connection, with as many as .requests allows");
}

TEST_CASE("a run's table says how often addresses were passed over") {
  run_stats s;
  CHECK_THAT(s.table(), !Contains("passed over"));
  s.addresses_passed_over = 2;
  CHECK_THAT(s.table(), Contains("\naddresses of servers were passed over 2 times: the log says which and why\n"));
}

}  // namespace
