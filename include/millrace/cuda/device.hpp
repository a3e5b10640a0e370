// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
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

  /// Makes it the calling thread's, as cudaSetDevice does. Throws cuda::error.
  void make_current() const { detail::check(cudaSetDevice(ordinal_), "cudaSetDevice"); }

  /// The GPU of a process that trains beside others: one each, by its place among the processes of its machine,
  /// `rank::local_index`. A process that sees one GPU has that one: launchers that give each process its own show it no
  /// other. Throws configuration_error when there are several, and fewer than the place; cuda::error.
  ///
  ///     mill::cuda::device::for_local_rank(mill::rank_from_environment().local_index).make_current();
  static device for_local_rank(std::uint32_t local_index) {
    const int n = count();
    if (n == 1) return device(0);
    if (local_index >= static_cast<std::uint32_t>(n)) {
      throw configuration_error("this process is number " + std::to_string(local_index) +
                                " of those on its machine, counted from 0, and it sees " + std::to_string(n) +
                                " GPUs: start as many processes as there are GPUs");
    }
    return device(static_cast<int>(local_index));
  }

  friend constexpr bool operator==(device, device) noexcept = default;

 private:
  int ordinal_;
};

}  // namespace millrace::cuda
