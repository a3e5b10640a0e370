// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The order of decoding, of keeping images and of the use of memory, as kernels see it, like ordering_test.cpp for
// copies. Each photo is of one grey, so that a kernel can tell them apart. defects.py breaks the library and sees these
// tests fail.

#include <millrace/cuda/nvjpeg.hpp>
#include <millrace/cuda/resident_images.hpp>
#include <millrace/device/to_device.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/decode/write_image.hpp>
#include <millrace/device/undecoded_image.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/memory/pixel_pool.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "examples/common/encode_jpeg.hpp"
#include "tests/cuda/points.hpp"
#include "tests/cuda/session.hpp"
#include "tests/cuda/watch.hpp"

using namespace millrace;
using test::next_of;
using namespace std::chrono_literals;

namespace {

constexpr int photo_width = 40;
constexpr int photo_height = 24;

int level_of(int batch) { return 30 + 12 * batch; }

const image_decoder& grey_decoder() {
  static const image_decoder made({.height = 8, .width = 8});
  return made;
}

struct grey_photo {
  undecoded_image image;
};
/// `channels`: with 3 of them nvJPEG decodes it, with 1 the host does.
grey_photo photo_of(int level, int channels) {
  const std::vector<std::uint8_t> pixels(static_cast<std::size_t>(photo_width * photo_height * channels),
                                         static_cast<std::uint8_t>(level));
  examples::jpeg_kind how;
  how.channels = channels;
  return {grey_decoder().undecoded(bytes::copy(examples::encode_jpeg(pixels, photo_width, photo_height, how)))};
}
void collate(const grey_photo& p, sample_writer& out) {
  write_image(out, "image", p.image, image_box(0, 0, photo_width, photo_height));
}

/// Batch i has two photos of level_of(i): nvJPEG decodes one, the host the other.
async_generator<grey_photo> grey_photos(int batches) {
  for (int i = 0; i < batches; ++i) {
    for (const int channels : {3, 1}) {
      grey_photo p = photo_of(level_of(i), channels);
      co_yield give(p);
    }
  }
}
template <class Device>
auto batches_on(const Device& gpu, int batches, std::size_t slots) {
  return stream<grey_photo>(grey_photos(batches)) | batch(2) | to_device(gpu, {.slots = slots});
}

/// Page-locked memory, which is written over when it is given back, as its next user would, and used again.
class recycled_memory {
 public:
  recycled_memory() = default;
  recycled_memory(const recycled_memory&) = delete;
  recycled_memory& operator=(const recycled_memory&) = delete;
  ~recycled_memory() {
    for (void* const p : free_) static_cast<void>(cudaFreeHost(p));
  }
  void* take(std::size_t n) {
    REQUIRE(n <= piece);
    if (!free_.empty()) {
      void* const p = free_.back();
      free_.pop_back();
      return p;
    }
    void* p = nullptr;
    REQUIRE(cudaHostAlloc(&p, piece, cudaHostAllocDefault) == cudaSuccess);
    return p;
  }
  void give_back(void* p) {
    std::memset(p, 0x5a, piece);
    free_.push_back(p);
  }

 private:
  static constexpr std::size_t piece = 8192;
  std::vector<void*> free_;
};
template <class T>
struct recycling {
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  recycling() = default;
  explicit recycling(recycled_memory& m) : memory(&m) {}
  T* allocate(std::size_t n) { return static_cast<T*>(memory->take(n * sizeof(T))); }
  void deallocate(T* p, std::size_t) noexcept { memory->give_back(p); }
  bool operator==(const recycling&) const = default;
  recycled_memory* memory = nullptr;
};

/// Decodes into that memory, from which copies are asynchronous.
class into_page_locked final : public detail::host_image_decoder {
 public:
  into_page_locked(std::shared_ptr<const host_image_decoder> by, recycled_memory& to) : by_(std::move(by)), to_(&to) {}
  pixel_buffer pixels(const bytes& data, const where& at) const override {
    const pixel_buffer made = by_->pixels(data, at);
    return std::vector<std::uint8_t, recycling<std::uint8_t>>(made.data(), made.data() + made.size(),
                                                              recycling<std::uint8_t>(*to_));
  }

 private:
  std::shared_ptr<const host_image_decoder> by_;
  recycled_memory* to_;
};
async_generator<grey_photo> photos_into(recycled_memory& memory, int number) {
  for (int i = 0; i < number; ++i) {
    grey_photo p = photo_of(level_of(i), 1);
    p.image.on_host = std::make_shared<const into_page_locked>(p.image.on_host, memory);
    co_yield give(p);
  }
}

/// The streams on which the library might do too early, or too late, what belongs to the stream of the copies.
std::vector<cudaStream_t> streams_beside(const cuda::stream& copies) { return {copies.get(), nullptr}; }

/// The gate opens when the host has to wait: it has done all that it can without what waits for the gate.
class gated_gpu : public cuda::nvjpeg {
 public:
  gated_gpu(const cuda::stream& copies, test::watch& told) : cuda::nvjpeg(copies), told_(&told) {}
  using cuda::nvjpeg::synchronize;
  void synchronize(const event_type& e) const {
    if (!query(e)) told_->open();
    cuda::nvjpeg::synchronize(e);
  }

 private:
  test::watch* told_;
};

/// Keeps images late: the stream of the copies pauses between what decodes them and the copies of keep().
class late_keeper : public cuda::resident_images<cuda::nvjpeg> {
 public:
  late_keeper(const cuda::stream& copies, const cuda::resident_images_options& with, test::watch& told)
      : resident_images(cuda::nvjpeg(copies), with), told_(&told) {}
  void keep(const cuda::detail::image_store::images& images, const decoding& with) const {
    test::watch::hold(copies().get(), told_->next(), pause);
    resident_images::keep(images, with);
  }
  duration pause = 40ms;

 private:
  test::watch* told_;
};

}  // namespace

TEST_CASE("a kernel after wait() finds every image decoded, by the GPU and by the host", "[cuda][ordering]") {
  for (std::size_t held = 0; held < 2; ++held) {
    INFO("stream " << held << " is late");
    MILLRACE_CUDA_SESSION();
    test::watch watch;
    testing::virtual_loop loop;
    const cuda::stream copies{cuda::device{0}};
    const cuda::stream training{cuda::device{0}};
    auto stream = batches_on(cuda::nvjpeg(copies), 5, 1);
    for (int i = 0; i < 5; ++i) {
      test::watch::hold(streams_beside(copies)[held], watch.next(), i == 4 ? 400ms : 40ms);
      device_batch b = block_on(loop, next_of(stream));
      REQUIRE(b);
      b.wait(training);
      watch.look_at_pixels(training.get(), b.field("image"), level_of(i));
      b.release(training);
      training.synchronize();  // or the loop, whose clock is virtual, would ask for the slot without a pause
    }
    watch.check();
  }
}

TEST_CASE("memory that a batch is decoded with serves another one only when that is done", "[cuda][ordering]") {
  MILLRACE_CUDA_SESSION();
  test::watch watch;
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  auto stream = batches_on(cuda::nvjpeg(copies), 8, 2);
  for (int i = 0; i < 8; i += 2) {
    if (i != 0) watch.close();  // later than the allocations
    watch.hold(copies.get());
    device_batch one = block_on(loop, next_of(stream));
    device_batch other = block_on(loop, next_of(stream));
    REQUIRE(other);
    one.wait(training);
    watch.look_at_pixels(training.get(), one.field("image"), level_of(i));
    one.release(training);
    other.wait(training);
    watch.look_at_pixels(training.get(), other.field("image"), level_of(i + 1));
    other.release(training);
    watch.open();
    training.synchronize();
  }
  watch.check();
}

TEST_CASE("memory that a batch is decoded with is freed only when that is done", "[cuda][ordering]") {
  MILLRACE_CUDA_SESSION();
  test::watch watch;
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  const gated_gpu gpu(copies, watch);
  for (int epoch = 0; epoch < 3; ++epoch) {
    testing::virtual_loop loop;
    auto stream = batches_on(gpu, 2, 1);
    device_batch b = block_on(loop, next_of(stream));
    REQUIRE(b);
    b.synchronize();
    watch.close();
    watch.hold(copies.get());
    b = device_batch();
    b = block_on(loop, next_of(stream));
    REQUIRE(b);
    b.wait(training);
    watch.look_at_pixels(training.get(), b.field("image"), level_of(1));
    b.release(training);
  }
  watch.check();
}

TEST_CASE("pixels that the host has decoded stay until they are copied", "[cuda][ordering]") {
  MILLRACE_CUDA_SESSION();
  test::watch watch;
  recycled_memory memory;
  testing::virtual_loop loop;
  const cuda::stream copies{cuda::device{0}};
  const cuda::stream training{cuda::device{0}};
  auto stream = millrace::stream<grey_photo>(photos_into(memory, 6)) | batch(1) | to_device(copies, {.slots = 1});
  for (int i = 0; i < 6; ++i) {
    if (i != 0) watch.close();  // later than the allocations
    watch.hold(copies.get());
    device_batch b = block_on(loop, next_of(stream));
    REQUIRE(b);
    b.wait(training);
    watch.look_at_pixels(training.get(), b.field("image"), level_of(i));
    b.release(training);
    watch.open();
    training.synchronize();
  }
  watch.check();
}

TEST_CASE("images are kept when they are decoded, and are there when a kernel reads them", "[cuda][ordering]") {
  for (std::size_t held = 0; held < 2; ++held) {
    for (const bool page_locked : {false, true}) {
      INFO("stream " << held << " is late, page-locked: " << page_locked);
      MILLRACE_CUDA_SESSION();
      test::watch watch;
      testing::virtual_loop loop;
      const cuda::stream copies{cuda::device{0}};
      const cuda::stream training{cuda::device{0}};
      const cuda::resident_images gpu(cuda::nvjpeg(copies), {.bytes = MiB, .page_locked = page_locked});
      for (int epoch = 0; epoch < 2; ++epoch) {
        auto stream = batches_on(gpu, 3, 1);
        for (int i = 0; i < 3; ++i) {
          INFO("epoch " << epoch << ", batch " << i);
          test::watch::hold(streams_beside(copies)[held], watch.next(), epoch == 1 && i == 2 ? 400ms : 40ms);
          device_batch b = block_on(loop, next_of(stream));
          REQUIRE(b);
          b.wait(training);
          watch.look_at_pixels(training.get(), b.field("image"), level_of(i));
          b.release(training);
          training.synchronize();
        }
      }
      CHECK(gpu.kept() == std::size_t(3 * 2 * 3 * photo_width * photo_height));
      watch.check();
    }
  }
}

TEST_CASE("a step that writes into its batch changes no image that is kept", "[cuda][ordering]") {
  for (const bool page_locked : {false, true}) {
    INFO("page-locked: " << page_locked);
    MILLRACE_CUDA_SESSION();
    test::watch watch;
    testing::virtual_loop loop;
    const cuda::stream copies{cuda::device{0}};
    const cuda::stream training{cuda::device{0}};
    late_keeper gpu(copies, {.bytes = MiB, .page_locked = page_locked}, watch);
    for (int epoch = 0; epoch < 2; ++epoch) {
      gpu.pause = epoch == 0 ? 100ms : 0ms;
      auto stream = batches_on(gpu, 4, 1);
      for (int i = 0; i < 4; ++i) {
        device_batch b = block_on(loop, next_of(stream));
        REQUIRE(b);
        b.wait(training);
        const tensor_view pixels = b.field("image");
        if (epoch == 1) watch.look_at_pixels(training.get(), pixels, level_of(i), 0s);
        REQUIRE(cudaMemsetAsync(pixels.data(), 0xff, pixels.bytes(), training.get()) == cudaSuccess);
        b.release(training);
        training.synchronize();
      }
    }
    watch.check();
  }
}

TEST_CASE("images are forgotten when the copies from them are done", "[cuda][ordering]") {
  for (const bool page_locked : {false, true}) {
    for (const duration pause : {duration(40ms), duration(400ms)}) {
      INFO("page-locked: " << page_locked);
      MILLRACE_CUDA_SESSION();
      test::watch watch;
      testing::virtual_loop loop;
      const cuda::stream copies{cuda::device{0}};
      const cuda::stream training{cuda::device{0}};
      const cuda::resident_images gpu(cuda::nvjpeg(copies), {.bytes = MiB, .page_locked = page_locked});
      {
        auto stream = batches_on(gpu, 2, 1);
        while (device_batch b = block_on(loop, next_of(stream))) b.synchronize();
      }
      auto stream = batches_on(gpu, 1, 1);
      test::watch::hold(copies.get(), watch.next(), pause);
      device_batch b = block_on(loop, next_of(stream));
      REQUIRE(b);
      b.wait(training);
      watch.look_at_pixels(training.get(), b.field("image"), level_of(0), 0s);
      gpu.forget();
      CHECK(gpu.kept() == 0);
      b.release(training);
      watch.check();
    }
  }
}
