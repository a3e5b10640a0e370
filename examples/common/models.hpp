// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <millrace/device/batch.hpp>
#include <millrace/device/device.hpp>

#include "examples/common/classifier.hpp"

#if EXAMPLE_WITH_CUDA
#include <millrace/data/rank.hpp>
#include <millrace/millrace_cuda.hpp>

#include "examples/common/gpu_classifier.hpp"
#endif

namespace examples {

/// The model on the CPU, trained from batches in host memory.
class host_model {
 public:
  host_model(int side, int classes) : model_(side, classes) {}

  /// Where to_device() puts the batches.
  millrace::host_device target() const { return millrace::host_device(); }
  void train_step(const millrace::device_batch& b) {
    loss_ += model_.train_step(b.field("image").as<std::uint8_t>(), b.field("label").as<std::int64_t>(), b.size());
  }
  void count_right(const millrace::device_batch& b) {
    right_ += model_.count_right(b.field("image").as<std::uint8_t>(), b.field("label").as<std::int64_t>(), b.size());
  }
  /// The sums since the last call.
  double take_loss() { return std::exchange(loss_, 0); }
  std::size_t take_right() { return std::exchange(right_, 0); }

 private:
  classifier model_;
  double loss_ = 0;
  std::size_t right_ = 0;
};

#if EXAMPLE_WITH_CUDA
/// Makes the GPU of this process the calling thread's: each process of a machine has its own. False where there is
/// none.
inline bool choose_gpu(const millrace::rank& who) {
  try {
    millrace::cuda::device::for_local_rank(who.local_index).make_current();
    return true;
  } catch (const millrace::cuda::error& e) {
    if (!e.no_device()) throw;  // there is one, and something is wrong with it
    return false;
  }
}

/// The model on the GPU: its stream waits for the copy of a batch, and the batch's memory for its stream; the host
/// waits for neither.
class gpu_model {
 public:
  /// On the calling thread's GPU.
  gpu_model(int side, int classes) : model_(side, classes, stream_.get()) {}

  millrace::cuda::stream target() const { return copies_; }
  void train_step(millrace::device_batch& b) {
    b.wait(stream_);
    model_.train_step(b.field("image").as<std::uint8_t>(), b.field("label").as<std::int64_t>(), b.size());
    b.release(stream_);
  }
  void count_right(millrace::device_batch& b) {
    b.wait(stream_);
    model_.count_right(b.field("image").as<std::uint8_t>(), b.field("label").as<std::int64_t>(), b.size());
    b.release(stream_);
  }
  double take_loss() { return model_.take_loss(); }
  std::size_t take_right() { return model_.take_right(); }

 private:
  millrace::cuda::stream copies_;
  millrace::cuda::stream stream_;
  gpu_classifier model_;
};
#endif

}  // namespace examples
