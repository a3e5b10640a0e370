// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A training without an index that is stopped in the middle of an epoch and goes on: how long its state takes to
// write down and how long it is, the time to the first batch after a resume against that of a cold start (each with
// a runtime of its own, a store 20 ms away), and how many bytes are read that were read before. Then what the order
// itself costs a sample. The median of seven counts.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/resume_bench.cpp -o resume_bench -lcurl -luring -lssl -lcrypto -lexpat
//
//   resume_bench [shards, default 16]

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/order/epoch_state.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/detail/training_plan.hpp>
#include <millrace/train/detail/window_order.hpp>
#include <millrace/train/detail/window_position.hpp>

#include "bench/common/distant.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/served.hpp"

namespace {

namespace mill = millrace;

constexpr int samples_of_shard = 256;
constexpr std::size_t batch_size = 64;
constexpr std::size_t window = 1024;

double ms_since(std::int64_t start) { return static_cast<double>(mill::monotonic_ns() - start) * 1e-6; }

std::string archive_of(std::uint64_t number) {
  mill::rng random(number);
  std::string text;
  mill::tar::writer out(text);
  const std::string noise = bench::noise(200 * mill::KiB, 1);
  for (int i = 0; i < samples_of_shard; ++i) {
    const std::string key = std::to_string(number) + "/" + std::to_string(i);
    out.add(key + ".jpg", std::string_view(noise).substr(0, 20 * mill::KiB + random.below(160 * mill::KiB)));
    out.add(key + ".cls", "1");
  }
  out.finish();
  return text;
}

/// Counts what is read.
class counting_storage final : public mill::forwarding_storage {
 public:
  explicit counting_storage(std::shared_ptr<const mill::storage> all) : forwarding_storage(std::move(all)) {}
  mill::task<part> read(mill::shard object, std::string etag, std::uint64_t offset, std::size_t length,
                        mill::slab_pool slabs) const override {
    part p = co_await inner()->read(std::move(object), std::move(etag), offset, length, std::move(slabs));
    bytes += p.data.size();
    ++requests;
    co_return std::move(p);
  }
  mutable std::atomic<std::uint64_t> bytes{0};
  mutable std::atomic<std::uint64_t> requests{0};
};

auto training(const std::vector<mill::shard>& list, const std::shared_ptr<const counting_storage>& store,
              const std::string& resume) {
  const mill::dataset data(store, list, {.window = window});
  return mill::epochs(data, {.seed = 7, .epochs = 1, .batch = batch_size}, resume) | mill::batch();
}

/// To the first batch.
double first_batch(const std::vector<mill::shard>& list, const std::shared_ptr<const counting_storage>& store,
                   const std::string& resume) {
  mill::runtime rt;
  const std::int64_t asked = mill::monotonic_ns();
  auto run = rt.run(training(list, store, resume));
  if (!run.next()) std::abort();
  return ms_since(asked);
}

mill::detail::training_plan asked(std::uint64_t window_samples) {
  const mill::dataset_options data;
  mill::epoch_state order;
  order.streamed = {data.shards, window_samples, data.window_bytes, {}, {}};
  return mill::detail::training_plan({.seed = 7, .batch = batch_size}, order, "");
}

void order_alone() {
  bench::figure ns;
  for (int turn = 0; turn < bench::rounds; ++turn) {
    std::vector<mill::shard> list;
    for (int i = 0; i < 1000; ++i) list.emplace_back("mem:" + std::to_string(i), 1000 * 1024);
    auto plan = std::make_shared<const mill::detail::window_plan>(std::move(list), asked(4096));
    mill::detail::window_order order(plan, 0);
    constexpr std::uint64_t count = 1'000'000;
    std::uint64_t begin = 0;
    const std::int64_t start = mill::monotonic_ns();
    while (order.count() < count) {
      if (order.pulls()) {
        order.take(begin, begin + 1024);
        begin += 1024;
      } else {
        order.draw();
      }
    }
    ns.add(ms_since(start) * 1e6 / static_cast<double>(count));
  }
  std::printf("the order alone, window of 4096: %.1f ns a sample (%.1f .. %.1f)\n", ns.median(), ns.lowest(),
              ns.highest());
  bench::goal_at_most("ns a sample", ns.median(), 50, "");
}

}  // namespace

int main(int argc, char** argv) {
  const int shards = argc > 1 ? std::atoi(argv[1]) : 16;
  bench::print_machine();
  const bench::served server(false, [shards](mill::s3_server::background& b) {
    for (int i = 0; i < shards; ++i) b.put("b", "train/" + std::to_string(i) + ".tar", archive_of(i));
  });
  const bench::distant way(server.port, 20'000'000);
  mill::s3::config_options config;
  const std::string endpoint = "http://127.0.0.1:" + std::to_string(way.port);
  config.endpoint = endpoint;
  const mill::s3::client s3(mill::s3::config(config), mill::s3::credentials("test-key", "test-secret"));
  const auto store = std::make_shared<const counting_storage>(mill::s3::as_storage(s3));
  std::vector<mill::shard> list;
  std::uint64_t all = 0;
  for (const mill::shard& each : mill::run(s3.list("s3://b/train/"))) {
    all += *each.size;
    list.push_back(each);
  }

  // Half an epoch, with a state after each batch.
  bench::figure state_ms;
  std::string state;
  std::uint64_t taken = 0;
  std::uint64_t in_window = 0;
  {
    mill::runtime rt;
    auto run = rt.run(training(list, store, {}));
    for (int n = 0; n < shards * samples_of_shard / static_cast<int>(batch_size) / 2; ++n) {
      const std::optional<std::vector<mill::sample>> b = run.next();
      if (!b) std::abort();
      for (const mill::sample& s : *b) taken += s.from.end - s.from.offset;
      const std::int64_t asked = mill::monotonic_ns();
      state = run.state();
      state_ms.add(ms_since(asked));
    }
    mill::detail::known_shards known;
    const auto plan = std::make_shared<const mill::detail::window_plan>(std::vector<mill::shard>(list), asked(window));
    const mill::detail::window_order at = mill::detail::order_at(mill::epoch_state::parse(state), plan, known);
    for (const auto& s : at.held()) in_window += s.end - s.begin;
  }
  std::printf("state(): %.3f ms (%.3f .. %.3f), %zu bytes, %.1f a sample of the window\n", state_ms.median(),
              state_ms.lowest(), state_ms.highest(), state.size(),
              static_cast<double>(state.size()) / static_cast<double>(window));
  bench::goal_at_most("state(), longest", state_ms.highest(), 1, "ms");
  bench::goal_at_most("state, bytes a sample of the window", static_cast<double>(state.size()) / window, 16, "");

  store->bytes = store->requests = 0;
  {
    mill::runtime rt;
    for (const std::vector<mill::sample>& b : rt.run(training(list, store, state))) {
      if (b.empty()) std::abort();
    }
  }
  const double again = static_cast<double>(store->bytes) - static_cast<double>(all - taken);
  std::printf("read after the resume: %.1f MB by %llu requests, for %.1f MB that were not delivered: %.1f MB more; "
              "the window holds %.1f MB\n",
              static_cast<double>(store->bytes) * 1e-6, static_cast<unsigned long long>(store->requests),
              static_cast<double>(all - taken) * 1e-6, again * 1e-6, static_cast<double>(in_window) * 1e-6);
  bench::goal_at_most("gaps, as a share of the window", again / static_cast<double>(in_window), 1);

  bench::figure cold, resumed;
  for (int turn = 0; turn < bench::rounds; ++turn) {
    cold.add(first_batch(list, store, {}));
    resumed.add(first_batch(list, store, state));
  }
  std::printf("first batch: cold %.1f ms (%.1f .. %.1f), after a resume %.1f ms (%.1f .. %.1f)\n", cold.median(),
              cold.lowest(), cold.highest(), resumed.median(), resumed.lowest(), resumed.highest());
  bench::goal_at_most("first batch after a resume against cold", bench::ratio(resumed, cold), 1.2);
  order_alone();
}
