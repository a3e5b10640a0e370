// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A run is stopped while copies to the device are under way, and goes on after the last batch that was taken.

#include <millrace/cuda/stream_device.hpp>
#include <millrace/device/to_device.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/data/epoch_mark.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loader/runtime.hpp>

#include "tests/cuda/session.hpp"
#include "tests/cuda/watch.hpp"

using namespace millrace;

namespace {

constexpr std::int64_t rows = 64;  // of a batch
constexpr std::int64_t all = 12 * rows;

class numbered {
 public:
  numbered() = default;
  explicit numbered(std::int64_t n) : id(n) {
    mark.known = mark.whole = true;
    mark.position = mark.from = static_cast<std::uint64_t>(n);
    mark.next = mark.position + 1;
  }
  std::int64_t id = 0;
  epoch_mark mark;
  friend epoch_mark mark_of(const numbered& n) noexcept { return n.mark; }
};
void collate(const numbered& n, sample_writer& out) { out.write("id", n.id); }

/// The state is the number that comes next.
class next_number final : public stream_position {
 public:
  explicit next_number(std::uint64_t from) : from_(from) {}
  std::string state(const epoch_mark& delivered) const override {
    return std::to_string(delivered.known ? delivered.next : from_);
  }
  void check_window(std::uint32_t) const override {}
  std::optional<std::uint64_t> batches() const override { return std::nullopt; }
  std::string plan() const override { return std::string(); }
  std::vector<lost_shard> lost() const override { return {}; }

 private:
  std::uint64_t from_;
};

async_generator<numbered> count(std::int64_t from) {
  for (std::int64_t i = from; i < all; ++i) {
    numbered n(i);
    co_yield give(n);
  }
}
stream<numbered> numbers(const std::string& state) {
  const std::uint64_t from = std::stoull(state);
  return stream<numbered>(count(static_cast<std::int64_t>(from)))
      .named("numbers")
      .positioned(std::make_shared<const next_number>(from));
}

/// Seconds in which a stop has come; with a sanitizer, where others keep the cores busy, more.
constexpr double soon = MILLRACE_ASAN || MILLRACE_TSAN ? 10 : 1;

double seconds(std::int64_t since) { return static_cast<double>(monotonic_ns() - since) * 1e-9; }

/// Trains on batches until the run ends, or `most` were taken.
template <class Run>
void train(Run& run, const cuda::stream& training, test::watch& watch, std::int64_t& next, std::uint64_t most) {
  while (run.taken() < most) {
    std::optional<device_batch> b = run.next();
    if (!b) return;
    b->wait(training);
    watch.look(training.get(), *b, next, std::chrono::milliseconds(100));
    next += static_cast<std::int64_t>(b->size());
    b->release(training);
  }
}

}  // namespace

TEST_CASE("stop() while copies to the device are under way: a state at once, and the next batch after it", "[cuda]") {
  for (const std::size_t slots : {1U, 2U, 3U}) {
    for (const std::uint64_t before : {0U, 1U, 2U, 3U}) {
      INFO(slots << " slots, stopped after " << before << " batches");
#ifdef MILLRACE_FAKE_CUDA
      fake_cuda::options never;
      never.polls_before_ready = 1 << 30;  // no copy ends by itself
      test::cuda_session session(never);
#else
      MILLRACE_CUDA_SESSION();
#endif
      {
        const cuda::stream copies{cuda::device{0}};
        const cuda::stream training{cuda::device{0}};
        test::watch watch;
        std::int64_t next = 0;
        std::string state;
        {
          runtime rt;
          watch.close();
          watch.hold(copies.get());  // so no copy ends before the gate opens
          auto run = rt.run(numbers("0") | batch(rows) | to_device(copies, {.slots = slots}), {.prefetch = 1});
          // With as many batches in its hands as there are slots, next() waits for a copy that does not end.
          const std::uint64_t taken = std::min<std::uint64_t>(before, slots);
          train(run, training, watch, next, taken);
#ifdef MILLRACE_FAKE_CUDA
          while (fake_cuda::now().pending == 0) std::this_thread::yield();  // until a copy is under way
#endif
          std::int64_t begun = monotonic_ns();
          std::thread other([&] { run.stop(); });
          if (taken < slots) other.join();
          CHECK_FALSE(run.next());
          state = run.state();
          CHECK(seconds(begun) < soon);
          if (other.joinable()) other.join();
          CHECK(run.stopped());
          CHECK(state == std::to_string(next));
#ifdef MILLRACE_FAKE_CUDA
          CHECK(fake_cuda::now().pending != 0);
#endif
          begun = monotonic_ns();
          { const auto dropped = std::move(run); }
          CHECK(seconds(begun) < soon);
          watch.check();
        }
        watch.close();
        {
          runtime rt;
          auto run = rt.run(numbers(state) | batch(rows) | to_device(copies, {.slots = slots}));
          watch.open();
#ifndef MILLRACE_FAKE_CUDA
          train(run, training, watch, next, UINT64_MAX);
          CHECK(next == all);
#else
          train(run, training, watch, next, std::min<std::uint64_t>(slots, 3));
          CHECK(next == static_cast<std::int64_t>(std::stoull(state) + slots * rows));
          run.stop();
#endif
        }
        watch.check();
      }
    }
  }
}
