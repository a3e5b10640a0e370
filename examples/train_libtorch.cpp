// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Batches become tensors of libtorch without a copy: from_blob() with a deleter that frees the batch. The slot is
// reused when the last tensor of its batch is freed.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <torch/torch.h>

#include <millrace/base/rng.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/fill_batches.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>

namespace mill = millrace;

namespace {

template <class T>
torch::Tensor tensor_of(std::shared_ptr<mill::device_batch> b, std::string_view field) {
  const mill::tensor_view t = b->field(field);
  const at::IntArrayRef sizes(t.dims().begin(), t.dims().rank());
  return torch::from_blob(
      t.as<T>(), sizes, [b](void*) mutable { b.reset(); }, c10::CppTypeToScalarType<T>::value);
}

/// A point of the unit square, and on which side of its diagonal it lies.
void make_point(std::int64_t n, const mill::batch_row& row) {
  mill::rng numbers(static_cast<std::uint64_t>(n));
  const std::span<float> point = row.values<float>("point");
  for (float& x : point) x = static_cast<float>(numbers.uniform());
  row.set("side", static_cast<std::int64_t>(point[0] + point[1] > 1));
}

}  // namespace

int main() {
  mill::runtime rt;
  const mill::batch_pool pool(mill::batch_layout(64, {{"point", mill::dtype::f32, {2}}, {"side", mill::dtype::i64}}));
  torch::manual_seed(7);
  torch::nn::Linear model(2, 2);
  torch::optim::SGD optimizer(model->parameters(), 0.5);

  double accuracy = 0;
  for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
    auto run = rt.run(mill::iota(std::int64_t(8192)) | mill::shuffle({.window = 8192, .seed = 7, .epoch = epoch}) |
                      mill::fill_batches(pool, make_point) | mill::to_device(mill::host_device(), {.slots = 3}));
    std::int64_t right = 0, seen = 0;
    for (mill::device_batch& batch : run) {
      auto b = std::make_shared<mill::device_batch>(std::move(batch));
      const torch::Tensor point = tensor_of<float>(b, "point"), side = tensor_of<std::int64_t>(b, "side");
      const torch::Tensor scores = model(point);
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(scores, side).backward();
      optimizer.step();
      right += scores.argmax(1).eq(side).sum().item<std::int64_t>();
      seen += point.size(0);
    }
    accuracy = static_cast<double>(right) / static_cast<double>(seen);
    std::printf("epoch %d: %.1f%% of %d points\n", static_cast<int>(epoch), 100 * accuracy, static_cast<int>(seen));
  }
  return accuracy > 0.95 ? 0 : 1;
}
