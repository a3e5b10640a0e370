// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The time to the first byte of a GET on a warm connection: 4 KiB ranges, one after the other, from the embedded S3
// server in a process of its own on core 0; the client on core 1. Beside ours, the same requests by libcurl on a bare
// io_uring. Ours are signed, so the server checks them as well, and each goes through the retry policy and all checks.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/first_byte_bench.cpp -o first_byte_bench -lcurl -luring -lssl -lcrypto
//        -lexpat
//
//   first_byte_bench [requests per round, default 3000]

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>

#include "bench/common/curl_client.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/served.hpp"

namespace {

namespace mill = millrace;

constexpr std::size_t object_bytes = 4 * mill::MiB;
constexpr std::size_t range_bytes = 4 * mill::KiB;

void fill(mill::s3_server::background& server) { server.put("b", "o", bench::noise(object_bytes, 1)); }

std::vector<bench::range> ranges_of(std::size_t count) {
  std::vector<bench::range> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back({"/b/o", i * range_bytes % object_bytes, range_bytes});
  return all;
}

mill::task<void> get_all(const mill::s3::client& s3, const std::vector<bench::range>& all, bench::figure& each) {
  const mill::slab_pool slabs(range_bytes);
  for (const bench::range& r : all) {
    const std::int64_t asked = mill::monotonic_ns();
    const mill::s3::object_part got = co_await s3.get("s3:/" + r.path, r.offset, r.length, std::string(), slabs);
    if (got.data.size() != range_bytes) std::abort();
    each.add(static_cast<double>(mill::monotonic_ns() - asked) * 1e-3);
  }
}

void compare(bool tls, std::size_t count) {
  const bench::served server(tls, fill);
  bench::pin(1);
  const mill::s3::client s3 = server.client();
  const auto loop = mill::make_event_loop();
  bench::curl_client curl(server.endpoint, 1, server.certificate_file);
  const mill::slab_pool slabs(range_bytes);
  const std::vector<bench::range> all = ranges_of(count);
  bench::figure bare_us, ours_us, bare_cpu, ours_cpu, each;
  for (int round = -1; round < bench::rounds; ++round) {
    const bench::cost a = bench::measure([&] { return curl.fetch(all, slabs); });
    bench::figure one;
    const bench::cost b = bench::measure([&] {
      mill::block_on(*loop, get_all(s3, all, one));
      return count;
    });
    if (round < 0) continue;
    const double n = static_cast<double>(count);
    bare_us.add(a.seconds / n * 1e6);
    ours_us.add(b.seconds / n * 1e6);
    bare_cpu.add(a.cpu_seconds / n * 1e6);
    ours_cpu.add(b.cpu_seconds / n * 1e6);
    for (const double x : one.values()) each.add(x);
  }
  const auto print = [](const char* who, const bench::figure& wall, const bench::figure& cpu) {
    std::printf("%-26s %8.1f us (%6.1f - %6.1f)   CPU %7.1f us (%6.1f - %6.1f)\n", who, wall.median(), wall.lowest(),
                wall.highest(), cpu.median(), cpu.lowest(), cpu.highest());
  };
  std::printf("%s, one request at a time\n", tls ? "TLS" : "plain HTTP");
  print("bare libcurl + io_uring", bare_us, bare_cpu);
  print("s3::client::get", ours_us, ours_cpu);
  std::printf("  single requests of ours: p50 %.1f us, p99 %.1f us; ours beyond the bare one: %.1f us\n\n",
              each.median(), each.at(0.99), ours_us.median() - bare_us.median());
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = static_cast<std::size_t>(argc > 1 ? std::atoi(argv[1]) : 3000);
  bench::print_machine();
  compare(false, count);
  compare(true, count);
}
