// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/gpu.md that needs nvJPEG.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/cuda/nvjpeg.hpp>
#include <millrace/cuda/resident_images.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/decode/write_image.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/millrace_cuda.hpp>
#include <millrace/shards/sample.hpp>

#include "examples/common/encode_jpeg.hpp"
#include "tests/fake_cuda/fake_cuda.hpp"
#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace {

std::size_t pixels = 0;
void enqueue_step(cudaStream_t, const mill::device_batch& b) { pixels += b.field("image").bytes(); }

// begin jpegs
struct jpeg_photo {
  std::string key;
  mill::origin from;
  mill::undecoded_image image;
};
void collate(const jpeg_photo& p, mill::sample_writer& out) {
  out.key(p.key);
  out.tag(p.from);
  mill::write_image(out, "image", p.image, mill::image_box(0, 0, p.image.width, p.image.height));
}

void train(mill::stream<mill::sample> samples) {
  const mill::cuda::nvjpeg gpu{mill::cuda::stream()};  // for all epochs
  const mill::cuda::stream work;
  const mill::image_decoder decoder({.height = 224, .width = 224});
  const auto header = [decoder](const mill::sample& s) {
    return jpeg_photo{s.key, s.from, decoder.undecoded(s["jpg"], s.from.at(s.key))};
  };
  for (mill::device_batch& b :
       mill::run(std::move(samples) | mill::map(header) | mill::batch(256) | mill::to_device(gpu))) {
    b.wait(work);  // for the pixels, too
    enqueue_step(work.get(), b);
    b.release(work);
  }
}
// end jpegs

// begin stay
template <class Photos>
void train_epochs(mill::runtime& rt, const Photos& photos_of, int epochs) {
  const mill::cuda::stream copies;
  const mill::cuda::stream work;
  const mill::cuda::resident_images gpu(mill::cuda::nvjpeg(copies), {.bytes = 40 * mill::GiB});  // for all epochs
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (mill::device_batch& b : rt.run(photos_of(epoch) | mill::batch(256) | mill::to_device(gpu))) {
      b.wait(work);
      enqueue_step(work.get(), b);
      b.release(work);
    }
  }
}
// end stay

mill::async_generator<mill::sample> two_samples() {
  for (const char* key : {"a", "b"}) {
    mill::sample s;
    s.key = key;
    s.fields.emplace_back("jpg", mill::bytes::copy(examples::encode_jpeg(std::vector<std::uint8_t>(300), 10, 10)));
    co_yield mill::give(s);
  }
}

}  // namespace

TEST_CASE("the guide's JPEGs are decoded on the GPU", "[guide]") {
  mill::fake_cuda::reset();
  train(mill::stream<mill::sample>(two_samples()));
  CHECK(pixels == 600);
  CHECK(mill::fake_cuda::calls("cudaLaunchKernel") == 2);
  mill::free_device_slots();  // of run(), which leaves them to the process
  CHECK(mill::fake_cuda::violations().empty());
  mill::fake_cuda::reset();
}

TEST_CASE("the guide's second epoch decodes nothing", "[guide]") {
  mill::fake_cuda::reset();
  pixels = 0;
  const auto photos_of = [](int) {
    const mill::image_decoder decoder({.height = 224, .width = 224});
    return mill::stream<mill::sample>(two_samples()) | mill::map([decoder](const mill::sample& s) {
             return jpeg_photo{s.key, s.from, decoder.undecoded(s["jpg"])};
           });
  };
  {
    mill::runtime rt;
    train_epochs(rt, photos_of, 3);
  }
  CHECK(pixels == 3 * 600);
  CHECK(mill::fake_cuda::calls("cudaLaunchKernel") == 2);
  mill::free_device_slots();  // of run(), which leaves them to the process
  CHECK(mill::fake_cuda::violations().empty());
  mill::fake_cuda::reset();
}
