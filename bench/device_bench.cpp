// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What to_device costs and hides, on a GPU: batches of 256 images of 224x224x3 bytes from page-locked memory, beside
// bare cudaMemcpyAsync from the same memory; and whether copies, the host's work and the device's overlap. The step of
// the training loop is a stream that fills device memory, which takes longer than a copy. And a checkpoint of 512 MiB
// from a store to the device by s3.read(), through memory of the program and through page-locked memory. Without a GPU
// it says so.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/device_bench.cpp -o device_bench -lcurl -luring -lssl -lcrypto -lexpat
// -lcudart
//
//   device_bench [batches per round, default 200]

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/millrace_cuda.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/served.hpp"

namespace {

namespace mill = millrace;

constexpr std::size_t slots = 3;
constexpr std::size_t checkpoint_bytes = std::size_t(512) << 20;
constexpr const char* checkpoint_url = "s3://b/checkpoint";

mill::batch_layout images() { return mill::batch_layout(256, {{"image", mill::dtype::u8, {224, 224, 3}}}); }

void check(cudaError_t code) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "device_bench: %s\n", cudaGetErrorString(code));
  std::exit(1);
}

/// Full batches whose pixels are whatever is there: the cost of filling them is not the question.
mill::async_generator<mill::host_batch> batches(mill::batch_pool pool, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    mill::batch_builder builder = pool.start();
    for (std::size_t r = 0; r < builder.capacity(); ++r) builder.row(r).done();
    mill::host_batch b = std::move(builder).seal();
    co_yield give(b);
  }
}

/// Device memory to write, `times` over: stands for a training step of that length.
class busywork {
 public:
  explicit busywork(int times) : times_(times) { check(cudaMalloc(&memory_, size)); }
  busywork(const busywork&) = delete;
  busywork& operator=(const busywork&) = delete;
  ~busywork() { cudaFree(memory_); }
  void enqueue(cudaStream_t stream) const {
    for (int i = 0; i < times_; ++i) check(cudaMemsetAsync(memory_, i, size, stream));
  }

 private:
  static constexpr std::size_t size = std::size_t(1) << 30;
  void* memory_ = nullptr;
  int times_;
};

std::uint64_t bare_copies(const mill::cuda::stream& copies, const std::vector<mill::writable_bytes>& from, void* to,
                          std::size_t count) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const mill::writable_bytes& source = from[i % from.size()];
    check(cudaMemcpyAsync(static_cast<char*>(to) + i % slots * source.capacity(), source.data(), source.capacity(),
                          cudaMemcpyHostToDevice, copies.get()));
    total += source.capacity();
  }
  copies.synchronize();
  return total;
}

mill::task<void> consume(mill::stream<mill::device_batch> all, mill::cuda::stream on, const busywork* work,
                         std::uint64_t& total) {
  while (std::optional<mill::device_batch> b = co_await all.next()) {
    total += b->bytes();
    b->wait(on);
    if (work != nullptr) work->enqueue(on.get());
    b->release(on);
  }
}

std::uint64_t through_to_device(mill::event_loop& loop, const mill::batch_pool& pool, const mill::cuda::stream& copies,
                                const mill::cuda::stream& training, const busywork* work, std::size_t count) {
  std::uint64_t total = 0;
  mill::block_on(loop,
                 consume(batches(pool, count) | mill::to_device(copies, {.slots = slots}), training, work, total));
  training.synchronize();
  return total;
}

/// The checkpoint by way of `memory`, which takes all of it, to the device.
std::uint64_t restore(mill::event_loop& loop, const mill::s3::client& s3, std::span<std::byte> memory, void* to,
                      const mill::cuda::stream& copies) {
  if (mill::block_on(loop, s3.read(checkpoint_url, memory)) != checkpoint_bytes) std::abort();
  check(cudaMemcpyAsync(to, memory.data(), memory.size(), cudaMemcpyHostToDevice, copies.get()));
  copies.synchronize();
  return checkpoint_bytes;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = static_cast<std::size_t>(argc > 1 ? std::atoi(argv[1]) : 200);
  bench::print_machine();
  try {
    if (mill::cuda::device::count() == 0) throw mill::cuda::error(cudaErrorNoDevice, "cudaGetDeviceCount");
  } catch (const mill::cuda::error& e) {
    if (!e.no_device()) {
      std::fprintf(stderr, "device_bench: %s\n", e.what());
      return 1;
    }
    std::printf("skipped: there is no GPU: %s\n", e.what());
    return 77;
  }
  const bench::served store(false, [](mill::s3_server::background& server) {
    server.put("b", "checkpoint", bench::noise(checkpoint_bytes, 1));
  });
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s\n", properties.name);

  const mill::cuda::stream copies;
  const mill::cuda::stream training;
  const mill::batch_pool pool(images(), copies);
  const auto loop = mill::make_event_loop();
  mill::slab_pool pinned(images().bytes(), std::make_shared<mill::cuda::pinned_source>());
  std::vector<mill::writable_bytes> from;
  for (std::size_t i = 0; i < slots; ++i) from.push_back(pinned.acquire());
  void* to = nullptr;
  check(cudaMalloc(&to, slots * images().bytes()));

  bench::contender bare("bare cudaMemcpyAsync", [&] { return bare_copies(copies, from, to, count); });
  bench::contender ours("to_device", [&] { return through_to_device(*loop, pool, copies, training, nullptr, count); });
  bench::take_turns({&bare, &ours});
  bench::print_table({&bare, &ours});
  bench::goal_at_least("GB/s, to_device / bare copies", bench::ratio(ours.gb_per_second, bare.gb_per_second), 0.95);

  const busywork work(8);
  bench::contender alone("steps alone", [&] {
    for (std::size_t i = 0; i < count; ++i) work.enqueue(training.get());
    training.synchronize();
    return count * images().bytes();
  });
  bench::contender both("steps fed by to_device",
                        [&] { return through_to_device(*loop, pool, copies, training, &work, count); });
  bench::take_turns({&alone, &both});
  std::printf("\noverlap: GB/s of the batches that the steps used up\n");
  bench::print_table({&alone, &both});
  bench::goal_at_least("steps/s, fed by to_device / alone", bench::ratio(both.gb_per_second, alone.gb_per_second),
                       0.95);
  from.clear();
  check(cudaFree(to));

  const mill::s3::client s3 = store.client();
  std::vector<std::byte> pageable(checkpoint_bytes, std::byte(1));
  mill::slab_pool large(checkpoint_bytes, std::make_shared<mill::cuda::pinned_source>());
  mill::writable_bytes locked = large.acquire();
  check(cudaMalloc(&to, checkpoint_bytes));
  bench::contender through_own("s3.read(), memory of the program", [&] {
    return restore(*loop, s3, pageable, to, copies);
  });
  bench::contender through_locked("s3.read(), page-locked memory", [&] {
    std::span<std::byte> memory(reinterpret_cast<std::byte*>(locked.data()), checkpoint_bytes);
    return restore(*loop, s3, memory, to, copies);
  });
  bench::take_turns({&through_own, &through_locked});
  std::printf("\na checkpoint of 512 MiB, from the store to the device\n");
  bench::print_table({&through_own, &through_locked});
  bench::goal_at_least("GB/s, page-locked / memory of the program",
                       bench::ratio(through_locked.gb_per_second, through_own.gb_per_second), 1);
  check(cudaFree(to));
}
