// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The code of docs/guide/gpu.md that is for nvcc: compiled, and no more. tests/cuda runs the kernel.

#include <string>
#include <utility>

#include <millrace/cuda/normalise_images.hpp>
#include <millrace/decode/write_image.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/millrace_cuda.hpp>

namespace mill = millrace;

// begin normalise
template <class Batches, class Step>
void train(Batches batches, mill::tensor_view images, const mill::cuda::stream& work, Step step) {
  const mill::normalise_options imagenet{.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}};
  for (mill::device_batch& b : mill::run(std::move(batches))) {
    b.wait(work);
    mill::cuda::normalise_images(b, "image", images, work, imagenet);  // memory of yours: f16, 256x3x224x224
    step(images, b.field("label"));
    b.release(work);
  }
}
// end normalise

// begin mixed
struct photo {
  std::string key;
  mill::image pixels;   // of image_decoder::whole(), say
  mill::image_box box;  // of image_crop::box()
  bool flipped;
};
void collate(const photo& p, mill::sample_writer& out) {
  out.key(p.key);
  mill::write_image(out, "image", p.pixels, p.box, p.flipped);
}
// end mixed

struct step_of_nothing {
  void operator()(const mill::tensor_view&, const mill::tensor_view&) const {}
};
template void train(mill::stream<mill::device_batch>, mill::tensor_view, const mill::cuda::stream&, step_of_nothing);
