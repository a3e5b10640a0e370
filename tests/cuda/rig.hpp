// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

#include "tests/fake_cuda/fake_cuda.hpp"
#include "tests/support/catch.hpp"

namespace millrace::test {

/// A fresh model with a little of everything in it.
struct rig {
  explicit rig(fake_cuda::options with = {}) {
    fake_cuda::reset(with);
    REQUIRE(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    REQUIRE(cudaHostAlloc(&pinned, size, cudaHostAllocPortable) == cudaSuccess);
    REQUIRE(cudaMalloc(&device, size) == cudaSuccess);
    std::memset(pinned, 'a', size);
  }
  ~rig() { fake_cuda::reset(); }
  void copy() { REQUIRE(cudaMemcpyAsync(device, pinned, size, cudaMemcpyHostToDevice, copies) == cudaSuccess); }
  static std::string only_violation() {
    const auto all = fake_cuda::violations();
    REQUIRE(all.size() == 1);
    return all[0];
  }

  static constexpr std::size_t size = 1000;
  cudaStream_t copies = nullptr, work = nullptr;
  cudaEvent_t event = nullptr;
  void* pinned = nullptr;
  void* device = nullptr;
};

}  // namespace millrace::test
