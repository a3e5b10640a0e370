// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <millrace/cuda/error.hpp>

namespace millrace::cuda {

/// One GPU, by its ordinal among those that CUDA_VISIBLE_DEVICES shows to this process. A plain number: making one
/// calls nothing and checks nothing; the first stream, event or allocation on it does.
class device {
 public:
  constexpr explicit device(int ordinal = 0) noexcept : ordinal_(ordinal) {}

  constexpr int ordinal() const noexcept { return ordinal_; }
  std::string name() const { return "cuda:" + std::to_string(ordinal_); }

  /// How many GPUs there are. Throws cuda::error; error::no_device() tells a machine without one from a broken one.
  static int count() {
    int n = 0;
    detail::check(cudaGetDeviceCount(&n), "cudaGetDeviceCount");
    return n;
  }

  /// The calling thread's, as cudaSetDevice chose it: the default for streams and pinned memory, so that a rank that
  /// chooses its GPU at the start needs to say no more. A thread that chose none has device 0, until millrace first
  /// works for another one there. Throws cuda::error.
  static device current() {
    int ordinal = 0;
    detail::check(cudaGetDevice(&ordinal), "cudaGetDevice");
    return device(ordinal);
  }

  friend constexpr bool operator==(device, device) noexcept = default;

 private:
  int ordinal_;
};

}  // namespace millrace::cuda
