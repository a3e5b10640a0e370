// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// How long the training thread waits at the boundary of two epochs: from the moment it asks for the next epoch's run to
// its first item. The store is 60 ms away, there and back. With a runtime made for each run (mill::run), and with one
// that outlives them (rt.run); with shards that are listed anew in every epoch, which is two round trips one after the
// other, and with shards that the program knows, from the first epoch's list. Then epochs(), which is one run: six
// epochs of 32 steps of 10 ms, the waits of next() on both sides of a boundary against those elsewhere.
//
// And what epochs() costs with default options, beside `list | fetch | untar | group_samples` over the same tars on
// loopback, one core each: CPU time a sample in the first pass and in the later ones, resident memory, and the time to
// the first 64 samples, from the beginning and after a resume. 8,000 samples of 103 KB, and a million of 1 KB. Each
// measurement is a process of its own. And rows of arrays in memory and in a mapped file, beside a plain loop that
// copies rows in a shuffled order: a million rows of 3 KB, each copied into a batch of 256.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/epoch_bench.cpp -o epoch_bench -lcurl -luring -lssl -lcrypto -lexpat
// -larchive -lz -lzstd
//
//   epoch_bench [epochs, default 15; 0: the costs alone; -1: those of arrays, -2: those of 8,000 samples,
//                -3: of these the first 64 alone]
//               [rounds of the costs, default 5]

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/decode/decode_arrays.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/order/permutation.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/tracks_advice.hpp>

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
  const mill::dataset data(s3, indexes, {.prefix = "s3://b/indexed/", .slice = 32});
  auto run = rt.run(mill::epochs(data, {.seed = 7, .epochs = 6, .batch = 32, .tracks = 32}) | mill::batch());
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

constexpr std::size_t passes = 4;
constexpr std::size_t first_samples = 64;
constexpr std::size_t shuffle_window = 960;

/// What one process measured.
class costs {
 public:
  double first_ms = 0;    // to the first samples
  double first_pass = 0;  // us of CPU a sample
  double later = 0;       // the mean of the other passes
  double resident = 0;    // MB, at most
};

/// Counts samples, and notes what each pass costs.
class pass_meter {
 public:
  explicit pass_meter(std::size_t samples) : samples_(samples) { meter_.start(); }
  void took() {
    if (++taken_ == first_samples) costs_.first_ms = static_cast<double>(mill::monotonic_ns() - begin_) * 1e-6;
    if (taken_ % samples_ != 0) return;
    const double us = meter_.stop(0).cpu_seconds * 1e6 / static_cast<double>(samples_);
    if (taken_ == samples_) {
      costs_.first_pass = us;
    } else {
      costs_.later += us / (passes - 1);
    }
    meter_.start();
  }
  costs result() {
    costs_.resident = bench::peak_rss() * 1e-6;
    return costs_;
  }

 private:
  const std::size_t samples_;
  const std::int64_t begin_ = mill::monotonic_ns();
  bench::meter meter_;
  std::size_t taken_ = 0;
  costs costs_;
};

/// What `measured` returns, in a process of its own.
template <class F>
costs apart(F measured) {
  int told[2];
  if (::pipe(told) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    const costs c = measured();
    if (::write(told[1], &c, sizeof c) != sizeof c) std::abort();
    ::_exit(0);
  }
  ::close(told[1]);
  costs c;
  if (::read(told[0], &c, sizeof c) != sizeof c) std::abort();
  ::close(told[0]);
  ::waitpid(child, nullptr, 0);
  return c;
}

template <class Run>
void take_all(Run run, pass_meter& meter, std::size_t most = SIZE_MAX) {
  for (std::size_t n = 0; n < most;) {
    const std::optional<mill::sample> s = run.next();
    if (!s) break;
    if (s->weight() == 0) continue;
    meter.took();
    ++n;
  }
}

/// `most`: samples that are taken of a run.
void beside_the_stream(std::size_t samples, std::size_t bytes, std::size_t shards, int rounds,
                       std::size_t most = SIZE_MAX) {
  const bench::served server(false, [&](mill::s3_server::background& b) {
    const std::string content = bench::noise(bytes, 1);
    for (std::size_t n = 0; n < shards; ++n) {
      std::string text;
      mill::tar::writer out(text);
      for (std::size_t i = 0; i < samples / shards; ++i) {
        out.add(std::to_string(n) + "-" + std::to_string(i) + ".bin", content);
      }
      out.finish();
      b.put("b", "t/" + std::to_string(n) + ".tar", text);
    }
  });
  bench::pin(1);
  const mill::s3::client s3 = server.client();
  std::vector<mill::shard_index> made;
  {
    const auto loop = mill::make_event_loop();
    for (std::size_t n = 0; n < shards; ++n) {
      const std::string name = std::to_string(n) + ".tar";
      made.push_back(
          mill::block_on(*loop, mill::index_shard(mill::s3::as_storage(s3), mill::shard("s3://b/t/" + name), name)));
    }
  }
  const auto indexes = std::make_shared<const mill::index_set>(std::move(made));
  const auto all = indexes->samples();
  const mill::run_options quiet{.show = mill::progress::off};
  const mill::epochs_options usual{.seed = 7, .epochs = passes, .batch = first_samples};
  const mill::dataset data(s3, indexes, {.prefix = "s3://b/t/"});
  const mill::dataset streamed(s3, "s3://b/t/", {.window = shuffle_window});

  const auto stream = [&](bool shuffled) {
    mill::runtime rt;
    pass_meter meter(all);
    for (std::size_t p = 0; p < (most == SIZE_MAX ? passes : 1); ++p) {
      auto in = s3.list("s3://b/t/") | mill::fetch(s3) | mill::untar() | mill::group_samples();
      if (shuffled) {
        take_all(rt.run(std::move(in) | mill::shuffle({.window = shuffle_window, .seed = 7}), quiet), meter, most);
      } else {
        take_all(rt.run(std::move(in), quiet), meter, most);
      }
    }
    return meter.result();
  };
  const auto indexed = [&](bool verify) {
    mill::runtime rt;
    mill::epochs_options o = usual;
    o.verify = verify;
    pass_meter meter(all);
    take_all(rt.run(mill::epochs(data, o), quiet), meter, most);
    return meter.result();
  };
  const auto resumed = [&](const std::string& state) {
    mill::runtime rt;
    pass_meter meter(all);
    take_all(rt.run(mill::epochs(data, usual, state), quiet), meter, first_samples);
    return meter.result();
  };
  const auto without_index = [&] {
    mill::runtime rt;
    pass_meter meter(all);
    take_all(rt.run(mill::epochs(streamed, usual), quiet), meter, most);
    return meter.result();
  };
  mill::epoch_state middle;
  middle.seed = usual.seed;
  middle.position = all / 2 / first_samples * first_samples;
  middle.slice = mill::default_slice(*indexes, 1);
  middle.tracks = mill::default_tracks(*indexes, middle.slice, 1);
  middle.index = indexes->digest();

  std::array<bench::figure, 6> first, first_pass, later, resident;
  const std::array<const char*, 6> names{"list | fetch | untar | group_samples", "the same | shuffle(960)", "epochs()",
                                         "epochs(), .verify = false", "epochs() without an index, window 960",
                                         "epochs() resumed"};
  for (int i = 0; i < rounds; ++i) {
    const std::array<costs, 6> c{apart([&] { return stream(false); }),   apart([&] { return stream(true); }),
                                 apart([&] { return indexed(true); }),   apart([&] { return indexed(false); }),
                                 apart([&] { return without_index(); }), apart([&] { return resumed(middle.text()); })};
    for (std::size_t k = 0; k < c.size(); ++k) {
      first[k].add(c[k].first_ms);
      first_pass[k].add(c[k].first_pass);
      later[k].add(c[k].later);
      resident[k].add(c[k].resident);
    }
  }
  std::printf("\n%llu samples of %zu bytes, %zu passes, medians of %d\n", static_cast<unsigned long long>(all), bytes,
              passes, rounds);
  for (std::size_t k = 0; k < names.size(); ++k) {
    std::printf("  %-38s first %zu %7.1f ms; ", names[k], first_samples, first[k].median());
    if (k + 1 == names.size() || most != SIZE_MAX) {
      std::puts("");
      break;
    }
    std::printf("us a sample: first pass %6.2f (%6.2f - %6.2f), later %6.2f (%6.2f - %6.2f); %4.0f MB\n",
                first_pass[k].median(), first_pass[k].lowest(), first_pass[k].highest(), later[k].median(),
                later[k].lowest(), later[k].highest(), resident[k].median());
  }
  if (most == SIZE_MAX) {
    bench::goal_at_most("epochs() / stream, first pass", bench::ratio(first_pass[2], first_pass[0]), 1.5);
    bench::goal_at_most("epochs() / stream, later passes", bench::ratio(later[2], later[0]), 1.2);
    bench::goal_at_most("epochs() / shuffled stream, later passes", bench::ratio(later[2], later[1]), 1.2);
    bench::goal_at_most("without an index / shuffled, first pass", bench::ratio(first_pass[4], first_pass[1]), 1.5);
    bench::goal_at_most("without an index / shuffled, later passes", bench::ratio(later[4], later[1]), 1.2);
    bench::goal_at_most("resident with an index, MiB", resident[2].median() * 1e6 / mill::MiB, 256, "");
  }
  bench::goal_at_most("first samples: epochs() / stream", bench::ratio(first[2], first[0]), 1.2);
  bench::goal_at_most("first samples: resumed / stream", bench::ratio(first[5], first[0]), 1.2);
  bench::goal_at_most("first samples: epochs() / shuffled stream", bench::ratio(first[2], first[1]), 1.2);
  bench::goal_at_most("first samples: resumed / shuffled stream", bench::ratio(first[5], first[1]), 1.2);
  bench::goal_at_most("first samples: without an index / shuffled", bench::ratio(first[4], first[1]), 1.2);
  bench::unpin();
}

void rows_of_arrays(std::size_t rows, int rounds) {
  constexpr std::size_t row = 32 * 32 * 3;
  constexpr std::size_t batch = 256;
  const auto n = static_cast<std::int64_t>(rows);
  bench::pin(1);
  std::vector<std::uint8_t> memory(rows * row);
  for (std::size_t i = 0; i < memory.size(); i += 64) memory[i] = static_cast<std::uint8_t>(i / row);
  const std::string path = "/tmp/millrace_epoch_bench." + std::to_string(::getpid());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(memory.data()), static_cast<std::streamsize>(memory.size()));
  const mill::tensor_view all(memory.data(), mill::dtype::u8, {n, 32, 32, 3});
  const mill::dataset in_memory(mill::arrays({{"x", mill::array(all, nullptr)}}));
  const mill::dataset mapped(mill::arrays({{"x", mill::map_raw(path, mill::dtype::u8, {n, 32, 32, 3})}}));
  std::vector<char> to(batch * row);
  const mill::run_options quiet{.show = mill::progress::off};
  const auto plain = [&] {
    pass_meter meter(rows);
    for (std::size_t p = 0; p < passes; ++p) {
      const mill::permutation order(rows, p);
      for (std::size_t i = 0; i < rows; ++i) {
        std::memcpy(to.data() + i % batch * row, memory.data() + order(i) * row, row);
        meter.took();
      }
    }
    return meter.result();
  };
  const auto epochs = [&](const mill::dataset& data, bool copies) {
    mill::runtime rt;
    pass_meter meter(rows);
    auto run = rt.run(mill::epochs(data, {.seed = 7, .epochs = passes, .batch = batch}) | mill::batch(), quiet);
    while (std::optional<std::vector<mill::sample>> b = run.next()) {
      for (const mill::sample& s : *b) {
        if (s.weight() == 0) continue;
        if (copies) {
          std::memcpy(to.data() + static_cast<std::size_t>(&s - b->data()) * row, s.fields[0].data.data(), row);
        }
        meter.took();
      }
    }
    return meter.result();
  };
  const auto batches = [&] {
    mill::runtime rt;
    pass_meter meter(rows);
    auto run = rt.run(mill::epochs(in_memory, {.seed = 7, .epochs = passes, .batch = batch}) | mill::decode_arrays() |
                          mill::batch(),
                      quiet);
    while (std::optional<std::vector<mill::array_sample>> b = run.next()) {
      for (const mill::array_sample& s : *b) {
        if (s.of.weight() == 0) continue;
        std::memcpy(to.data() + static_cast<std::size_t>(&s - b->data()) * row, s.arrays[0].value.data(), row);
        meter.took();
      }
    }
    return meter.result();
  };
  std::array<bench::figure, 5> first_pass, later;
  const std::array<const char*, 5> names{"a loop: permutation, memcpy", "epochs() | batch(), nothing copied",
                                         "epochs() | batch(), memcpy",
                                         "the same of a mapped file",
                                         "epochs() | decode_arrays() | batch()"};
  for (int k = 0; k < rounds; ++k) {
    const std::array<costs, 5> c{apart(plain), apart([&] { return epochs(in_memory, false); }),
                                 apart([&] { return epochs(in_memory, true); }),
                                 apart([&] { return epochs(mapped, true); }), apart(batches)};
    for (std::size_t i = 0; i < c.size(); ++i) {
      first_pass[i].add(1000 * c[i].first_pass);
      later[i].add(1000 * c[i].later);
    }
  }
  std::printf("\n%zu rows of %zu bytes, %zu passes, medians of %d\n", rows, row, passes, rounds);
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::printf("  %-38s ns of CPU a sample: first pass %6.0f (%6.0f - %6.0f), later %6.0f (%6.0f - %6.0f)\n", names[i],
                first_pass[i].median(), first_pass[i].lowest(), first_pass[i].highest(), later[i].median(),
                later[i].lowest(), later[i].highest());
  }
  bench::unpin();
  ::unlink(path.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 15;
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 5;
  bench::print_machine();
  if (epochs == -3) {
    beside_the_stream(8000, 103'000, 8, rounds, first_samples);
    return 0;
  }
  // First: children are made by fork(), before there is a thread.
  if (epochs != -2) rows_of_arrays(1'000'000, rounds);
  if (epochs == -1) return 0;
  beside_the_stream(8000, 103'000, 8, rounds);
  if (epochs == -2) return 0;
  beside_the_stream(1'000'000, 1000, 10, rounds);
  if (epochs == 0) return 0;
  compare(false, epochs);
  compare(true, epochs);
}
