// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// How long the training thread waits at the boundary of two epochs: from the moment it asks for the next epoch's run to
// its first item. The store is 60 ms away, there and back. With a runtime made for each run (mill::run), and with one
// that outlives them (rt.run); with shards that are listed anew in every epoch, which is two round trips one after the
// other, and with shards that the program knows, from the first epoch's list. Then epochs(), which is one run: six
// epochs of 32 steps of 10 ms, the waits of next() on both sides of a boundary against those elsewhere.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/epoch_bench.cpp -o epoch_bench -lcurl -luring -lssl -lcrypto -lexpat
//
//   epoch_bench [epochs, default 15]

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/feed/epochs.hpp>
#include <millrace/feed/index_shard.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/tar/writer.hpp>

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
  for (int n = 0; n < 4; ++n) {
    std::string text;
    mill::tar::writer out(text);
    for (int i = 0; i < 256; ++i) out.add(std::to_string(i) + ".bin", bench::noise(16 * mill::KiB, 1));
    out.finish();
    server.put("b", "indexed/" + std::to_string(n) + ".tar", text);
  }
}

/// The waits of next() with a step of 10 ms between.
void one_stream(const mill::s3::client& s3) {
  std::vector<mill::shard_index> made;
  {
    const auto loop = mill::make_event_loop();
    for (int n = 0; n < 4; ++n) {
      const std::string name = std::to_string(n) + ".tar";
      made.push_back(mill::block_on(
          *loop, mill::index_shard(mill::s3::as_storage(s3), mill::shard("s3://b/indexed/" + name), name)));
    }
  }
  const auto indexes = std::make_shared<const mill::index_set>(std::move(made));
  mill::runtime rt;
  auto run = rt.run(mill::epochs(indexes, s3, {.seed = 7, .epochs = 6, .batch = 32, .tracks = 32, .slice = 32,
                                                  .prefix = "s3://b/indexed/"}) |
                    mill::batch(32));
  bench::figure boundary, elsewhere;
  double first = 0;
  std::uint64_t batches = 0;
  for (;; ++batches) {
    const std::int64_t asked = mill::monotonic_ns();
    const std::optional<std::vector<mill::sample>> b = run.next();
    const double waited = static_cast<double>(mill::monotonic_ns() - asked) * 1e-6;
    if (!b) break;
    const std::uint64_t in_epoch = batches % 32;
    if (batches == 0) first = waited;
    if (batches >= 8) (in_epoch < 2 || in_epoch >= 30 ? boundary : elsewhere).add(waited);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (batches != 6 * 32) std::abort();
  std::printf("  epochs(): the first batch %.1f ms; waits of next() at boundaries %.2f ms (at most %.2f), "
              "elsewhere %.2f ms (at most %.2f)\n",
              first, boundary.median(), boundary.highest(), elsewhere.median(), elsewhere.highest());
  bench::goal_at_most("epochs(): longest wait at a boundary less the longest elsewhere, ms",
                      std::max(0.0, boundary.highest() - elsewhere.highest()), 10);
}

/// The pipeline is of chunks, made by `make()` when the epoch is asked for.
template <class Make, class Run>
void epoch(bench::figure* waited, Make&& make, Run&& run) {
  const std::int64_t asked = mill::monotonic_ns();
  auto r = run(make());
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

  const auto list = [&s3] { return s3.list("s3://b/train/") | mill::fetch(s3); };
  std::vector<mill::shard> shards;
  for (const mill::shard& each : mill::run(s3.list("s3://b/train/"))) shards.push_back(each);
  const auto known = [&s3, &shards] { return mill::from_range(shards) | mill::fetch(s3); };

  bench::figure alone, alone_known, kept, kept_known;
  mill::runtime rt;
  const auto by_itself = [](auto p) { return mill::run(std::move(p)); };
  const auto on_runtime = [&rt](auto p) { return rt.run(std::move(p)); };
  for (int i = -1; i < epochs; ++i) {  // the first epoch is no boundary
    const auto into = [i](bench::figure& f) { return i < 0 ? nullptr : &f; };
    epoch(into(alone), list, by_itself);
    epoch(into(kept), list, on_runtime);
    epoch(into(alone_known), known, by_itself);
    epoch(into(kept_known), known, on_runtime);
  }
  const auto print = [](const char* what, const bench::figure& f) {
    std::printf("  %-34s %7.1f ms (%6.1f - %6.1f), %.1f round trips\n", what, f.median(), f.lowest(), f.highest(),
                f.median() / (static_cast<double>(round_trip) * 1e-6));
  };
  std::printf("%s, to the first item of the next epoch of %d objects, median of %d\n",
              tls ? "TLS" : "plain HTTP", objects, epochs);
  print("listed anew, mill::run", alone);
  print("listed anew, rt.run", kept);
  print("known shards, mill::run", alone_known);
  print("known shards, rt.run", kept_known);
  bench::goal_at_most("known shards, rt.run: round trips",
                      kept_known.median() / (static_cast<double>(round_trip) * 1e-6), 1.2);
  one_stream(s3);
}

}  // namespace

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 15;
  bench::print_machine();
  compare(false, epochs);
  compare(true, epochs);
}
