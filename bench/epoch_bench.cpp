// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// How long the training thread waits at the boundary of two epochs: from the moment it asks for the next epoch's run to
// its first item. The store is 60 ms away, there and back. With a runtime made for each run (mill::run), and with one
// that outlives them (rt.run).
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/epoch_bench.cpp -o epoch_bench -lcurl -luring -lssl -lcrypto -lexpat
//
//   epoch_bench [epochs, default 15]

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include <millrace/flow/pipe.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>

#include "bench/common/distant.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/served.hpp"

namespace {

namespace mill = millrace;

constexpr std::int64_t round_trip = 60'000'000;
constexpr int objects = 16;

void fill(mill::s3_server::background& server) {
  const mill::bytes content = mill::bytes::copy(bench::noise(256 * mill::KiB, 1));
  for (int i = 0; i < objects; ++i) server.put("b", "train/" + std::to_string(i), content);
}

template <class Run>
void epoch(const mill::s3::client& s3, bench::figure* waited, Run&& run) {
  const std::int64_t asked = mill::monotonic_ns();
  auto r = run(s3.list("s3://b/train/") | mill::fetch(s3));
  std::size_t n = 0;
  while (std::optional<mill::chunk> c = r.next()) {
    if (n++ == 0 && waited != nullptr) waited->add(static_cast<double>(mill::monotonic_ns() - asked) * 1e-6);
  }
  if (n != objects) std::abort();
}

void compare(bool tls, int epochs) {
  const bench::served server(tls, fill);
  const bench::distant way(server.port, round_trip);
  mill::s3::config_options options;
  const std::string endpoint = (tls ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(way.port);
  options.endpoint = endpoint;
  mill::s3::config c(options);
  c.ca_bundle = server.certificate_file;
  const mill::s3::client s3(std::move(c), mill::s3::credentials("test-key", "test-secret"));

  bench::figure alone, kept;
  mill::runtime rt;
  for (int i = -1; i < epochs; ++i) {  // the first epoch is no boundary
    epoch(s3, i < 0 ? nullptr : &alone, [](auto p) { return mill::run(std::move(p)); });
    epoch(s3, i < 0 ? nullptr : &kept, [&rt](auto p) { return rt.run(std::move(p)); });
  }
  const auto print = [](const char* what, const bench::figure& f) {
    std::printf("  %-34s %7.1f ms (%6.1f - %6.1f), %.1f round trips\n", what, f.median(), f.lowest(), f.highest(),
                f.median() / (static_cast<double>(round_trip) * 1e-6));
  };
  std::printf("%s, to the first item of the next epoch, a list and %d objects, median of %d\n",
              tls ? "TLS" : "plain HTTP", objects, epochs);
  print("a runtime for each run: mill::run", alone);
  print("a runtime for all: rt.run", kept);
}

}  // namespace

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 15;
  bench::print_machine();
  compare(false, epochs);
  compare(true, epochs);
}
