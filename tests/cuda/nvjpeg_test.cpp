// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/cuda/nvjpeg.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/cuda/stream_device.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/decode/write_image.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/normalise_images.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/cuda/normalise.hpp"
#include "tests/cuda/photos.hpp"
#include "tests/cuda/points.hpp"
#include "tests/cuda/session.hpp"

using namespace millrace;
using namespace millrace::test;
using Catch::Matchers::Contains;

// JPEGs that are decoded after their batch's copy: by nvJPEG, and on the host what it does not take.

TEST_CASE("a batch of JPEGs becomes pixels on the GPU, the last one too", "[cuda][nvjpeg]") {
  MILLRACE_CUDA_SESSION();
  for (const std::vector<kind>& kinds : {of_gpu(), of_all()}) {
    testing::virtual_loop loop;
    const cuda::stream work;
    auto source = stream<photo>(photos(22, kinds)) | batch(6) | to_device(cuda::nvjpeg(cuda::stream()), {.slots = 2});
    for (int begin = 0; begin < 22; begin += 6) {
      const int end = begin + 6 < 22 ? begin + 6 : 22;
      INFO("photos from " << begin << " to " << end);
      device_batch b = block_on(loop, test::next_of(source));
      REQUIRE(b.size() == static_cast<std::size_t>(end - begin));
      CHECK(b.keys()[0] == "p" + std::to_string(begin));
      CHECK(b.host_field("number").as<std::int64_t>()[0] == begin);
      CHECK(alike(pixels_of(b, work), wanted(begin, end, kinds)));
    }
    CHECK_FALSE(block_on(loop, test::next_of(source)));
  }
#ifdef MILLRACE_FAKE_CUDA
  CHECK(fake_cuda::calls("cudaLaunchKernel") == 22 + 11);  // the others are the host's
#endif
}

TEST_CASE("JPEGs that a device does not decode are decoded on the host", "[cuda][nvjpeg]") {
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  const cuda::stream work;
  auto here = stream<photo>(photos(4, of_all())) | batch(4) | to_device(host_device());
  device_batch b = block_on(loop, test::next_of(here));
  const tensor_view pixels = b.field("image");
  CHECK(std::string(pixels.as<const char>(), pixels.bytes()) == wanted(0, 4, of_all()));
  auto there = stream<photo>(photos(4, of_all())) | batch(4) | to_device(cuda::stream());
  b = block_on(loop, test::next_of(there));
  CHECK(pixels_of(b, work) == wanted(0, 4, of_all()));
}

TEST_CASE("what nvJPEG decodes is normalised on the GPU, parts, mirrors and all, as on the host", "[cuda][nvjpeg]") {
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  const cuda::stream work;
  const normalise_options how{.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}};
  for (const std::vector<kind>& kinds : {of_gpu(), of_all()}) {
    auto there = stream<photo>(photos(6, kinds)) | batch(6) | to_device(cuda::nvjpeg(cuda::stream()));
    auto here = stream<photo>(photos(6, kinds)) | batch(6) | to_device(host_device());
    device_batch b = block_on(loop, test::next_of(there));
    const device_batch twin = block_on(loop, test::next_of(here));
    std::vector<float> expected(6 * 3 * 8 * 7);
    const shape dims{6, 3, 8, 7};
    normalise_images(twin, "image", tensor_view(expected.data(), dtype::f32, dims), how);
    const std::size_t size = expected.size() * sizeof(float);
    const cuda::device_memory memory(size, work.on());
    b.wait(work);
    test::normalise(b, "image", tensor_view(memory.data(), dtype::f32, dims), work, how);
    b.release(work);
    const std::string result = test::read_back(work.get(), memory.data(), size);
    std::vector<float> got(expected.size());
    std::memcpy(got.data(), result.data(), size);
    float most = 0;
    for (std::size_t i = 0; i < got.size(); ++i) most = std::max(most, std::abs(got[i] - expected[i]));
#ifdef MILLRACE_TEST_REAL_CUDA
    CHECK(most < 0.5F);  // nvJPEG's chroma may be another
#else
    CHECK(most < 1e-5F);
#endif
    CHECK(*std::max_element(expected.begin(), expected.end()) > 1);
    CHECK(*std::min_element(expected.begin(), expected.end()) < -1);
  }
}

TEST_CASE("the host has no pixels of images that the device decodes", "[cuda][nvjpeg]") {
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  auto source = stream<photo>(photos(1, of_gpu())) | batch(1) | to_device(cuda::nvjpeg(cuda::stream()));
  const device_batch b = block_on(loop, test::next_of(source));
  CHECK(b.bytes() < decoder().whole(bytes::copy(file_of(kind::plain, 0))).pixels.size());
  REQUIRE_THROWS_WITH(b.host_field("image"), Contains("image u8 ") && Contains(" of a batch is on the device alone"));
}

TEST_CASE("a corrupt JPEG is named, after the batches before it", "[cuda][nvjpeg]") {
  MILLRACE_CUDA_SESSION();
  const auto spoilt = []() -> async_generator<photo> {
    for (int i = 0; i < 6; ++i) {
      photo p(i, kind::plain);
      if (i == 4) p.image.data = p.image.data.slice(0, p.image.data.size() - 60);
      co_yield give(p);
    }
  };
  testing::virtual_loop loop;
  const cuda::stream work;
  auto source = stream<photo>(spoilt()) | batch(3) | to_device(cuda::nvjpeg(cuda::stream()));
  device_batch b = block_on(loop, test::next_of(source));
  CHECK(alike(pixels_of(b, work), wanted(0, 3, {kind::plain})));
  REQUIRE_THROWS_WITH(block_on(loop, test::next_of(source)),
                      Contains("the JPEG is corrupt") && Contains("s3://photos/one.tar") && Contains("p4"));
}

TEST_CASE("a JPEG with bytes after its end is decoded on the device", "[cuda][nvjpeg]") {
  MILLRACE_CUDA_SESSION();
  const auto padded = []() -> async_generator<photo> {
    photo p(0, kind::plain);
    p.image.data = bytes::copy(std::string(p.image.data.view()) + std::string(100, '\0'));
    co_yield give(p);
  };
  testing::virtual_loop loop;
  const cuda::stream work;
  auto source = stream<photo>(padded()) | batch(1) | to_device(cuda::nvjpeg(cuda::stream()));
  device_batch b = block_on(loop, test::next_of(source));
  REQUIRE_THROWS_WITH(b.host_field("image"), Contains(" is on the device alone"));
  CHECK(alike(pixels_of(b, work), wanted(0, 1, {kind::plain})));
}

TEST_CASE("a batch has one field of undecoded images", "[cuda][nvjpeg]") {
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  const auto two = [](const photo& p, sample_writer& out) {
    write_image(out, "left", p.image, image_box(0, 0, 5, 5));
    write_image(out, "right", p.image, image_box(0, 0, 5, 5));
  };
  auto source = stream<photo>(photos(1, of_gpu())) | batch(1) | to_device(host_device(), {}, two);
  REQUIRE_THROWS_WITH(block_on(loop, test::next_of(source)),
                      Contains("a batch has one field of undecoded images, and this one has left and right"));
}

TEST_CASE("a run that is dropped in the middle of decoding leaves nothing behind", "[cuda][nvjpeg]") {
  MILLRACE_CUDA_SESSION();
  const cuda::stream work;
  const cuda::nvjpeg gpu{cuda::stream()};
  runtime rt;
  for (int epoch = 0; epoch < 3; ++epoch) {
    auto run = rt.run(stream<photo>(photos(40, of_all())) | batch(4) | to_device(gpu, {.slots = 2}), {.prefetch = 1});
    std::optional<device_batch> b = run.next();
    REQUIRE(b);
    CHECK(alike(pixels_of(*b, work), wanted(0, 4, of_all())));
  }
}

#ifdef MILLRACE_FAKE_CUDA
TEST_CASE("a second epoch of JPEGs allocates nothing", "[cuda][nvjpeg]") {
  const test::cuda_session session;
  const cuda::stream work{cuda::device{0}};
  const cuda::nvjpeg gpu{cuda::stream(cuda::device{0})};
  runtime rt;
  std::size_t device = 0;
  std::size_t pinned = 0;
  std::size_t freed = 0;
  for (int epoch = 0; epoch < 4; ++epoch) {  // of batches of one size
    std::vector<device_batch> held;
    for (device_batch& b :
         rt.run(stream<photo>(photos(105, of_gpu())) | batch(35) | to_device(gpu, {.slots = 2}), {.prefetch = 1})) {
      b.wait(work);
      fake_cuda::kernel_read(work.get(), b.field("image").data(), b.field("image").bytes());
      held.push_back(std::move(b));
      if (held.size() == 2) held.clear();  // both slots at once
    }
    held.clear();
    if (epoch == 0) {
      device = fake_cuda::calls("cudaMalloc");
      pinned = fake_cuda::calls("cudaHostAlloc");
      freed = fake_cuda::calls("cudaFree");
    }
  }
  CHECK(fake_cuda::calls("cudaMalloc") == device);
  CHECK(fake_cuda::calls("cudaHostAlloc") == pinned);
  CHECK(fake_cuda::calls("cudaFree") == freed);
}

TEST_CASE("who reads pixels before they are decoded is caught", "[cuda][nvjpeg]") {
  fake_cuda::reset();
  {
    testing::virtual_loop loop;
    const cuda::stream work{cuda::device{0}};
    auto source = stream<photo>(photos(3, of_gpu())) | batch(3) | to_device(cuda::nvjpeg(cuda::stream()));
    const device_batch b = block_on(loop, test::next_of(source));
    fake_cuda::kernel_read(work.get(), b.field("image").data(), b.field("image").bytes());
    REQUIRE_FALSE(fake_cuda::violations().empty());
    CHECK_THAT(fake_cuda::violations()[0], Contains("race in device memory") && Contains("after the kernel"));
    work.synchronize();
  }
  fake_cuda::reset();
}

TEST_CASE("whatever the order of the device's work, pixels are whole", "[cuda][nvjpeg]") {
  const std::uint64_t first = testing::virtual_loop::seed_from_environment(1);
  for (std::uint64_t seed = first; seed < first + 30; ++seed) {
    INFO("seed " << seed);
    rng random(seed);
    const test::cuda_session session(test::drawn_options(seed, random));
    testing::virtual_loop loop(seed);
    const cuda::stream work{cuda::device{0}};
    auto source = stream<photo>(photos(20, of_all())) | batch(3) |
                  to_device(cuda::nvjpeg(cuda::stream()), {.slots = 1 + random.below(3)});
    const int last = random.below(2) == 0 ? 20 : 9;  // the stage is dropped then
    std::vector<std::string> seen(7);
    for (int begin = 0; begin < last; begin += 3) {
      device_batch b = block_on(loop, test::next_of(source));
      b.wait(work);
      std::string& to = seen[static_cast<std::size_t>(begin / 3)];
      const std::size_t n = b.field("image").bytes();
      fake_cuda::kernel(work.get(), b.field("image").data(), n,
                        [&to, n](const void* at) { to.assign(static_cast<const char*>(at), n); });
    }
    work.synchronize();
    for (int begin = 0; begin < last; begin += 3) {
      CHECK(seen[static_cast<std::size_t>(begin / 3)] == wanted(begin, begin + 3 < 20 ? begin + 3 : 20, of_all()));
    }
  }
}
#endif
