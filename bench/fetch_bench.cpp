// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What fetch costs: objects of known size read by 8 MiB parts, 8 at a time, from the embedded S3 server in a process of
// its own on core 0; the client on core 1. Beside it, in turns, the same requests by a bare epoll loop that receives
// straight into slabs, and by libcurl on a bare io_uring that copies into slabs. Connections and slabs are warm for all
// of them. Our requests are signed and go through all checks.
// Whole objects by s3.read() into memory of the program are a row of their own, with the defaults of read().
// Then run() with two loops beside one. Where there are seven cores they read from four servers with a core each, as
// one server is about as busy as the loop that reads from it, and have the other cores. With fewer cores there is one
// server, and each loop thread is held to a fifth of a core, so that the loops do not compete with each other and the
// server: that wants root, or CAP_SYS_NICE.
// loops: what bounds them, where there are eleven cores and more: servers on neighbouring cores and on every
// second one (two neighbours may be one core's threads), with more reads at once, with four loops; how busy the servers
// are; and beside them one and two bare receivers, each with a server of its own.
//
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/fetch_bench.cpp -o fetch_bench -lcurl -luring -lssl -lcrypto -lexpat
//
//   fetch_bench [GiB per round, default 2, which is the least] [plain | tls | loops, default plain and tls]

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/storage.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/core_share.hpp"
#include "bench/common/curl_client.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/raw_client.hpp"
#include "bench/common/served.hpp"

namespace {

namespace mill = millrace;

constexpr std::size_t object_bytes = 128 * mill::MiB;
constexpr std::size_t objects = 4;
constexpr std::size_t part_bytes = 8 * mill::MiB;
constexpr std::size_t at_once = 8;

std::string key(std::size_t i) { return "o" + std::to_string(i); }

void fill(mill::s3_server::background& server) {
  for (std::size_t i = 0; i < objects; ++i) server.put("b", key(i), bench::noise(object_bytes, i));
}

std::vector<bench::range> ranges_of(std::size_t passes) {
  std::vector<bench::range> all;
  for (std::size_t i = 0; i < passes * objects; ++i) {
    bench::add_parts(all, "/b/" + key(i % objects), object_bytes, part_bytes);
  }
  return all;
}

template <class Store>
mill::stream<mill::chunk> pipeline(const Store& store, std::size_t passes, std::size_t reads = at_once) {
  std::vector<mill::shard> known;
  for (std::size_t i = 0; i < passes * objects; ++i) {
    known.emplace_back("s3://b/" + key(i % objects), std::uint64_t(object_bytes));
  }
  return mill::from_range(std::move(known)) |
         mill::fetch(store, {.shards = reads, .window = part_bytes, .part = part_bytes});
}

/// The steady state: from the moment when every slab has been used to the same state of the window near the end, so
/// that what is in flight at the two moments is alike. First touch of fresh memory varies too much to be counted in.
mill::task<void> watch(mill::stream<mill::chunk> chunks, std::size_t count, bench::cost& result) {
  constexpr std::size_t margin = 4 * at_once;
  bench::meter m;
  double total = 0;
  std::size_t n = 0;
  while (std::optional<mill::chunk> c = co_await chunks.next()) {
    ++n;
    if (n > margin && n <= count - margin) total += static_cast<double>(c->data.size());
    c.reset();
    if (n == margin) m.start();
    if (n == count - margin) result = m.stop(total);
  }
}

bench::cost fetch_with(mill::event_loop& loop, const mill::s3::client& s3, std::size_t passes) {
  bench::cost result;
  mill::block_on(loop, watch(pipeline(s3, passes), passes * objects * object_bytes / part_bytes, result));
  return result;
}

/// Whole objects, each into the same memory, by the defaults.
bench::cost whole_with(mill::event_loop& loop, const mill::s3::client& s3, std::vector<std::byte>& memory,
                       std::size_t passes) {
  bench::meter m;
  m.start();
  for (std::size_t i = 0; i < passes * objects; ++i) {
    const std::string url = "s3://b/" + key(i % objects);
    if (mill::block_on(loop, s3.read(url, std::span<std::byte>(memory))) != object_bytes) std::abort();
  }
  return m.stop(static_cast<double>(passes * objects * object_bytes));
}

/// The objects of several servers in turn.
class spread final : public mill::forwarding_storage {
 public:
  explicit spread(const std::vector<std::unique_ptr<bench::served>>& servers)
      : forwarding_storage(as_storage(servers.front()->client())) {
    for (const auto& server : servers) each_.push_back(as_storage(server->client()));
  }

 private:
  const storage& target(std::string_view url) const noexcept override {
    return *each_[static_cast<std::size_t>(url.back() - '0') % each_.size()];
  }

  std::vector<std::shared_ptr<const mill::storage>> each_;
};

using servers = std::vector<std::unique_ptr<bench::served>>;

/// run() with a number of loops.
struct loops_run {
  const servers& from;
  std::shared_ptr<const mill::storage> store;
  std::size_t passes;
  std::size_t reads;  ///< at once
  unsigned percent;   ///< of a core for each loop; 0: what it gets

  /// The steady state, and how busy a server's core was. Nothing where the kernel does not hold the loops to their
  /// share. Ends the program where not all came.
  bench::cost fetch(unsigned loops, bench::figure& served) const {
    const std::size_t margin = 4 * reads;
    const std::size_t count = passes * objects * object_bytes / part_bytes;
    mill::run_options how;
    how.show = mill::progress::off;
    mill::runtime_options made_of;
    made_of.loops = loops;
    const auto used = [this] {
      double seconds = 0;
      for (const auto& server : from) seconds += server->cpu_seconds();
      return seconds / static_cast<double>(from.size());
    };
    bench::meter m;
    bench::cost result;
    double before = 0;
    std::size_t n = 0;
    std::size_t total = 0;
    std::size_t came = 0;
    for (const mill::chunk& c : mill::run(pipeline(store, passes, reads), how, made_of)) {
      ++n;
      came += c.data.size();
      if (n > margin && n <= count - margin) total += c.data.size();
      if (n == margin / 2 && percent > 0 && bench::hold_loops(percent) != loops) return {};
      if (n == margin) {
        before = used();
        m.start();
      }
      if (n == count - margin) {
        result = m.stop(static_cast<double>(total));
        served.add((used() - before) / result.seconds);
      }
    }
    if (came != passes * objects * object_bytes) std::abort();
    return result;
  }
};

/// `threads` bare receivers, each with the first objects of a server of its own.
std::uint64_t receive(const servers& from, unsigned threads, std::size_t passes) {
  std::vector<std::thread> all;
  std::atomic<std::uint64_t> total{0};
  for (unsigned t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      bench::raw_client raw(from[t]->port, at_once);
      total += raw.fetch(ranges_of(passes), mill::slab_pool(part_bytes), [](const mill::bytes&) {});
    });
  }
  for (std::thread& t : all) t.join();
  return total;
}

/// Two loops beside one. Where there is no core for each of them, they are held to a fifth of one. Servers are `apart`
/// cores from each other. `whole`: with what may explain the figure.
void loop_threads(std::size_t passes, bool whole = false, unsigned apart = 1, std::size_t reads = at_once) {
  const bool enough =
      std::thread::hardware_concurrency() >= objects * apart + 3;  // two loops, and who takes the chunks
  const unsigned percent = enough ? 0 : 20;
  servers from;
  for (unsigned i = 0; i < (enough ? objects : 1); ++i) {
    from.push_back(std::make_unique<bench::served>(false, fill, i * apart));
  }
  bench::pin_from(enough ? objects * apart : 0);
  const loops_run all{from, std::make_shared<const spread>(from), passes, reads, percent};
  bench::figure busy[3];
  if (all.fetch(2, busy[1]).bytes == 0) {
    std::printf("\nloop threads: not measured: too few cores, and the kernel holds no thread to a share\n");
    return;
  }
  bench::contender one("run(), 1 loop", [&] { return all.fetch(1, busy[0]); });
  bench::contender two("run(), 2 loops", [&] { return all.fetch(2, busy[1]); });
  bench::contender four("run(), 4 loops", [&] { return all.fetch(4, busy[2]); });
  bench::contender bare("bare recv, 1 thread", [&] { return receive(from, 1, passes); });
  bench::contender pair("bare recv, 2 threads", [&] { return receive(from, 2, passes); });
  if (whole && enough) {
    bench::take_turns({&one, &two, &four, &bare, &pair}, 3, 0);
  } else {
    bench::take_turns({&one, &two}, bench::rounds, 0);
  }
  std::printf("\nloop threads, %zu server(s)%s\n", from.size(), enough ? "" : ", each held to a fifth of a core");
  bench::print_table({&one, &two});
  bench::goal_at_least("GB/s, 2 loops / 1 loop", bench::ratio(two.gb_per_second, one.gb_per_second), 1.8);
  if (!whole) return;
  std::printf("  servers %u core(s) apart, used to %.2f and %.2f; %zu reads at once\n", apart, busy[0].median(),
              busy[1].median(), reads);
  if (!enough) return;
  bench::print_table({&four, &bare, &pair});
  std::printf("  GB/s, 4 loops / 1 loop: %.2f, servers used to %.2f; bare receivers, 2 / 1: %.2f\n",
              bench::ratio(four.gb_per_second, one.gb_per_second), busy[2].median(),
              bench::ratio(pair.gb_per_second, bare.gb_per_second));
}

/// What a contender that read all of it returns; ends the program where it did not.
std::uint64_t all_of(std::size_t passes, std::uint64_t bytes) {
  if (bytes != passes * objects * object_bytes) std::abort();
  return bytes;
}

/// The goals beside libcurl, the same with and without TLS.
void compare(const bench::contender& ours, const bench::contender& libcurl) {
  bench::goal_at_least("GB/s, fetch / bare libcurl", bench::ratio(ours.gb_per_second, libcurl.gb_per_second), 0.97);
  bench::goal_at_most("CPU s/GB, fetch / bare libcurl", bench::ratio(ours.cpu_per_gb, libcurl.cpu_per_gb), 1.05);
}

void plain(std::size_t passes) {
  const bench::served server(false, fill);
  bench::pin(1);
  const mill::s3::client s3 = server.client();
  const std::vector<bench::range> all = ranges_of(passes);
  const mill::slab_pool slabs(part_bytes);
  bench::raw_client raw(server.port, at_once);
  bench::curl_client curl(server.endpoint, at_once);
  const auto loop = mill::make_event_loop();
  bench::contender a("(a) bare epoll, recv into slabs",
                     [&] { return all_of(passes, raw.fetch(all, slabs, [](const mill::bytes&) {})); });
  bench::contender b("(b) bare libcurl + io_uring", [&] { return all_of(passes, curl.fetch(all, slabs)); });
  bench::contender c("(c) fetch", [&] { return fetch_with(*loop, s3, passes); });
  std::vector<std::byte> memory(object_bytes);
  bench::contender d("(d) whole objects into memory", [&] { return whole_with(*loop, s3, memory, passes); });
  bench::take_turns({&a, &b, &c, &d});
  std::printf("plain HTTP, %s\n", loop->backend());
  bench::print_table({&a, &b, &c, &d});
  compare(c, b);
  bench::goal_at_most("CPU s/GB, whole objects / bare libcurl", bench::ratio(d.cpu_per_gb, b.cpu_per_gb), 1.05);
  bench::goal_at_most("CPU s/GB, whole objects / bare recv", bench::ratio(d.cpu_per_gb, a.cpu_per_gb), 1.5);
  bench::goal_at_least("GB/s, fetch / bare recv", bench::ratio(c.gb_per_second, a.gb_per_second), 0.90);
  bench::goal_at_most("minor faults per GB beyond those of bare recv",
                      c.faults_per_gb.median() - a.faults_per_gb.median(), 500, "");
}

void tls(std::size_t passes) {
  const bench::served server(true, fill);
  bench::pin(1);
  const mill::s3::client s3 = server.client();
  const std::vector<bench::range> all = ranges_of(passes);
  const mill::slab_pool slabs(part_bytes);
  bench::raw_tls_client raw(server.port, server.certificate_file);
  bench::curl_client curl(server.endpoint, at_once, server.certificate_file);
  const auto loop = mill::make_event_loop();
  bench::contender a("bare SSL_read, 1 connection", [&] { return all_of(passes, raw.fetch(all, slabs)); });
  bench::contender b("bare libcurl + io_uring", [&] { return all_of(passes, curl.fetch(all, slabs)); });
  bench::contender c("fetch", [&] { return fetch_with(*loop, s3, passes); });
  bench::take_turns({&a, &b, &c});
  std::printf("\nTLS (%s)\n", raw.cipher());
  bench::print_table({&a, &b, &c});
  compare(c, b);
  bench::goal_at_most("CPU s/GB, fetch / bare SSL_read", bench::ratio(c.cpu_per_gb, a.cpu_per_gb), 1.3);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t gib = static_cast<std::size_t>(std::max(2, argc > 1 ? std::atoi(argv[1]) : 2));
  const std::string_view which = argc > 2 ? argv[2] : "both";
  bench::print_machine();
  if (which == "loops") {
    loop_threads(2 * gib, true);
    if (std::thread::hardware_concurrency() >= 2 * objects + 3) {
      loop_threads(2 * gib, true, 2);
      loop_threads(2 * gib, true, 2, 4 * at_once);
    } else {
      std::printf("  skipped: servers on every second core want %zu cores\n", 2 * objects + 3);
    }
    return 0;
  }
  if (which != "tls") {
    plain(2 * gib);
    loop_threads(2 * gib);
  }
  if (which != "plain") tls(gib);
}
