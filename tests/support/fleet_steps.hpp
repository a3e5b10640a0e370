// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/spawned.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/retry/retry_options.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/sync/channel.hpp>
#include <millrace/testing/store_model.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/support/fleet.hpp"

/// \file
/// A training of many ranks that read from the store of fleet.hpp: each step begins when all ranks have their bytes of
/// it, so that all wait for the slowest.

namespace millrace::test {

class steps_options {
 public:
  int ranks = 8;
  double rate = 28e6;  ///< bytes in a second that each rank takes while it does not wait
  double step = 0.25;  ///< seconds of a step, without waiting
  double seconds = 30;       ///< of which the first third counts for nothing
  std::size_t prefetch = 2;  ///< steps that a rank has ready
  double hedges = retry_options().hedges;
  fetch_options fetch = {};
};

class steps_result {
 public:
  std::size_t steps = 0;
  double lost = 0;   ///< share of the time in which the step waited for a rank
  double worst = 0;  ///< the longest of these waits, in seconds
  double extra = 0;  ///< requests for parts that had been requested, of all
};

/// Counts the parts that are read, by one request or several.
class counted_storage final : public forwarding_storage {
 public:
  counted_storage(std::shared_ptr<const storage> inner, std::uint64_t& parts)
      : forwarding_storage(std::move(inner)), parts_(parts) {}
  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    ++parts_;
    return inner()->read(std::move(object), std::move(etag), offset, length, std::move(slabs));
  }

 private:
  std::uint64_t& parts_;
};

/// What a rank reads, a token for each step.
inline task<void> read_steps(testing::store_model& model, std::vector<shard> objects, const steps_options& o,
                             std::uint64_t rank, std::uint64_t& parts, channel<int>& ready) {
  retry_options retries;
  retries.hedges = o.hedges;
  const auto store = std::make_shared<counted_storage>(model.client(rank, retries), parts);
  async_generator<chunk> chunks = (from_range(std::move(objects)) | fetch(store, o.fetch)).generator();
  double bytes = 0;
  while (auto c = co_await chunks.next()) {
    bytes += static_cast<double>(c->data.size());
    for (; bytes >= o.rate * o.step; bytes -= o.rate * o.step) {
      const bool sent = co_await ready.send(1);
      if (!sent) co_return;
    }
  }
}

inline task<void> train_steps(std::vector<std::unique_ptr<channel<int>>>& ranks, const steps_options& o,
                              std::size_t& steps, std::vector<double>& waits) {
  executor& ex = co_await this_executor();
  const time_point began = ex.now();
  for (;; ++steps) {
    const time_point before = ex.now();
    for (const std::unique_ptr<channel<int>>& each : ranks) {
      const std::optional<int> token = co_await each->receive();
      if (!token) co_return;
    }
    if (fleet_seconds(began, before) >= o.seconds / 3) waits.push_back(fleet_seconds(before, ex.now()));
    co_await sleep_for(fleet_time(o.step));
  }
}

inline steps_result run_steps(const steps_options& o) {
  fleet_options f;
  f.ranks = o.ranks;
  f.limit = 1e9;
  testing::store_model model(f.store());
  const std::vector<shard> objects = fleet_objects(model, f, 2 * o.rate * o.seconds);
  std::uint64_t parts = 0;
  steps_result result;
  std::vector<double> waits;
  std::vector<std::unique_ptr<channel<int>>> ready;
  testing::virtual_loop loop;
  std::vector<spawned<void>> running;
  for (int i = 0; i < o.ranks; ++i) {
    ready.push_back(std::make_unique<channel<int>>(o.prefetch));
    running.emplace_back(loop, read_steps(model, objects, o, static_cast<std::uint64_t>(i), parts, *ready.back()));
  }
  running.emplace_back(loop, train_steps(ready, o, result.steps, waits));
  loop.run_for(fleet_time(o.seconds));
  running.clear();

  double sum = 0;
  for (const double w : waits) {
    sum += w;
    result.worst = std::max(result.worst, w);
  }
  result.lost = sum / (sum + o.step * static_cast<double>(std::max<std::size_t>(waits.size(), 1)));
  const auto requests = static_cast<double>(model.counts().requests);
  result.extra = requests / static_cast<double>(std::max<std::uint64_t>(parts, 1)) - 1;
  return result;
}

}  // namespace millrace::test
