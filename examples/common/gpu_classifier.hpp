// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace examples {

/// The classifier of classifier.hpp as CUDA kernels: the same model, in single precision. Everything is enqueued on one
/// stream; the host waits only where it reads results. Throws std::runtime_error with CUDA's message.
class gpu_classifier {
 public:
  gpu_classifier(int side, int classes, cudaStream_t stream);
  gpu_classifier(const gpu_classifier&) = delete;
  gpu_classifier& operator=(const gpu_classifier&) = delete;
  ~gpu_classifier();

  /// Enqueues one step over `n` RGB images of side x side pixels; pointers to device memory.
  void train_step(const std::uint8_t* images, const std::int64_t* labels, std::size_t n);
  /// Enqueues the count of the images that are classified right.
  void count_right(const std::uint8_t* images, const std::int64_t* labels, std::size_t n);
  /// The sum of the losses since the last call; waits for the stream.
  double take_loss();
  /// The images classified right since the last call; waits for the stream.
  std::size_t take_right();

 private:
  struct state;
  state* state_;
};

}  // namespace examples
