// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/normalise.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/cuda/stream_device.hpp>
#include <millrace/decode/write_image.hpp>
#include <millrace/device/batch_pool.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/cuda/points.hpp"
#include "tests/cuda/session.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

// What the kernel of normalise_images() makes of a batch is what the function for the host makes of the same batch.
namespace {

constexpr int out_height = 5;
constexpr int out_width = 6;

/// Of a size of its own, and a part of it: of the result's size where `resized` is false.
class photo {
 public:
  photo(int i, bool resized) : number(i) {
    const int height = 7 + i % 4;
    const int width = 6 + i % 5;
    std::vector<std::uint8_t> values;
    for (int p = 0; p < height * width * 3; ++p) values.push_back(static_cast<std::uint8_t>(p * 37 + i * 11 + 1));
    pixels = image(std::move(values), height, width, 3);
    box = resized ? image_box(0.25 * (i % 3), 0, width - 0.5, 3 + i % 4)
                  : image_box(width - out_width, i % 3, width, i % 3 + out_height);
  }
  int number;
  image pixels;
  image_box box;
};

void collate(const photo& p, sample_writer& out) {
  out.key("p" + std::to_string(p.number));
  write_image(out, "image", p.pixels, p.box, p.number % 2 == 1);
}

async_generator<photo> photos(int n, bool resized) {
  for (int i = 0; i < n; ++i) {
    photo p(i, resized);
    co_yield give(p);
  }
}

struct tensor_of {
  tensor_of(dtype t, std::size_t images, std::int64_t height, std::int64_t width)
      : type(t), dims{static_cast<std::int64_t>(images), 3, height, width} {}
  dtype type;
  shape dims;
  std::size_t bytes() const { return dims.elements() * size_of(type); }
};

std::string on_the_host(const device_batch& b, const tensor_of& t, const normalise_options& how) {
  std::string result(t.bytes(), '?');
  normalise_images(b, "image", tensor_view(result.data(), t.type, t.dims), how);
  return result;
}

std::string on_the_gpu(device_batch& b, const tensor_of& t, const normalise_options& how) {
  const cuda::stream work;
  const cuda::device_memory memory(t.bytes(), work.on());
  b.wait(work);
  test::normalise(b, "image", tensor_view(memory.data(), t.type, t.dims), work, how);
  b.release(work);
  return test::read_back(work.get(), memory.data(), t.bytes());
}

/// The largest difference of two tensors without negative values, in steps of their type.
std::int64_t steps_apart(const std::string& a, const std::string& b, dtype type) {
  REQUIRE(a.size() == b.size());
  std::int64_t most = 0;
  for (std::size_t at = 0; at < a.size(); at += size_of(type)) {
    std::uint32_t one = 0;
    std::uint32_t other = 0;
    std::memcpy(&one, a.data() + at, size_of(type));
    std::memcpy(&other, b.data() + at, size_of(type));
    most = std::max(most, std::abs(static_cast<std::int64_t>(one) - static_cast<std::int64_t>(other)));
  }
  return most;
}

/// Both batches of `n` photos.
std::pair<std::string, std::string> both(dtype type, int n, bool resized, const normalise_options& how) {
  testing::virtual_loop loop;
  const cuda::stream copies;
  const auto size = static_cast<std::size_t>(n);
  auto there = stream<photo>(photos(n, resized)) | batch(size) | to_device(copies);
  auto here = stream<photo>(photos(n, resized)) | batch(size) | to_device(host_device());
  const tensor_of t(type, size, out_height, out_width);
  device_batch b = block_on(loop, test::next_of(there));
  const device_batch twin = block_on(loop, test::next_of(here));
  return {on_the_gpu(b, t, how), on_the_host(twin, t, how)};
}

const normalise_options imagenet{.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}};

}  // namespace

TEST_CASE("a kernel crops, mirrors and normalises as the host does", "[cuda][normalise]") {
  MILLRACE_CUDA_SESSION();
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    INFO(name_of(type));
    const auto [gpu, host] = both(type, 10, false, imagenet);
    CHECK(gpu == host);
  }
}

TEST_CASE("a kernel resizes as the host does", "[cuda][normalise]") {
  MILLRACE_CUDA_SESSION();
  // A GPU multiplies and adds in one step where the host rounds between: the last bits differ.
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    INFO(name_of(type));
    const auto [gpu, host] = both(type, 9, true, {});
#ifdef MILLRACE_TEST_REAL_CUDA
    CHECK(steps_apart(gpu, host, type) <= (type == dtype::f32 ? 128 : 1));
#else
    CHECK(steps_apart(gpu, host, type) == 0);
#endif
  }
}

TEST_CASE("a kernel normalises more images than a grid is high", "[cuda][normalise]") {
  MILLRACE_CUDA_SESSION();
  constexpr std::size_t images = 66000;
  const cuda::stream copies;
  batch_pool pool(batch_layout(images, {{"image", dtype::u8, {1, 1, 3}}}), copies);
  batch_builder builder = pool.start();
  for (std::size_t i = 0; i < images; ++i) {
    const batch_row row = builder.row(i);
    const std::span<std::uint8_t> pixel = row.values<std::uint8_t>("image");
    for (std::size_t c = 0; c < 3; ++c) pixel[c] = static_cast<std::uint8_t>(i / 256 + c);
    row.done();
  }
  const auto one = [](host_batch b) -> async_generator<host_batch> { co_yield give(b); };
  testing::virtual_loop loop;
  auto source = stream<host_batch>(one(std::move(builder).seal())) | to_device(copies);
  device_batch b = block_on(loop, test::next_of(source));
  const float one_step = 1 / 255.0f;
  const std::string got = on_the_gpu(b, tensor_of(dtype::f32, images, 1, 1), {.std = {one_step, one_step, one_step}});
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < images * 3; ++i) {
    float value = 0;
    std::memcpy(&value, got.data() + i * sizeof value, sizeof value);
    const auto wanted = static_cast<std::uint8_t>(i / 3 / 256 + i % 3);
    if (value < static_cast<float>(wanted) - 0.01f || value > static_cast<float>(wanted) + 0.01f) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a batch is normalised on a stream of its own GPU", "[cuda][normalise]") {
  MILLRACE_CUDA_SESSION();
  testing::virtual_loop loop;
  auto source = stream<photo>(photos(1, false)) | batch(1) | to_device(host_device());
  const device_batch b = block_on(loop, test::next_of(source));
  const cuda::stream work;
  const tensor_view nowhere(nullptr, dtype::f32, {1, 3, out_height, out_width});
  REQUIRE_THROWS_WITH(test::normalise(b, "image", nowhere, work, {}),
                      Contains("a batch on host is to be normalised on a stream of cuda:0"));
}

#ifdef MILLRACE_FAKE_CUDA
TEST_CASE("a kernel that does not wait for the copy is found", "[cuda][normalise]") {
  fake_cuda::reset();
  {
    testing::virtual_loop loop;
    const cuda::stream copies;
    const cuda::stream work;
    const cuda::stream other;
    const tensor_of t(dtype::f16, 1, out_height, out_width);
    const cuda::device_memory memory(t.bytes(), work.on());
    auto source = stream<photo>(photos(1, false)) | batch(1) | to_device(copies);
    device_batch b = block_on(loop, test::next_of(source));
    b.wait(other);
    test::normalise(b, "image", tensor_view(memory.data(), t.type, t.dims), work, {});
    b.release(work);
    work.synchronize();
  }
  const std::vector<std::string> wrong = fake_cuda::violations();
  fake_cuda::reset();
  REQUIRE_FALSE(wrong.empty());
  CHECK_THAT(wrong[0], Contains("race") && Contains("is not ordered after the copy"));
}
#endif
