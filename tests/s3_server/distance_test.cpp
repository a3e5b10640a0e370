// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// options::away: answers are never earlier than the distance says. How much later is the machine's affair.

#include <millrace/testing/s3_server/background.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/s3_server/raw_client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"

namespace {

namespace s3_server = millrace::s3_server;
using millrace::test::raw_client;
using std::chrono::milliseconds;

s3_server::options far(const s3_server::distance& away) {
  s3_server::options o;
  o.anonymous = s3_server::anonymous_access::write;
  o.away = away;
  return o;
}

template <class F>
milliseconds time_of(F f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
}

TEST_CASE("a store some way off answers later, and a new connection later still") {
  s3_server::distance away;
  away.first_byte = milliseconds(20);
  away.connect = milliseconds(30);
  s3_server::background server(far(away));
  server.put("b", "k", std::string("12345"));
  raw_client client(server.port());
  const auto get = [&] { CHECK(client.ask("GET /b/k").body == "12345"); };
  CHECK(time_of(get) >= milliseconds(50));
  CHECK(time_of(get) >= milliseconds(20));
}

TEST_CASE("latencies that vary do so about their median, the same in every run") {
  s3_server::distance away;
  away.first_byte = milliseconds(1);
  away.spread = 0.5;
  const auto latencies = [&] {
    s3_server::detail::shared_state state(far(away));
    std::vector<double> drawn;
    for (int i = 0; i < 1000; ++i) {
      drawn.push_back(static_cast<double>(s3_server::detail::latency(state).count()) / 1e6);
    }
    return drawn;
  };
  std::vector<double> drawn = latencies();
  CHECK(drawn == latencies());
  std::sort(drawn.begin(), drawn.end());
  CHECK(drawn[500] == Approx(1).epsilon(0.1));
  CHECK(drawn[841] == Approx(1.65).epsilon(0.1));  // exp(0.5): one standard deviation
}

TEST_CASE("latencies may have the tail of an object store") {
  s3_server::distance away;
  away.first_byte = milliseconds(1);
  away.latency.emplace();
  s3_server::detail::shared_state state(far(away));
  std::vector<double> drawn;
  for (int i = 0; i < 20'000; ++i) {
    drawn.push_back(static_cast<double>(s3_server::detail::latency(state).count()) / 1e6);
  }
  std::sort(drawn.begin(), drawn.end());
  CHECK(drawn[10'000] == Approx(20).epsilon(0.1));
  CHECK(drawn[19'800] == Approx(200).epsilon(0.2));
}

TEST_CASE("bodies come at the rate of the connection, all together at that of the link") {
  s3_server::distance away;
  away.connection_rate = 10'000'000;
  const std::string object(1'000'000, 'x');
  {
    s3_server::background server(far(away));
    server.put("b", "k", object);
    raw_client client(server.port());
    CHECK(time_of([&] { CHECK(client.ask("GET /b/k").body == object); }) >= milliseconds(100));
  }
  away.link_rate = 12'000'000;
  s3_server::background server(far(away));
  server.put("b", "k", object);
  const auto both = [&] {
    std::thread other([&] { CHECK(raw_client(server.port()).ask("GET /b/k").body == object); });
    CHECK(raw_client(server.port()).ask("GET /b/k").body == object);
    other.join();
  };
  CHECK(time_of(both) >= milliseconds(166));
}

TEST_CASE("one request too many at a time is refused with SlowDown") {
  s3_server::distance away;
  away.first_byte = milliseconds(100);
  away.requests = 1;
  s3_server::background server(far(away));
  server.put("b", "k", std::string("12345"));
  raw_client first(server.port());
  raw_client second(server.port());
  first.send("GET /b/k HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  while (server.stats().in_flight.load() == 0) std::this_thread::yield();
  const auto refused = second.ask("GET /b/k");
  CHECK(refused.status == 503);
  CHECK(refused.body.find("<Code>SlowDown</Code>") != std::string::npos);
  CHECK(first.read().status == 200);
  CHECK(second.ask("GET /b/k").status == 200);
}

TEST_CASE("each prefix has a bucket of tokens, filled at the rate of requests that the store takes") {
  s3_server::distance away;
  away.reads_each_second = 50;
  away.writes_each_second = 10;
  away.burst = 0.1;
  s3_server::background server(far(away));
  for (const char* key : {"train/k", "train/l", "test/k"}) server.put("b", key, std::string("12345"));
  raw_client client(server.port());
  const auto taken = [&](const std::string& request) {
    int n = 0;
    for (int i = 0; i < 200; ++i) {
      const auto answer = client.ask(request);
      if (answer.status / 100 == 2) {
        ++n;
      } else {
        CHECK(answer.status == 503);
      }
    }
    return n;
  };
  const auto begin = std::chrono::steady_clock::now();
  int reads = taken("GET /b/train/k") + taken("GET /b/train/l");  // of one bucket
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CHECK(reads >= 5);
  CHECK(reads <= 6 + 50 * took.count());
  CHECK(taken("GET /b/test/k") >= 5);  // of another
  const auto writing = std::chrono::steady_clock::now();
  const int writes = taken("DELETE /b/train/none");
  const std::chrono::duration<double> writing_took = std::chrono::steady_clock::now() - writing;
  CHECK(writes >= 1);
  CHECK(writes <= 2 + 10 * writing_took.count());
}

TEST_CASE("a prefix that refuses for long is split") {
  s3_server::distance away;
  away.reads_each_second = 100;
  away.burst = 0.01;
  away.split_after = milliseconds(50);
  s3_server::background server(far(away));
  server.put("b", "train/k", std::string("12345"));
  raw_client client(server.port());
  const auto begin = std::chrono::steady_clock::now();
  int taken = 0;
  while (std::chrono::steady_clock::now() - begin < milliseconds(300)) {
    taken += client.ask("GET /b/train/k").status == 200 ? 1 : 0;
  }
  CHECK(taken > 60);  // 31 in one prefix
}

}  // namespace
