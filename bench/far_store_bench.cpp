// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A store that is some milliseconds away and sends so much a second on each connection, read with default options: raw
// objects against what the link or 64 connections bring, small objects, samples by epochs() against the bare stages,
// the first chunk against one GET, and a listing against its pages one after the other. Each round is a new runtime,
// which knows nothing of the store.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/far_store_bench.cpp -o far_store_bench -lcurl -luring -lssl -lcrypto
// -lexpat -larchive -lz -lzstd
//
//   far_store_bench [rounds, default 5 [python]]
//
// `python`: an interpreter with awscrt, s3torchconnector, obstore and litdata: they read the same objects in the same
// rounds, on the same core (bench/peers/far_store.py, below the current folder); litdata the samples, from its own
// chunks.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/train/dataset.hpp>

#include "bench/common/measure.hpp"
#include "bench/common/served.hpp"

namespace {

namespace mill = millrace;

constexpr std::size_t raw_bytes = 256'000'000;
constexpr int raws = 10;
constexpr std::size_t small_bytes = 100'000;
constexpr int smalls = 3000;
constexpr int shards = 8;
constexpr int members = 1000;
constexpr int listed = 100'000;

/// Peers fill more than two thirds of the first link, so that nothing can be 1.5 times as fast: they are measured
/// beside the second one.
constexpr double link = 800e6;  // bytes in a second
constexpr double wide_link = 1600e6;

class place {
 public:
  const char* name;
  double milliseconds;
  double connection;  // bytes in a second
};

void fill(mill::s3_server::background& server) {
  const mill::bytes raw = mill::bytes::copy(std::string(raw_bytes, 'x'));
  for (int i = 0; i < raws; ++i) server.put("b", "raw/" + std::to_string(i), raw);
  const mill::bytes small = mill::bytes::copy(std::string(small_bytes, 'y'));
  for (int i = 0; i < smalls; ++i) server.put("b", "small/" + std::to_string(i), small);
  for (int n = 0; n < shards; ++n) {
    std::string text;
    mill::tar::writer out(text);
    for (int i = 0; i < members; ++i)
      out.add(std::to_string(n) + "-" + std::to_string(i) + ".bin", bench::noise(small_bytes, 1));
    out.finish();
    server.put("b", "tars/" + std::to_string(n) + ".tar", text);
  }
}

double seconds_since(std::int64_t begin) { return 1e-9 * static_cast<double>(mill::monotonic_ns() - begin); }

class result {
 public:
  double first = 0;         // seconds to the first item
  double first_second = 0;  // bytes in a second
  double later = 0;         // from then on
  double all = 0;           // bytes in a second, of everything
  double seconds = 0;
};

template <class Pipeline, class Size>
result read(Pipeline pipeline, Size size, std::uint64_t expected) {
  result r;
  mill::runtime rt;
  const std::int64_t begin = mill::monotonic_ns();
  auto run = rt.run(std::move(pipeline), {.show = mill::progress::off});
  double bytes = 0;
  double at_second = 0;
  double second = 0;
  std::uint64_t items = 0;
  while (auto item = run.next()) {
    const double now = seconds_since(begin);
    if (items++ == 0) r.first = now;
    bytes += size(*item);
    if (second == 0 && now >= 1) {
      second = now;
      at_second = bytes;
    }
  }
  r.seconds = seconds_since(begin);
  if (static_cast<std::uint64_t>(bytes) != expected) std::abort();
  r.all = bytes / r.seconds;
  r.first_second = second == 0 ? r.all : at_second / second;
  r.later = second == 0 ? r.all : (bytes - at_second) / (r.seconds - second);
  return r;
}

/// Bytes in a second of a peer that reads the same objects.
double peer(const char* python, const bench::served& server, const char* name, const char* prefix, int count,
            std::size_t size) {
  const std::string command = std::string(python) + " bench/peers/far_store.py " + server.endpoint + ' ' + name + ' ' +
                              prefix + ' ' + std::to_string(count) + ' ' + std::to_string(size);
  std::FILE* const out = ::popen(command.c_str(), "r");
  double seconds = 0, bytes = 0;
  if (out == nullptr || std::fscanf(out, "%lf %lf", &seconds, &bytes) != 2 || ::pclose(out) != 0) std::abort();
  return bytes / seconds;
}

double one_get(const mill::s3::client& s3) {
  const auto loop = mill::make_event_loop();
  const std::int64_t begin = mill::monotonic_ns();
  const auto part = mill::block_on(*loop, s3.get("s3://b/raw/0", 0, 256 * mill::KiB, "", mill::slab_pool()));
  if (part.data.size() != 256 * mill::KiB) std::abort();
  return seconds_since(begin);
}

mill::s3_server::distance distance_of(const place& at, double of_link) {
  mill::s3_server::distance away;
  away.first_byte = mill::duration(static_cast<std::int64_t>(at.milliseconds * 1e6));
  away.connect = away.first_byte;
  away.spread = 0.2;
  away.connection_rate = static_cast<std::uint64_t>(at.connection);
  away.link_rate = static_cast<std::uint64_t>(of_link);
  return away;
}

result read_raw(const mill::s3::client& s3) {
  std::vector<mill::shard> known;
  for (int n = 0; n < raws; ++n) known.emplace_back("s3://b/raw/" + std::to_string(n), raw_bytes);
  return read(
      mill::from_range(std::move(known)) | mill::fetch(s3),
      [](const mill::chunk& c) { return static_cast<double>(c.data.size()); }, raws * raw_bytes);
}

void print(const char* what, const bench::figure& f, double unit, const char* name) {
  std::printf("  %-44s %9.0f (%6.0f - %6.0f) %s\n", what, f.median() / unit, f.lowest() / unit, f.highest() / unit,
              name);
}

void measure(const place& at, int rounds, const char* python) {
  const bench::served server(false, fill, 0, distance_of(at, link));
  const mill::s3::client s3 = server.client();

  std::vector<mill::shard_index> made;
  {
    const auto loop = mill::make_event_loop();
    for (int n = 0; n < shards; ++n) {
      const std::string name = std::to_string(n) + ".tar";
      made.push_back(
          mill::block_on(*loop, mill::index_shard(mill::s3::as_storage(s3), mill::shard("s3://b/tars/" + name), name)));
    }
  }
  const auto indexes = std::make_shared<const mill::index_set>(std::move(made));

  const auto of_chunk = [](const mill::chunk& c) { return static_cast<double>(c.data.size()); };
  const auto of_sample = [](const mill::sample& s) { return static_cast<double>(s.fields[0].data.size()); };
  constexpr std::uint64_t sample_bytes = std::uint64_t(shards) * members * small_bytes;
  bench::figure later, early, all, objects, named, stages, epochs, chunk, get;
  bench::figure obstore, listed_obstore, litdata;  // peers
  for (int i = 0; i < rounds; ++i) {
    get.add(one_get(s3));
    const result raw = read_raw(s3);
    chunk.add(raw.first);
    early.add(raw.first_second);
    later.add(raw.later);
    all.add(raw.all);
    objects.add(read(s3.list("s3://b/small/") | mill::fetch(s3), of_chunk, smalls * small_bytes).all / small_bytes);
    const std::string names = "s3://b/small/{0.." + std::to_string(smalls - 1) + "}";
    named.add(read(mill::shards(names) | mill::fetch(s3), of_chunk, smalls * small_bytes).all / small_bytes);
    stages.add(
        read(s3.list("s3://b/tars/") | mill::fetch(s3) | mill::untar() | mill::group_samples(), of_sample, sample_bytes)
            .all);
    epochs.add(read(mill::epochs(mill::dataset(s3, indexes, {.prefix = "s3://b/tars/"}), {.seed = 7, .batch = 100}),
                    of_sample, sample_bytes)
                   .all);
    if (python == nullptr) continue;
    obstore.add(peer(python, server, "obstore", "small", smalls, small_bytes) / small_bytes);
    listed_obstore.add(peer(python, server, "obstore-list", "small", smalls, small_bytes) / small_bytes);
    if (i == 0) peer(python, server, "litdata", "litdata", shards * members, small_bytes);  // makes its chunks
    litdata.add(peer(python, server, "litdata", "litdata", shards * members, small_bytes));
  }
  const double bound = std::min(link, 64 * at.connection);
  std::printf("\n%s, a link of 800 MB/s, medians of %d\n", at.name, rounds);
  print("one GET of 256 KiB, cold", get, 1e-3, "ms");
  print("fetch: first chunk, cold", chunk, 1e-3, "ms");
  print("fetch: in the first second", early, 1e6, "MB/s");
  print("fetch: from then on", later, 1e6, "MB/s");
  print("fetch: all of it", all, 1e6, "MB/s");
  print("list | fetch, objects of 100 KB", objects, 1, "objects/s");
  print("shards | fetch, the same by their names", named, 1, "objects/s");
  print("list | fetch | untar | group_samples", stages, 1e6, "MB/s");
  print("epochs(), with an index", epochs, 1e6, "MB/s");
  if (python != nullptr) {
    print("obstore, 64 of them at once, listed before", listed_obstore, 1, "objects/s");
    print("obstore, 64 of them at once, by their names", obstore, 1, "objects/s");
    print("litdata, samples of 100 KB", litdata, 1e6, "MB/s");
    bench::goal_at_least("objects/s, list | fetch / obstore that lists", bench::ratio(objects, listed_obstore), 1);
    bench::goal_at_least("objects/s, shards | fetch / obstore by names", bench::ratio(named, obstore), 1);
    bench::goal_at_least("samples, epochs() / litdata", bench::ratio(epochs, litdata), 1.7);
  }
  bench::goal_at_least("fetch after a second / min(link, 64 connections)", later.median() / bound, 0.9);
  bench::goal_at_least("epochs() / list | fetch | untar | group_samples", bench::ratio(epochs, stages), 0.9);
  bench::goal_at_most("first chunk / one GET", bench::ratio(chunk, get), 1.2);
}

void measure_wide(const place& at, int rounds, const char* python) {
  const bench::served server(false, fill, 0, distance_of(at, wide_link));
  const mill::s3::client s3 = server.client();
  bench::figure early, later, all, crt, connector;
  for (int i = 0; i < rounds; ++i) {
    const result raw = read_raw(s3);
    early.add(raw.first_second);
    later.add(raw.later);
    all.add(raw.all);
    if (python == nullptr) continue;
    crt.add(peer(python, server, "awscrt", "raw", raws, raw_bytes));
    connector.add(peer(python, server, "s3torchconnector", "raw", raws, raw_bytes));
  }
  std::printf("\n%s, a link of 1600 MB/s, medians of %d\n", at.name, rounds);
  print("fetch: in the first second", early, 1e6, "MB/s");
  print("fetch: from then on", later, 1e6, "MB/s");
  print("fetch: all of it", all, 1e6, "MB/s");
  if (python == nullptr) return;
  print("awscrt, 4 objects at once", crt, 1e6, "MB/s");
  print("s3torchconnector, 4 threads", connector, 1e6, "MB/s");
  bench::goal_at_least("fetch / awscrt", bench::ratio(all, crt), 1.5);
  bench::goal_at_least("fetch / s3torchconnector", bench::ratio(all, connector), 1.5);
}

void measure_listing(int rounds) {
  constexpr double page = 0.03;
  mill::s3_server::distance away;
  away.first_byte = mill::duration(static_cast<std::int64_t>(page * 1e9));
  const auto keys = [](mill::s3_server::background& server) {
    for (int i = 0; i < listed; ++i) {
      char key[32];
      std::snprintf(key, sizeof key, "train/%06d.tar", i);
      server.put("b", key, std::string("x"));
    }
  };
  const bench::served server(false, keys, 0, away);
  const mill::s3::client s3 = server.client();
  bench::figure all;
  for (int i = 0; i < rounds; ++i) {
    all.add(read(
                s3.list("s3://b/train/"), [](const mill::shard&) { return 1.0; }, listed)
                .seconds);
  }
  std::printf("\n%d keys at %.0f ms a page, medians of %d\n", listed, 1e3 * page, rounds);
  std::printf("  %-44s %9.2f (%6.2f - %6.2f) s\n", "list", all.median(), all.lowest(), all.highest());
  bench::goal_at_most("list / its pages one after the other", all.median() / (page * listed / 1000), 0.5);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  const char* const python = argc > 2 ? argv[2] : nullptr;
  bench::print_machine();
  bench::pin(1);
  measure_listing(rounds);
  if (python == nullptr) std::printf("no peers: no interpreter was given\n");
  const place places[] = {{"20 ms away, 30 MB/s a connection", 20, 30e6},
                          {"15 ms away, 85 MB/s a connection", 15, 85e6}};
  for (const place& at : places) measure(at, rounds, python);
  for (const place& at : places) measure_wide(at, rounds, python);
}
