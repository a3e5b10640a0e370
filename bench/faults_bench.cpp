// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What a store that fails costs: fetch of objects of known size by 8 MiB parts, 8 at a time, from three embedded S3
// servers in processes of their own on core 0, of which one answers every request soundly, one fails 1 % of them and
// one 5 %: refusals (500, 502, 503, 504, 429, 400 RequestTimeout), connections that are reset or closed before the
// head, in it and in the body, broken chunks, garbage, delays of up to 10 ms. In turns; the client on core 1, with the
// pauses of its defaults: they are part of what is measured. Build: c++ -std=c++20 -O2 -Iinclude -I.
// bench/faults_bench.cpp -o faults_bench -lcurl -luring -lssl -lcrypto -lexpat
//
//   faults_bench [GiB per round, default 12: one pause of a second weighs much in a short round]

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/served.hpp"

namespace {

namespace mill = millrace;

constexpr int turns = 5;
constexpr std::size_t object_bytes = 128 * mill::MiB;
constexpr std::size_t objects = 4;
constexpr std::size_t part_bytes = 8 * mill::MiB;
constexpr std::size_t at_once = 8;
// A part that waits for its next attempt holds up what is after it in the order: the window has to last that long. At
// the speed of loopback 64 MiB last 13 ms.
constexpr mill::fetch_options ahead{.shards = at_once, .window = 4 * part_bytes, .part = part_bytes};

std::string key(std::size_t i) { return "o" + std::to_string(i); }

/// A server that fails this share of the requests, whatever they ask for and however often.
class failing {
 public:
  explicit failing(double share)
      : server_(false,
                [share](mill::s3_server::background& s) {
                  for (std::size_t i = 0; i < objects; ++i) s.put("b", key(i), bench::noise(object_bytes, i));
                  if (share > 0)
                    s.faults().randomize({.seed = 1, .probability = share, .per_request = 0, .silent = false});
                }),
        client_(server_.client()) {}

  mill::stream<mill::chunk> pipeline(std::size_t passes) const {
    std::vector<mill::shard> known;
    for (std::size_t i = 0; i < passes * objects; ++i) {
      known.emplace_back("s3://b/" + key(i % objects), std::uint64_t(object_bytes));
    }
    return mill::from_range(std::move(known)) | mill::fetch(client_, ahead);
  }

 private:
  const bench::served server_;
  const mill::s3::client client_;
};

mill::task<std::uint64_t> count(mill::stream<mill::chunk> chunks) {
  std::uint64_t total = 0;
  while (std::optional<mill::chunk> c = co_await chunks.next()) total += c->data.size();
  co_return total;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t gib = static_cast<std::size_t>(argc > 1 ? std::atoi(argv[1]) : 12);
  const std::size_t passes = gib * 1024 * mill::MiB / (objects * object_bytes);
  bench::print_machine();
  const failing none(0);
  const failing few(0.01);
  const failing many(0.05);
  bench::pin(1);
  const auto loop = mill::make_event_loop();
  const auto read = [&](const failing& server) {
    const std::uint64_t total = mill::block_on(*loop, count(server.pipeline(passes)));
    if (total != passes * objects * object_bytes) std::abort();
    return total;
  };
  bench::contender a("no faults", [&] { return read(none); });
  bench::contender b("1 % of the requests fail", [&] { return read(few); });
  bench::contender c("5 % of the requests fail", [&] { return read(many); });
  bench::take_turns({&a, &b, &c}, turns);
  std::printf("%s, %zu requests a round\n", loop->backend(), passes * objects * object_bytes / part_bytes);
  bench::print_table({&a, &b, &c});
  bench::goal_at_least("GB/s, 1 % / none", bench::ratio(b.gb_per_second, a.gb_per_second), 0.90);
  std::printf("  %-58s %9.3f x\n", "GB/s, 5 % / none", bench::ratio(c.gb_per_second, a.gb_per_second));
}
