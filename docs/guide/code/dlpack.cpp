// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/gpu.md on DLPack.

#include <cstdint>
#include <memory>
#include <utility>

#include <millrace/device/device.hpp>
#include <millrace/device/dlpack.hpp>
#include <millrace/device/fill_batches.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>

#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace {

/// Stands for a library that trains.
class other_library {
 public:
  void step(DLManagedTensor* waves, DLManagedTensor* speaker) {
    const auto* numbers = static_cast<const std::int64_t*>(speaker->dl_tensor.data);
    for (std::int64_t i = 0; i < speaker->dl_tensor.shape[0]; ++i) sum_ += static_cast<float>(numbers[i]);
    waves->deleter(waves);
    speaker->deleter(speaker);
  }
  DLManagedTensor* weights() {
    auto memory = std::make_shared<float>(sum_);
    const mill::tensor_view t(memory.get(), mill::dtype::f32, {1});
    return mill::to_dlpack(t, "host", std::move(memory)).release();
  }

 private:
  float sum_ = 0;
};

}  // namespace

TEST_CASE("the guide's batches are handed to another library", "[guide]") {
  other_library other;
  const mill::batch_layout layout(4, {{"waves", mill::dtype::f32, {400}}, {"speaker", mill::dtype::i64}});
  const mill::batch_pool pool(layout, mill::host_device());
  const auto decode = [](std::int64_t n, const mill::batch_row& row) { row.set("speaker", n); };
  auto batches = mill::iota(std::int64_t(10)) | mill::fill_batches(pool, decode) | mill::to_device(mill::host_device());
  for (mill::device_batch& batch : mill::run(std::move(batches))) {
    // begin export
    auto b = std::make_shared<mill::device_batch>(std::move(batch));  // its tensors share it
    b->wait(mill::host_stream);                                       // or the stream that the other library works on
    mill::dlpack_tensor waves = mill::to_dlpack(b, "waves");
    mill::dlpack_tensor speaker = mill::to_dlpack(b, "speaker");
    other.step(waves.release(), speaker.release());  // two DLManagedTensor*, which are the library's from now on
    // end export
  }
  // begin import
  const mill::dlpack_tensor owner(other.weights());            // a DLManagedTensor*, freed with `owner`
  const mill::tensor_view weights = mill::from_dlpack(owner);  // or from_dlpack(owner, "cuda:0")
  // end import
  CHECK(weights.values<const float>()[0] == 45);
}
