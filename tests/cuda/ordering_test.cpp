// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The order of copies, kernels and the use of memory, as kernels see it: nothing here waits between the steps of a
// training, so what comes too early or too late is found where it does harm. defects.py breaks the library and sees
// these tests fail.

#include <millrace/cuda/stream_device.hpp>
#include <millrace/device/to_device.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/cuda/points.hpp"
#include "tests/cuda/session.hpp"
#include "tests/cuda/watch.hpp"

using namespace millrace;
using test::next_of;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t samples = 512;

host_batch numbers_from(batch_pool& pool, std::int64_t first, std::size_t count = samples) {
  batch_builder builder = pool.start();
  for (std::size_t r = 0; r < count; ++r) {
    const batch_row row = builder.row(r);
    row.set("id", first + static_cast<std::int64_t>(r));
    row.done();
  }
  return std::move(builder).seal();
}

/// Batch i has the numbers from i * samples on.
async_generator<host_batch> numbers(batch_pool pool, int batches) {
  for (int i = 0; i < batches; ++i) {
    host_batch b = numbers_from(pool, static_cast<std::int64_t>(i) * static_cast<std::int64_t>(samples));
    co_yield give(b);
  }
}
std::int64_t first_of(int batch) { return static_cast<std::int64_t>(batch) * static_cast<std::int64_t>(samples); }

/// An eighth of a batch, and a whole one from first_of(1) on where there is a pool for it.
async_generator<host_batch> small_then_large(batch_pool small, std::optional<batch_pool> large) {
  host_batch b = numbers_from(small, -1000, samples / 8);
  co_yield give(b);
  if (!large) co_return;
  b = numbers_from(*large, first_of(1));
  co_yield give(b);
}
async_generator<host_batch> small_numbers(batch_pool pool) { return small_then_large(std::move(pool), std::nullopt); }

batch_pool pool_on(const cuda::stream& copies) {
  return batch_pool(batch_layout(samples, {{"id", dtype::i64}}), copies);
}

/// Where a batch's numbers are, without a further wait for this batch.
tensor_view slot_of(device_batch& b) {
  b.synchronize();
  return b.field("id");
}

/// The stage goes on as far as it can: it asks its events fifty times and more.
task<void> for_a_while() { co_await sleep_for(50ms); }

/// A GPU whose memory is written to as soon as it is freed, as an allocator's next customer would. What was
/// freed is the runtime's again at the end. The gate opens when memory is taken over, or when the host has to wait.
class shared_gpu {
 public:
  using event_type = cuda::event;

  shared_gpu(const cuda::stream& copies, test::watch& told) : gpu_(copies), next_(std::make_shared<customer>(told)) {}

  void* allocate_pinned(std::size_t n) const { return gpu_.allocate_pinned(n); }
  void free_pinned(void* memory, std::size_t n) const noexcept { gpu_.free_pinned(memory, n); }
  void* allocate_device(std::size_t n) const { return gpu_.allocate_device(n); }
  void free_device(void* memory, std::size_t n) const noexcept { next_->take(memory, n); }
  event_type make_event() const { return gpu_.make_event(); }
  void copy_to_device(void* to, const void* from, std::size_t n) const { gpu_.copy_to_device(to, from, n); }
  void record(event_type& e) const { gpu_.record(e); }
  void record(event_type& e, stream_ref s) const { gpu_.record(e, s); }
  void wait(stream_ref s, const event_type& e) const { gpu_.wait(s, e); }
  bool query(const event_type& e) const { return gpu_.query(e); }
  /// Waits until the host has done all that it can without the kernels that wait for the gate.
  void synchronize(const event_type& e) const {
    if (!gpu_.query(e)) next_->told.open();
    gpu_.synchronize(e);
  }
  void synchronize(stream_ref s) const { gpu_.synchronize(s); }
  std::string name() const { return gpu_.name(); }
  friend bool operator==(const shared_gpu& a, const shared_gpu& b) { return a.next_ == b.next_; }

  std::size_t freed() const { return next_->taken.size(); }

 private:
  struct customer {
    explicit customer(test::watch& w) : told(w) {}
    customer(const customer&) = delete;
    customer& operator=(const customer&) = delete;
    ~customer() {
      static_cast<void>(cudaDeviceSynchronize());
      for (void* memory : taken) static_cast<void>(cudaFree(memory));
    }
    void take(void* memory, std::size_t n) noexcept {
      static_cast<void>(cudaMemsetAsync(memory, 0x5a, n, own.get()));
      static_cast<void>(cudaStreamSynchronize(own.get()));
      told.open();  // kernels that still read it look once more
      taken.push_back(memory);
    }
    cuda::stream own;
    test::watch& told;
    std::vector<void*> taken;
  };

  cuda::stream_device gpu_;
  std::shared_ptr<customer> next_;
};

/// A GPU that cannot mark the end of the first copy after fail_once().
class unmarking_gpu : public cuda::stream_device {
 public:
  explicit unmarking_gpu(const cuda::stream& copies) : cuda::stream_device(copies) {}
  using cuda::stream_device::record;
  void record(event_type& e) const {
    if (std::exchange(*fails_, false)) throw cuda::error(cudaErrorMemoryAllocation, "cudaEventRecord");
    cuda::stream_device::record(e);
  }
  void fail_once() const { *fails_ = true; }

 private:
  std::shared_ptr<bool> fails_ = std::make_shared<bool>(false);
};

}  // namespace

TEST_CASE("a slot is written again only when the kernels that read it are done", "[cuda][ordering]") {
  enum class told { wait_and_release, wait_and_drop, release };
  for (const told by : {told::wait_and_release, told::wait_and_drop, told::release}) {
    INFO("way " << static_cast<int>(by));
    MILLRACE_CUDA_SESSION();
    test::watch watch;
    testing::virtual_loop loop;
    const cuda::stream copies{cuda::device{0}};
    const cuda::stream training{cuda::device{0}};
    batch_pool pool = pool_on(copies);
    auto stream = numbers(pool, 10) | to_device(copies, {.slots = 2});
    for (int i = 0; i < 10; ++i) {
      device_batch b = block_on(loop, next_of(stream));
      REQUIRE(b);
      if (by == told::release) {
        b.synchronize();
      } else {
        b.wait(training);
      }
      if (i >= 2) watch.close();  // later than the allocations, which may wait for kernels
      watch.look(training.get(), b, first_of(i));
      if (by == told::wait_and_drop) {
        b = device_batch();
      } else {
        b.release(training);
      }
      block_on(loop, for_a_while());
      copies.synchronize();
      watch.open();
      training.synchronize();
    }
    watch.check();
  }
}

TEST_CASE("a kernel after wait() finds the batch there", "[cuda][ordering]") {
  MILLRACE_CUDA_SESSION();
  test::watch watch;
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  batch_pool pool = pool_on(copies);
  auto stream = numbers(pool, 6) | to_device(copies, {.slots = 1});
  for (int i = 0; i < 6; ++i) {
    // The copy comes late: once so late that a kernel which does not wait has begun on the busiest machine.
    test::watch::hold(copies.get(), watch.next(), i == 5 ? 400ms : 40ms);
    device_batch b = block_on(loop, next_of(stream));
    REQUIRE(b);
    b.wait(training);
    watch.look(training.get(), b, first_of(i));
    b.release(training);
  }
  watch.check();
}

TEST_CASE("page-locked memory is written again only when the copy from it is done", "[cuda][ordering]") {
  MILLRACE_CUDA_SESSION();
  test::watch watch;
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  batch_pool pool = pool_on(copies);
  auto stream = numbers(pool, 8) | to_device(copies, {.slots = 1});
  tensor_view ids;  // in the only slot
  for (int i = 0; i < 8; i += 2) {
    device_batch b = block_on(loop, next_of(stream));
    REQUIRE(b);
    if (i == 0) ids = slot_of(b);
    watch.close();
    watch.hold(copies.get());
    b = device_batch();
    b = block_on(loop, next_of(stream));  // its copy is after the gate
    REQUIRE(b);
    watch.look(copies.get(), ids, first_of(i + 1), 0s);  // on the copies' own stream, which has that order by itself
    b = device_batch();
    block_on(loop, for_a_while());
    watch.open();
    copies.synchronize();
  }
  watch.check();
}

TEST_CASE("the same when the pipeline ends before the copy", "[cuda][ordering]") {
  for (const bool kept : {true, false}) {
    INFO((kept ? "a batch outlives the pipeline" : "the pipeline outlives its batches"));
    MILLRACE_CUDA_SESSION();
    test::watch watch;
    testing::virtual_loop loop;
    const cuda::stream copies{cuda::device{0}};
    batch_pool pool = pool_on(copies);
    tensor_view ids;  // in the only slot, which each epoch takes over
    for (int epoch = 0; epoch < 4; ++epoch) {
      if (epoch >= 1) watch.close();
      watch.hold(copies.get());
      std::vector<host_batch> others;
      {
        device_batch b;
        {
          auto stream = numbers(pool, 8) | to_device(copies, {.slots = 1});
          b = block_on(loop, next_of(stream));
          REQUIRE(b);
          if (epoch == 0) ids = slot_of(b);
          watch.look(copies.get(), ids, first_of(0), 0s);
          if (!kept) b = device_batch();
        }
      }
      for (int i = 0; i < 3; ++i) others.push_back(numbers_from(pool, -100000));
      watch.open();
      copies.synchronize();
    }
    watch.check();
  }
}

TEST_CASE("a slot of a pipeline that has ended is written again only when the kernels that read it are done",
          "[cuda][ordering]") {
  for (int turn = 0; turn < 3; ++turn) {
    MILLRACE_CUDA_SESSION();
    test::watch watch;
    testing::virtual_loop loop;
    const cuda::stream copies{cuda::device{0}};
    const cuda::stream training{cuda::device{0}};
    batch_pool pool = pool_on(copies);
    {
      auto stream = numbers(pool, 2) | to_device(copies, {.slots = 2});
      device_batch read = block_on(loop, next_of(stream));
      device_batch other = block_on(loop, next_of(stream));
      REQUIRE(other);
      other.synchronize();
      read.wait(training);
      watch.close();
      watch.look(training.get(), read, first_of(0));
      read.release(training);
    }
    auto stream = numbers(pool, 4) | to_device(copies, {.slots = 2});
    std::vector<device_batch> next;
    next.push_back(block_on(loop, next_of(stream)));  // in the slot that is free
    block_on(loop, for_a_while());
    copies.synchronize();
    watch.open();
    training.synchronize();
    next.push_back(block_on(loop, next_of(stream)));
    for (int i = 0; i < 2; ++i) {
      device_batch& b = next[static_cast<std::size_t>(i)];
      b.wait(training);
      watch.look(training.get(), b, first_of(i), 0s);
      b.release(training);
    }
    watch.check();
  }
}

TEST_CASE("the same for a slot that is taken over since the batch is larger than the others", "[cuda][ordering]") {
  for (int turn = 0; turn < 3; ++turn) {
    MILLRACE_CUDA_SESSION();
    test::watch watch;
    testing::virtual_loop loop;
    const cuda::stream copies{cuda::device{0}};
    const cuda::stream training{cuda::device{0}};
    batch_pool pool = pool_on(copies);
    batch_pool small_pool(batch_layout(samples / 8, {{"id", dtype::i64}}), copies);
    {
      auto small = small_numbers(small_pool) | to_device(copies, {.slots = 1});
      device_batch first = block_on(loop, next_of(small));
      {
        auto stream = numbers(pool, 1) | to_device(copies, {.slots = 1});
        device_batch b = block_on(loop, next_of(stream));
        REQUIRE(b);
        b.wait(training);
        watch.close();
        watch.look(training.get(), b, first_of(0));
        b.release(training);
      }
      first.synchronize();
    }
    auto stream = small_then_large(small_pool, pool) | to_device(copies, {.slots = 1});
    REQUIRE(block_on(loop, next_of(stream)));
    device_batch b = block_on(loop, next_of(stream));
    REQUIRE(b);
    copies.synchronize();
    watch.open();
    b.wait(training);
    watch.look(training.get(), b, first_of(1), 0s);
    b.release(training);
    watch.check();
  }
}

TEST_CASE("page-locked memory stays until the copy is done whose end could not be marked at first",
          "[cuda][ordering]") {
  for (int turn = 0; turn < 3; ++turn) {
    MILLRACE_CUDA_SESSION();
    test::watch watch;
    testing::virtual_loop loop;
    const cuda::stream copies{cuda::device{0}};
    const unmarking_gpu gpu(copies);
    batch_pool pool = pool_on(copies);
    tensor_view ids;  // in the slot that the second pipeline takes over
    {
      auto stream = numbers(pool, 1) | to_device(gpu, {.slots = 1});
      device_batch b = block_on(loop, next_of(stream));
      REQUIRE(b);
      ids = slot_of(b);
    }
    watch.close();
    watch.hold(copies.get());
    {
      auto stream = numbers(pool, 1) | to_device(gpu, {.slots = 1});
      gpu.fail_once();
      CHECK_THROWS_AS(block_on(loop, next_of(stream)), cuda::error);
      watch.look(copies.get(), ids, first_of(0), 0s);
    }
    auto stream = numbers(pool, 4) | to_device(gpu, {.slots = 2});
    REQUIRE(block_on(loop, next_of(stream)));
    std::vector<host_batch> others;
    for (int i = 0; i < 3; ++i) others.push_back(numbers_from(pool, -100000));
    watch.open();
    copies.synchronize();
    watch.check();
  }
}

TEST_CASE("a slot is freed only when the kernels that read it are done", "[cuda][ordering]") {
  MILLRACE_CUDA_SESSION();
  test::watch watch;
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  batch_pool pool = pool_on(copies);
  const shared_gpu gpu(copies, watch);
  for (int epoch = 0; epoch < 3; ++epoch) {
    testing::virtual_loop loop;
    auto stream = numbers(pool, 4) | to_device(gpu, {.slots = 1});
    device_batch b = block_on(loop, next_of(stream));
    REQUIRE(b);
    b.wait(training);
    b.synchronize();  // the copy is done: what may still be waited for is the kernel
    watch.close();
    watch.look(training.get(), b, first_of(0));
    b.release(training);
  }
  CHECK(gpu.freed() == 3);
  watch.check();
}

TEST_CASE("a training loop that only enqueues finds every batch complete", "[cuda][ordering][run]") {
  for (const std::size_t slots : {1, 2, 3}) {
    INFO("slots " << slots);
    MILLRACE_CUDA_SESSION();
    test::watch watch;
    const cuda::stream copies{cuda::device{0}};
    const cuda::stream training{cuda::device{0}};
    batch_pool pool = pool_on(copies);
    watch.close();
    int n = 0;
    for (device_batch& b : run(numbers(pool, 40) | to_device(copies, {.slots = slots}), {.prefetch = 2})) {
      b.wait(training);
      watch.look(training.get(), b, first_of(n), 100us);
      b.release(training);
      ++n;
    }
    CHECK(n == 40);
    watch.check();
    free_device_slots();
  }
}

TEST_CASE("leaving a training loop early leaves the GPU at work", "[cuda][ordering][run]") {
  for (const std::size_t slots : {1, 2, 3}) {
    INFO("slots " << slots);
    MILLRACE_CUDA_SESSION();
    test::watch watch;
    const cuda::stream copies{cuda::device{0}};
    const cuda::stream training{cuda::device{0}};
    batch_pool pool = pool_on(copies);
    for (device_batch& b : run(numbers(pool, 40) | to_device(copies, {.slots = slots}), {.prefetch = 1})) {
      b.wait(training);
      watch.close();
      watch.hold(training.get());
      watch.look(training.get(), b, first_of(0));
      b.release(training);
      break;
    }
    CHECK_FALSE(training.idle());
    watch.check();
    free_device_slots();
  }
}
