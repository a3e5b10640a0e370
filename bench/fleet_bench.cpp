// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A fleet of 8, 64, 256 and 1,000 ranks on one prefix of one store, all on one loop of virtual time: each rank has the
// real fetch(), epochs() or lines() with its requests, gate and retries; the store is testing::store_model with S3's
// 5,500 GETs a second, a tail of latencies, connections of 85 MB/s, hosts of 8 ranks with 100 Gbit/s, 200 GB/s in all.
// How long the machine takes says nothing, and another run gives the same figures.
//
// A cell: 40 s are not counted, 20 s are steady; then the store takes half as many requests, and later twice as many:
// of the 50 s after each change the second ten are followed, the last 20 steady again. Then a tenth of the ranks are
// restarted; the rate of the others in the next ten seconds is compared with that before. Ranks that take all that
// comes have 768 MiB of memory if they are 64 or fewer: with the default's 128 their memory is the limit, not the
// store. epochs() and lines() do their real work on real bytes, at 3 MB/s a rank, of 1,000 at 1 MB/s.
//
// Steps: each rank computes for 0.25 s, then all wait until each has the bytes of its next step; two steps are ready at
// most. The store takes any number of requests then. Dollars are those of S3's GETs.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/fleet_bench.cpp -o fleet_bench -lcurl -luring -lssl -lcrypto -lexpat
// -larchive -lz -lzstd
//
//   fleet_bench [most ranks, default 1000]

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/index/sample_index_builder.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/sync/channel.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/store_model.hpp>
#include <millrace/testing/virtual_loop.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/epoch_plan.hpp>

#include "bench/common/measure.hpp"
#include "bench/common/on_threads.hpp"
#include "tests/support/fleet.hpp"

namespace {

namespace mill = millrace;
using mill::test::fleet_options;
using mill::test::fleet_stretch;

constexpr double dollars_of_request = 0.0004 / 1000;  // S3's GET
// Seconds.
constexpr double warm = 40, counted = 20, adapting = 10, followed = 10, restarted = 10;
constexpr double after_change = 2 * adapting + followed + counted;
constexpr double all_seconds = warm + counted + 2 * after_change + restarted;

// ---- what ranks read

/// Lines of 1.6 KB.
mill::bytes text() {
  std::string all(32 * mill::MiB, 'x');
  mill::rng random(1);
  for (std::size_t at = 1200 + random.below(800); at < all.size(); at += 1200 + random.below(800)) all[at] = '\n';
  return mill::bytes::copy(all);
}

/// Shards of one content, of 256 samples of 256 KiB.
class tars {
 public:
  static constexpr int shards = 4000;
  static constexpr std::size_t samples = 256;

  tars() {
    std::string content;
    mill::tar::writer out(content);
    const std::string image(256 * mill::KiB, 'x');
    for (std::size_t i = 0; i < samples; ++i) out.add(std::to_string(i) + ".jpg", image);
    out.finish();
    content_ = mill::bytes::copy(content);
    mill::testing::store_model store({.reads = {}});
    const std::vector<std::string> etags = put(store);
    mill::testing::virtual_loop loop;
    const mill::shard_index one =
        mill::block_on(loop, mill::index_shard(store.client(0), mill::shard(url(0)), name(0)));
    std::vector<mill::shard_index> all;
    for (int i = 0; i < shards; ++i) {
      mill::sample_index_builder made(*mill::tar_shards(), name(i));
      for (std::size_t s = 0; s < samples; ++s) {
        made.begin_sample(one.key_hash(s), one.offset(s));
        const mill::shard_index::field f = one.field_at(s, 0);
        made.add_field(std::string(f.extension), f.offset, f.size, f.crc);
      }
      all.push_back(made.finish_fields(content_.size(), etags[static_cast<std::size_t>(i)], true));
    }
    index = std::make_shared<const mill::index_set>(std::move(all));
  }
  /// Stores them; gives their ETags, which are the same in each store.
  std::vector<std::string> put(mill::testing::store_model& store) const {
    std::vector<std::string> etags;
    for (int i = 0; i < shards; ++i) etags.push_back(store.put(url(i), content_));
    return etags;
  }
  double gigabytes() const { return 1e-9 * static_cast<double>(shards) * static_cast<double>(content_.size()); }

  std::shared_ptr<const mill::index_set> index;

 private:
  static std::string name(int i) { return std::to_string(10000 + i) + ".tar"; }
  static std::string url(int i) { return "s3://b/train/" + name(i); }

  mill::bytes content_;
};

// ---- cells

/// What one fleet did.
struct cell {
  std::string pipeline;
  fleet_options options;
  struct phase {
    const char* name;
    double best;
    fleet_stretch got;
    double goodput() const { return got.sum() / best; }
  };
  std::vector<phase> phases;    ///< steady: with the limit, half of it, and the limit again
  double followed[2] = {1, 1};  ///< goodput soon after each of the changes
  int dead = 0;
  std::string why;
  double memory = 0;           ///< the most of a rank
  double beside_restarts = 1;  ///< the rate of the others, of that before
};

/// Runs a cell of ranks with the pipeline `make(rank, client)`.
template <class Make>
void run(cell& c, mill::testing::store_model& store, Make make) {
  const fleet_options& o = c.options;
  mill::test::fleet all(o, store, std::move(make));
  const auto stretch = [&](double skipped, double seconds) {
    all.run_for(skipped);
    all.mark();
    all.run_for(seconds);
    return all.stretch();
  };
  c.phases.push_back({"steady", all.best(o.limit), stretch(warm, counted)});
  for (const double share : {0.5, 1.0}) {
    store.set_reads(o.reads(share * o.limit));
    const double best = all.best(share * o.limit);
    c.followed[share < 1 ? 0 : 1] = stretch(adapting, followed).sum() / best;
    c.phases.push_back({share < 1 ? "half" : "twice", best, stretch(adapting, counted)});
  }

  const std::size_t some = std::max<std::size_t>(1, static_cast<std::size_t>(o.ranks) / 10);
  const fleet_stretch before = c.phases.back().got;
  all.mark();
  for (std::size_t r = 0; r < some; ++r) all.restart(r);
  all.run_for(restarted);
  const fleet_stretch after = all.stretch();
  const auto others = [&](const fleet_stretch& s) {
    double sum = 0;
    for (std::size_t r = some; r < s.rates.size(); ++r) sum += s.rates[r];
    return sum;
  };
  c.beside_restarts = others(after) / others(before);
  for (int r = 0; r < o.ranks; ++r) {
    c.memory = std::max(c.memory, static_cast<double>(store.peak_memory(static_cast<std::uint64_t>(r))));
    const std::string& error = all.ranks()[static_cast<std::size_t>(r)].error;
    if (error.empty()) continue;
    ++c.dead;
    c.why = error;
  }
}

void run_fetch(cell& c) {
  mill::testing::store_model store(c.options.store());
  const double most = (c.options.demand > 0 ? 2 * c.options.demand : 3e9) * all_seconds;
  run(c, store, mill::test::fleet_fetch(mill::test::fleet_objects(store, c.options, most), c.options.fetch));
}

void run_lines(cell& c, const mill::bytes& content) {
  mill::testing::store_model store(c.options.store());
  std::vector<mill::shard> objects;
  for (int i = 0; i < 100; ++i) {
    std::string url = "s3://b/text/" + std::to_string(i);
    std::string etag = store.put(url, content);
    objects.emplace_back(std::move(url), content.size(), std::move(etag));
  }
  run(c, store, [objects](std::size_t, std::shared_ptr<const mill::storage> client) {
    return (mill::from_range(objects) | mill::fetch(client) | mill::lines()).generator();
  });
}

mill::epochs_options training(int rank, int ranks) {
  mill::epochs_options o;
  o.seed = 7;
  o.epochs = mill::endless;
  o.batch = 16;
  o.rank.index = static_cast<std::uint32_t>(rank);
  o.rank.world_size = static_cast<std::uint32_t>(ranks);
  return o;
}
mill::dataset dataset_of(const tars& data, std::shared_ptr<const mill::storage> client) {
  return mill::dataset(std::move(client), data.index, {.prefix = "s3://b/train/"});
}

void run_epochs(cell& c, const tars& data) {
  mill::testing::store_model store(c.options.store());
  data.put(store);
  run(c, store, [&](std::size_t r, std::shared_ptr<const mill::storage> client) {
    const mill::dataset mine = dataset_of(data, std::move(client));
    return mill::epochs(mine, training(static_cast<int>(r), c.options.ranks)).generator();
  });
}

/// Beside the requests that came for a stretch of an epoch, those of its plan.
void print_epoch(const cell& c, const tars& data) {
  mill::testing::store_model store(c.options.store());
  data.put(store);
  const mill::epoch_plan plan =
      mill::epoch_plan::of_training(dataset_of(data, store.client(0)), training(0, c.options.ranks));
  const mill::testing::store_counts& n = c.phases[0].got.counts;
  const double counted_requests =
      static_cast<double>(plan.bytes) * static_cast<double>(n.requests) / static_cast<double>(n.bytes);
  std::printf("    %4d ranks %9.0f requests, %.2f dollars; as planned: %llu, %.2f\n", c.options.ranks, counted_requests,
              counted_requests * dollars_of_request, static_cast<unsigned long long>(plan.requests), plan.cost);
  const double beside = counted_requests / static_cast<double>(plan.requests);
  bench::goal_at_least("requests, of the plan's", std::min(beside, 1 / beside), 0.9);
}

void print(const cell& c) {
  const fleet_options& o = c.options;
  for (const cell::phase& p : c.phases) {
    const double gigabytes = 1e-9 * std::max(1.0, static_cast<double>(p.got.counts.bytes));
    const double requests = static_cast<double>(p.got.counts.requests) / gigabytes;
    std::printf("    %-9s %6s MB/s  burst %3.1f s  %-7s %8.3f %7.3f %8.3f %8.4f %9.0f %9.3f %8.0f\n",
                c.pipeline.c_str(), o.demand > 0 ? std::to_string(static_cast<int>(1e-6 * o.demand)).c_str() : "any",
                o.burst, p.name, p.goodput(), p.got.jain(), p.got.slowest() * static_cast<double>(o.ranks) / p.best,
                p.got.refused(), requests, 1000 * requests * dollars_of_request,
                c.memory / static_cast<double>(mill::MiB));
  }
  if (c.dead > 0) std::printf("      %d ranks are dead: %s\n", c.dead, c.why.c_str());
}

// ---- steps

struct steps {
  int ranks = 0;
  double megabytes = 0;  ///< of a rank's step
  bool hedges = false;
  double lost = 0;  ///< of the time
  double worst = 0;
  double requests = 0;  ///< for each GB used
};

constexpr double compute = 0.25;  // seconds of a step
constexpr double steps_seconds = 40;

mill::task<void> deliver(mill::async_generator<mill::chunk> chunks, mill::channel<int>& out, double step) {
  double got = 0;
  for (int n = 0; std::optional<mill::chunk> c = co_await chunks.next();) {
    for (got += static_cast<double>(c->data.size()); got >= step; got -= step) {
      const bool taken = co_await out.send(n++);
      if (!taken) co_return;
    }
  }
}
mill::task<void> train(std::vector<std::unique_ptr<mill::channel<int>>>& ranks, std::vector<double>& waits) {
  mill::executor& ex = co_await mill::this_executor();
  for (;;) {
    const mill::time_point asked = ex.now();
    for (auto& each : ranks) {
      const std::optional<int> step = co_await each->receive();
      if (!step) co_return;
    }
    waits.push_back(mill::test::fleet_seconds(asked, ex.now()));
    co_await mill::sleep_for(mill::test::fleet_time(compute));
  }
}

void run(steps& s) {
  fleet_options o;
  o.ranks = s.ranks;
  o.limit = 0;
  mill::testing::store_model store(o.store());
  const double step = 1e6 * s.megabytes;
  const std::vector<mill::shard> objects = mill::test::fleet_objects(store, o, step * steps_seconds / compute);
  std::vector<std::unique_ptr<mill::channel<int>>> ready;
  std::vector<double> waits;
  {
    mill::testing::virtual_loop loop;
    std::vector<mill::spawned<void>> running;
    for (int r = 0; r < s.ranks; ++r) {
      ready.push_back(std::make_unique<mill::channel<int>>(2));
      mill::retry_options retries;
      if (!s.hedges) retries.hedges = 0;
      const std::shared_ptr<const mill::storage> client = store.client(static_cast<std::uint64_t>(r), retries);
      running.emplace_back(loop,
                           deliver((mill::from_range(objects) | mill::fetch(client)).generator(), *ready.back(), step));
    }
    running.emplace_back(loop, train(ready, waits));
    loop.run_for(mill::test::fleet_time(steps_seconds));
    running.clear();
  }
  const std::size_t half = waits.size() / 2;
  double waited = 0;
  for (std::size_t i = half; i < waits.size(); ++i) {
    waited += waits[i];
    s.worst = std::max(s.worst, waits[i]);
  }
  s.lost = waited / (waited + compute * static_cast<double>(waits.size() - half));
  s.requests = static_cast<double>(store.counts().requests) /
               (1e-9 * step * static_cast<double>(waits.size()) * static_cast<double>(s.ranks));
}

// ---- goals

/// The least of `of(cell)`.
template <class F>
double least(const std::vector<const cell*>& cells, F of) {
  double all = 1e9;
  for (const cell* c : cells) all = std::min(all, of(*c));
  return all;
}
/// The least of `of(phase)` of all of their phases.
template <class F>
double least_steady(const std::vector<const cell*>& cells, F of) {
  return least(cells, [&](const cell& c) {
    double all = 1e9;
    for (const cell::phase& p : c.phases) all = std::min(all, of(p));
    return all;
  });
}

void goals(const std::vector<const cell*>& cells) {
  bench::goal_at_least("goodput, of the best possible",
                       least_steady(cells, [](const cell::phase& p) { return p.goodput(); }), 0.95);
  bench::goal_at_least("Jain's index", least_steady(cells, [](const cell::phase& p) { return p.got.jain(); }), 0.98);
  bench::goal_at_most("refused", -least_steady(cells, [](const cell::phase& p) { return -p.got.refused(); }), 0.02, "");
  bench::goal_at_least("goodput 10 s after the limit was halved",
                       least(cells, [](const cell& c) { return c.followed[0]; }), 0.95);
  bench::goal_at_least("goodput 10 s after the limit was doubled",
                       least(cells, [](const cell& c) { return c.followed[1]; }), 0.95);
  bench::goal_at_least("the others while a tenth restarts, of before",
                       least(cells, [](const cell& c) { return c.beside_restarts; }), 0.98);
  bench::goal_at_most("dead ranks", -least(cells, [](const cell& c) { return -static_cast<double>(c.dead); }), 0, "");
}

}  // namespace

int main(int argc, char** argv) {
  const int most = argc > 1 ? std::atoi(argv[1]) : 1000;
  bench::print_machine();
  tars data;
  const mill::bytes content = text();
  std::vector<cell> cells;
  std::vector<steps> stepped;
  for (const int ranks : {1000, 256, 64, 8}) {
    if (ranks > most) continue;
    const auto add = [&](const char* pipeline, double demand, double burst) {
      cell c;
      c.pipeline = pipeline;
      c.options.ranks = ranks;
      c.options.demand = demand;
      c.options.burst = burst;
      if (demand == 0 && ranks <= 64) c.options.fetch.window = 96 * mill::MiB;
      cells.push_back(std::move(c));
    };
    for (const double demand : {0.0, 30e6, 10e6, 3e6}) {
      for (const double burst : {0.1, 5.0}) add("fetch", demand, burst);
    }
    for (const char* pipeline : {"epochs", "lines"}) add(pipeline, ranks > 256 ? 1e6 : 3e6, 0.1);
    for (const double megabytes : {7.0, 25.0, 45.0}) {
      for (const bool hedges : {false, true}) stepped.push_back({ranks, megabytes, hedges});
    }
  }
  const int count = static_cast<int>(cells.size() + stepped.size());
  bench::on_threads(std::thread::hardware_concurrency(), count, [&] {
    return [&](int i) {
      const std::size_t n = static_cast<std::size_t>(i);
      if (n >= cells.size()) return run(stepped[n - cells.size()]);
      if (cells[n].pipeline == "fetch") return run_fetch(cells[n]);
      if (cells[n].pipeline == "lines") return run_lines(cells[n], content);
      run_epochs(cells[n], data);
    };
  });

  const auto group = [&](int ranks, const char* what, auto is_one) {
    std::vector<const cell*> these;
    for (const cell& c : cells) {
      if (c.options.ranks == ranks && is_one(c)) these.push_back(&c);
    }
    if (these.empty()) return;
    std::printf("%d ranks, %s\n%-48s%8s %7s %8s %8s %9s %9s %8s\n", ranks, what, "", "goodput", "Jain", "slowest",
                "refused", "req. a GB", "$ a TB", "MiB");
    for (const cell* c : these) print(*c);
    goals(these);
    std::printf("\n");
  };
  for (const int ranks : {8, 64, 256, 1000}) {
    group(ranks, "fetch() at a rate", [](const cell& c) { return c.pipeline == "fetch" && c.options.demand > 0; });
    group(ranks, "fetch() of all that comes", [](const cell& c) { return c.options.demand == 0; });
    group(ranks, "epochs() and lines()", [](const cell& c) { return c.pipeline != "fetch"; });
  }
  std::printf("An epoch of %.0f GB by epochs()\n", data.gigabytes());
  for (const cell& c : cells) {
    if (c.pipeline == "epochs") print_epoch(c, data);
  }
  std::printf("\nSteps of all ranks\n    %-31s %10s %12s %10s\n", "", "time lost", "longest wait", "req. a GB");
  for (const steps& s : stepped) {
    std::printf("    %4d ranks at %3.0f MB/s, %-8s %10.4f %10.2f s %10.1f\n", s.ranks, s.megabytes / compute,
                s.hedges ? "default" : "once", s.lost, s.worst, s.requests);
  }
  for (const steps& s : stepped) {
    if (s.ranks != most || !s.hedges) continue;
    const std::string what = "time lost at " + std::to_string(static_cast<int>(s.megabytes / compute)) +
                             " MB/s a rank, " + (s.hedges ? "default" : "once");
    bench::goal_at_most(what.c_str(), s.lost, s.megabytes < 40 ? 0.01 : 0.05, "");
  }
}
