// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/formats/safetensors.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/cuda/stream_device.hpp>
#include <millrace/device/device.hpp>
#include <millrace/io/timeout.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/cuda/session.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/memory_storage.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

constexpr std::size_t large = 9'000'000;  // of two parts
constexpr std::size_t few = 3000;

char value_at(std::size_t i) { return static_cast<char>(i * 7 + i / 1000); }

/// A file with a tensor of two parts, and two short ones that lie beside each other.
std::shared_ptr<const storage> stored() {
  static const auto store = std::make_shared<test::memory_storage>();
  if (store->find("mem://m")) return store;
  std::string bytes(large, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = value_at(i);
  std::vector<tensor_slice> all;
  all.emplace_back("large", tensor_view(bytes.data(), dtype::u8, {static_cast<std::int64_t>(large)}));
  all.emplace_back("a", tensor_view(bytes.data() + 1, dtype::u8, {static_cast<std::int64_t>(few)}));
  all.emplace_back("b", tensor_view(bytes.data() + 2, dtype::u8, {static_cast<std::int64_t>(few)}));
  testing::virtual_loop loop;
  block_on(loop, put_safetensors(std::shared_ptr<const storage>(store), "mem://m", std::move(all)));
  return store;
}

/// All three, one after the other from `to` on.
std::vector<tensor_slice> into(void* to) {
  char* const at = static_cast<char*>(to);
  std::vector<tensor_slice> all;
  all.emplace_back("large", tensor_view(at, dtype::u8, {static_cast<std::int64_t>(large)}));
  all.emplace_back("a", tensor_view(at + large, dtype::u8, {static_cast<std::int64_t>(few)}));
  all.emplace_back("b", tensor_view(at + large + few, dtype::u8, {static_cast<std::int64_t>(few)}));
  return all;
}

bool is_loaded(const std::string& bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t from = i < large ? i : i < large + few ? i - large + 1 : i - large - few + 2;
    if (bytes[i] != value_at(from)) return false;
  }
  return bytes.size() == large + 2 * few;
}

/// Begins a load, and drops it a moment later.
task<void> load_for(const tensor_files& from, void* to, const cuda::stream& copies, duration moment) {
  try {
    co_await with_timeout(moment, from.load(into(to), copies));
  } catch (const timeout_error&) {  // dropped
  }
}

}  // namespace

TEST_CASE("tensors are loaded into page-locked memory, which the program copies from", "[cuda][checkpoint]") {
  const auto store = stored();
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  const tensor_files there = block_on(loop, open_safetensors(store, "mem://m"));
  const cuda::device_memory to(large + 2 * few, cuda::device{0});
  slab_pool pinned(to.size(), std::make_shared<cuda::pinned_source>(cuda::device{0}));
  const writable_bytes memory = pinned.acquire();
  block_on(loop, there.load(into(const_cast<char*>(memory.data()))));
  cuda::stream_device(copies).copy_to_device(to.data(), memory.data(), to.size());
  CHECK(is_loaded(test::read_back(copies.get(), to.data(), to.size())));
}

TEST_CASE("tensors are loaded into device memory, for every stream", "[cuda][checkpoint]") {
  const auto store = stored();
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  const tensor_files there = block_on(loop, open_safetensors(store, "mem://m"));
  const cuda::device_memory to(large + 2 * few, cuda::device{0});
  block_on(loop, there.load(into(to.data()), copies));
  CHECK(is_loaded(test::read_back(training.get(), to.data(), to.size())));
}

TEST_CASE("a load into device memory that fails leaves no copy on its way", "[cuda][checkpoint]") {
  const auto store = stored();
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  const tensor_files there = block_on(loop, open_safetensors(store, "mem://m"));
  {
    const cuda::device_memory to(large + 2 * few, cuda::device{0});
    std::vector<tensor_slice> wrong = into(to.data());
    wrong.emplace_back("none", wrong[0].memory);
    CHECK_THAT(test::failure_of([&] { block_on(loop, there.load(std::move(wrong), copies)); }), Contains("none"));
#ifdef MILLRACE_FAKE_CUDA
    fake_cuda::fail_call("cudaMemcpyAsync", 2, cudaErrorInvalidValue);
    CHECK_THAT(test::failure_of([&] { block_on(loop, there.load(into(to.data()), copies)); }),
               Contains("cudaMemcpyAsync"));
    fake_cuda::fail_call("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
    CHECK_THAT(test::failure_of([&] { block_on(loop, there.load(into(to.data()), copies)); }),
               Contains("cudaHostAlloc"));
#endif
  }
}

TEST_CASE("a load into device memory that is dropped leaves no copy on its way", "[cuda][checkpoint]") {
  const auto store = stored();
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  const tensor_files there = block_on(loop, open_safetensors(store, "mem://m"));
  for (const int us : {0, 20, 60, 120, 100'000}) {
    const cuda::device_memory to(large + 2 * few, cuda::device{0});
    block_on(loop, load_for(there, to.data(), copies, std::chrono::microseconds(us)));
  }
}

TEST_CASE("tensors are loaded by a host device, which copies", "[cuda][checkpoint]") {
  const auto store = stored();
  testing::virtual_loop loop;
  const tensor_files there = block_on(loop, open_safetensors(store, "mem://m"));
  std::string bytes(large + 2 * few, '\0');
  block_on(loop, there.load(into(bytes.data()), host_device()));
  CHECK(is_loaded(bytes));
}
