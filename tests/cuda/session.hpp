// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "tests/cuda/no_gpu.hpp"
#include "tests/support/catch.hpp"

// Built with MILLRACE_TEST_REAL_CUDA, the tests call the real runtime; with MILLRACE_TEST_THREADED_CUDA the model of
// threads; without both the model that does everything late.
#if defined(MILLRACE_TEST_THREADED_CUDA)
#include <millrace/testing/virtual_loop.hpp>

#include "tests/threaded_cuda/threaded_cuda.hpp"
#elif !defined(MILLRACE_TEST_REAL_CUDA)
#define MILLRACE_FAKE_CUDA 1
#include <cstdint>

#include <millrace/base/rng.hpp>

#include "tests/fake_cuda/fake_cuda.hpp"
#endif

/// The tests of this folder run against the models of tests/fake_cuda and tests/threaded_cuda and, unchanged, against
/// the real runtime on a machine with a GPU. What needs the first model's controls is between `#ifdef
/// MILLRACE_FAKE_CUDA`.
namespace millrace::test {

#ifdef MILLRACE_FAKE_CUDA
/// Starts the model anew; at the end of the test checks that nothing was done wrong and nothing is left.
class cuda_session {
 public:
  explicit cuda_session(fake_cuda::options with = {}) { fake_cuda::reset(with); }
  cuda_session(const cuda_session&) = delete;
  cuda_session& operator=(const cuda_session&) = delete;
  ~cuda_session() {
    if (std::uncaught_exceptions() != 0) return;
    const auto wrong = fake_cuda::violations();
    CHECK(wrong == std::vector<std::string>());
    CHECK(fake_cuda::leaks() == "");
  }
  std::string unusable() const { return std::string(); }
};

/// A device that is late with what it says, and early with some of what it does: drawn.
inline fake_cuda::options drawn_options(std::uint64_t seed, rng& random) {
  fake_cuda::options with;
  with.seed = seed;
  with.polls_before_ready = static_cast<int>(random.below(6));
  with.early_percent = random.below(2) == 0 ? 0 : 25;
  return with;
}
#elif defined(MILLRACE_TEST_THREADED_CUDA)
/// The same with the other model. Its seed is MILLRACE_SEED, or always the same.
class cuda_session {
 public:
  cuda_session() { threaded_cuda::reset(testing::virtual_loop::seed_from_environment(1)); }
  cuda_session(const cuda_session&) = delete;
  cuda_session& operator=(const cuda_session&) = delete;
  ~cuda_session() {
    if (std::uncaught_exceptions() != 0) return;
    const auto wrong = threaded_cuda::violations();
    CHECK(wrong == std::vector<std::string>());
    CHECK(threaded_cuda::leaks() == "");
  }
  std::string unusable() const { return std::string(); }
};
#else
/// Tells whether there is a GPU. Only the three codes that mean "no GPU here" skip, and none does when
/// MILLRACE_REQUIRE_GPU=1: a broken installation fails.
class cuda_session {
 public:
  cuda_session() {
    int n = 0;
    const cudaError_t code = cudaGetDeviceCount(&n);
    if (no_gpu(code, n)) {
      reason_ = cudaGetErrorString(code);
    } else {
      INFO("cudaGetDeviceCount: " << cudaGetErrorName(code));
      REQUIRE(code == cudaSuccess);
      REQUIRE(n > 0);
    }
  }
  cuda_session(const cuda_session&) = delete;
  cuda_session& operator=(const cuda_session&) = delete;
  std::string unusable() const { return reason_; }

 private:
  std::string reason_;
};
#endif

/// `n` bytes of device memory, read by `stream` in its order; waits for them.
inline std::string read_back(cudaStream_t stream, const void* device_memory, std::size_t n) {
  std::string text(n, '?');
  REQUIRE(cudaMemcpyAsync(text.data(), device_memory, n, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  return text;
}

}  // namespace millrace::test

/// Opens a session named `session`, or leaves the test visibly on a machine without a GPU.
#define MILLRACE_CUDA_SESSION()         \
  millrace::test::cuda_session session; \
  if (!session.unusable().empty()) MILLRACE_SKIP(session.unusable())
