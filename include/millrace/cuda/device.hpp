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

  friend constexpr bool operator==(device, device) noexcept = default;

 private:
  int ordinal_;
};

}  // namespace millrace::cuda
