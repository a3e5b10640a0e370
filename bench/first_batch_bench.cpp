// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// How a run begins, on shards of 100 MB with samples of 100 KB, as WebDataset writes them, from the embedded S3 server
// in a process of its own on core 0; the client on core 1, every line in fresh processes:
//   - the first 32 samples with default options, from a client that is ready. Cold: the first run of the process, the
//     runtime made for it. Warm: the second run on a runtime. Beside it, where python3 has boto3, get_object() read by
//     tarfile as it comes: the process' first object, and its second one.
//   - CPU seconds a GB of the first GiB of a run, beside those of the next ones, start of the loop and first touch of
//     all memory included;
//   - the memory that is resident, for a consumer that always waits, and for one that never does;
//   - the same first samples, and the first half GiB, from a server that is 60 ms away.
// First touch differs by a factor of fifty with what the machine has: the time for 8 MiB is printed before and after.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/first_batch_bench.cpp -o first_batch_bench
//            -lcurl -luring -larchive -lssl -lcrypto -lexpat
//
//   first_batch_bench [rounds, default 9]

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/untar.hpp>

#include "bench/common/distant.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/served.hpp"
#include "bench/common/webdataset.hpp"

namespace {

namespace mill = millrace;

constexpr std::size_t first_samples = 32;
constexpr std::size_t stored_shards = 40;
constexpr double gib = 1024.0 * 1024 * 1024;
const std::string prefix = "s3://b/train/";

void fill(mill::s3_server::background& server) { bench::store_shards(server, stored_shards); }

mill::s3::client client_at(const std::string& endpoint) {
  mill::s3::config_options options;
  options.endpoint = endpoint;
  return mill::s3::client(mill::s3::config(options), mill::s3::credentials("test-key", "test-secret"));
}

/// Beside ours: prints the milliseconds, and those of CPU time, to the samples of two objects, one after the other.
constexpr const char* python = R"(
import sys, tarfile, time
import boto3
s3 = boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1", aws_access_key_id="test-key",
                  aws_secret_access_key="test-secret")
for key in ("train/0000.tar", "train/0001.tar"):
    begin, cpu = time.perf_counter(), time.process_time()
    body = s3.get_object(Bucket="b", Key=key)["Body"]
    labels = size = 0
    archive = tarfile.open(fileobj=body, mode="r|")
    for member in archive:
        size += len(archive.extractfile(member).read())
        labels += member.name.endswith(".cls")
        if labels == int(sys.argv[2]):
            break
    print((time.perf_counter() - begin) * 1e3, (time.process_time() - cpu) * 1e3)
    assert size == labels * 100001, size
    body.close()
)";

/// Milliseconds to the first samples; of those, CPU time of all threads.
struct beginning {
  double cold = 0, cold_cpu = 0, warm = 0, warm_cpu = 0;
  double rss = 0;  ///< bytes that became resident until the first batch was there
  bool there = true;
};

beginning boto3(const std::string& endpoint) {
  beginning ms;
  const std::string command = "python3 -c '" + std::string(python) + "' " + endpoint + " " +
                              std::to_string(first_samples) + " 2>&1";
  std::FILE* out = ::popen(command.c_str(), "r");
  ms.there = false;
  if (out == nullptr) return ms;
  ms.there = std::fscanf(out, "%lf %lf %lf %lf", &ms.cold, &ms.cold_cpu, &ms.warm, &ms.warm_cpu) == 4;
  char rest[256];
  while (std::fgets(rest, sizeof rest, out) != nullptr) {
  }
  ms.there = ::pclose(out) == 0 && ms.there;
  return ms;
}

mill::run_options quiet() {
  mill::run_options how;
  how.show = mill::progress::off;
  return how;
}

auto batches(const mill::s3::client& s3) {
  return s3.list(prefix) | mill::fetch(s3) | mill::untar() | mill::group_samples() | mill::batch(first_samples);
}

/// Milliseconds to the first batch of `run`, which is begun by the call.
template <class Run>
double first_batch(Run&& begin_run) {
  const std::int64_t asked = mill::monotonic_ns();
  auto run = begin_run();
  const auto batch = run.next();
  const double ms = static_cast<double>(mill::monotonic_ns() - asked) * 1e-6;
  if (!batch || batch->size() != first_samples) std::abort();
  return ms;
}

beginning ours(const mill::s3::client& s3) {
  return bench::in_child([&] {
    beginning b;
    const double before = bench::peak_rss();
    bench::meter m;
    m.start();
    b.cold = first_batch([&] { return mill::run(batches(s3), quiet()); });
    b.cold_cpu = m.stop(1).cpu_seconds * 1e3;
    b.rss = bench::peak_rss() - before;
    mill::runtime rt;
    first_batch([&] { return rt.run(batches(s3), quiet()); });
    m.start();
    b.warm = first_batch([&] { return rt.run(batches(s3), quiet()); });
    b.warm_cpu = m.stop(1).cpu_seconds * 1e3;
    return b;
  });
}

void print(const char* who, const bench::figure& f, const char* unit) {
  std::printf("  %-50s %9.2f %s (%.2f - %.2f)\n", who, f.median(), unit, f.lowest(), f.highest());
}

/// Milliseconds to touch 8 MiB that this process has not had before.
double touch() {
  return bench::in_child([] {
    constexpr std::size_t size = 64 * mill::MiB;
    void* const p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::madvise(p, size, MADV_HUGEPAGE);
    const std::int64_t before = mill::monotonic_ns();
    for (std::size_t i = 0; i < size; i += 4096) static_cast<volatile char*>(p)[i] = 1;
    return static_cast<double>(mill::monotonic_ns() - before) * 1e-6 / 8;
  });
}

/// The rounds of one contender.
struct beginnings {
  void add(const beginning& b) {
    cold.add(b.cold);
    cold_cpu.add(b.cold_cpu);
    warm.add(b.warm);
    warm_cpu.add(b.warm_cpu);
    rss.add(b.rss * 1e-6);
    there = there && b.there;
  }
  void print_all(const char* who) const {
    std::printf("  %s\n", who);
    print("  cold", cold, "ms");
    print("    CPU", cold_cpu, "ms");
    print("  warm", warm, "ms");
    print("    CPU", warm_cpu, "ms");
  }

  bench::figure cold, cold_cpu, warm, warm_cpu, rss;
  bool there = true;
};

void samples(const mill::s3::client& s3, const std::string& endpoint, int rounds) {
  beginnings mine, theirs;
  for (int i = 0; i < rounds; ++i) {
    mine.add(ours(s3));
    if (theirs.there) theirs.add(boto3(endpoint));
  }
  std::printf("the first %zu samples, medians of %d\n", first_samples, rounds);
  mine.print_all("a list and an object: list | fetch | untar | group_samples | batch");
  print("  resident memory that it took, cold", mine.rss, "MB");
  if (!theirs.there) {
    std::printf("  boto3: not measured, python3 here has no boto3\n");
    return;
  }
  theirs.print_all("an object: boto3 and tarfile");
  bench::goal_at_most("first samples, cold: ours / boto3", bench::ratio(mine.cold, theirs.cold), 1);
  bench::goal_at_most("first samples, warm: ours / boto3", bench::ratio(mine.warm, theirs.warm), 1);
}

struct gib_costs {
  double first = 0, steady = 0;  ///< CPU s/GB
  double first_rss = 0, rss = 0;  ///< bytes
};

template <class Chunks>
mill::task<void> read_gibs(Chunks chunks, gib_costs& costs) {
  bench::meter m;
  m.start();
  double total = 0;
  int at = 0;
  while (std::optional<mill::chunk> c = co_await chunks.next()) {
    total += static_cast<double>(c->data.size());
    c.reset();
    if (at == 0 && total >= gib) {
      costs.first = m.stop(total).cpu_per_gb();
      costs.first_rss = bench::peak_rss();
      at = 1;
      total = 0;
      m.start();
    } else if (at == 1 && total >= 2 * gib) {
      costs.steady = m.stop(total).cpu_per_gb();
      break;
    }
  }
}

void first_gib(const mill::s3::client& s3, int rounds) {
  bench::figure first, steady, first_rss, rss;
  for (int i = 0; i < rounds; ++i) {
    const gib_costs c = bench::in_child([&] {
      gib_costs costs;
      const double before = bench::peak_rss();
      const auto loop = mill::make_event_loop();
      mill::block_on(*loop, read_gibs(s3.list(prefix) | mill::fetch(s3), costs));
      costs.first_rss -= before;
      costs.rss = bench::peak_rss() - before;
      return costs;
    });
    first.add(c.first);
    steady.add(c.steady);
    first_rss.add(c.first_rss * 1e-6);
    rss.add(c.rss * 1e-6);
  }
  std::printf("\nlist | fetch with default options, 3 GiB, the consumer always waits, medians of %d\n", rounds);
  print("first GiB", first, "CPU s/GB");
  print("the next two", steady, "CPU s/GB");
  print("resident memory after the first GiB", first_rss, "MB");
  print("at the end", rss, "MB");
  bench::goal_at_most("CPU s/GB, first GiB / the next two", bench::ratio(first, steady), 1.15);
}

template <class Chunks>
mill::task<std::uint64_t> take_slowly(Chunks chunks) {
  std::uint64_t total = 0;
  while (total < 400 * mill::MiB) {
    std::optional<mill::chunk> c = co_await chunks.next();
    total += c->data.size();
    c.reset();
    co_await mill::sleep_for(std::chrono::milliseconds(50));
  }
  co_return total;
}

void slow_consumer(const mill::s3::client& s3) {
  const double rss = bench::in_child([&] {
    const double before = bench::peak_rss();
    const auto loop = mill::make_event_loop();
    if (mill::block_on(*loop, take_slowly(s3.list(prefix) | mill::fetch(s3))) == 0) std::abort();
    return bench::peak_rss() - before;
  });
  std::printf("\na consumer that takes a part every 50 ms, 400 MiB\n");
  bench::goal_at_most("resident memory at most, of a bound of 134 MB", rss * 1e-6, 40, "MB");
}

template <class Chunks>
mill::task<std::uint64_t> read(Chunks chunks, double bytes) {
  double total = 0;
  while (total < bytes) {
    std::optional<mill::chunk> c = co_await chunks.next();
    total += static_cast<double>(c->data.size());
  }
  co_return static_cast<std::uint64_t>(total);
}

void far_away(const bench::served& server, int rounds) {
  const bench::distant way(server.port, 60'000'000);
  const std::string endpoint = "http://127.0.0.1:" + std::to_string(way.port);
  const mill::s3::client s3 = client_at(endpoint);
  beginnings mine, theirs;
  bench::figure half;
  for (int i = 0; i < rounds; ++i) {
    mine.add(ours(s3));
    half.add(bench::in_child([&] {
      const auto loop = mill::make_event_loop();
      return bench::measure([&] {
               return mill::block_on(*loop, read(s3.list(prefix) | mill::fetch(s3), gib / 2));
             }).seconds *
             1e3;
    }));
    if (theirs.there) theirs.add(boto3(endpoint));
  }
  std::printf("\n60 ms away, medians of %d\n", rounds);
  mine.print_all("the first samples, a list and an object");
  if (theirs.there) theirs.print_all("an object: boto3 and tarfile");
  print("list | fetch, the first half GiB, cold", half, "ms");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  bench::print_machine();
  const bench::served server(false, fill);
  bench::pin(1);
  const mill::s3::client s3 = server.client();
  std::printf("first touch of 8 MiB: %.2f ms\n\n", touch());
  samples(s3, server.endpoint, rounds);
  first_gib(s3, rounds);
  slow_consumer(s3);
  far_away(server, std::min(rounds, 5));
  std::printf("\nfirst touch of 8 MiB: %.2f ms\n", touch());
}
