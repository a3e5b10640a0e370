// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/cuda/resident_images.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/cuda/nvjpeg.hpp>
#include <millrace/device/normalise_images.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "tests/cuda/photos.hpp"
#include "tests/cuda/points.hpp"
#include "tests/cuda/session.hpp"

using namespace millrace;
using namespace millrace::test;
using Catch::Matchers::Contains;

// Images that a GPU has decoded, or the host for it, and keeps.
namespace {

/// Photos of all kinds, what they become, and how many of them the host has decoded.
class album {
 public:
  explicit album(int n, const std::vector<kind>& kinds = of_all()) {
    for (int i = 0; i < n; ++i) {
      photos.emplace_back(i, kinds[static_cast<std::size_t>(i) % kinds.size()]);
      undecoded_image& image = photos.back().image;
      const pixel_buffer pixels = image.on_host->pixels(image.data, where());
      wanted.emplace_back(reinterpret_cast<const char*>(pixels.data()), pixels.size());
      pixel_bytes += pixels.size();
      image.on_host = std::make_shared<counting>(image.on_host, decoded);
      order.push_back(i);
    }
  }

  void shuffle(rng& random) {
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(i))]);
    }
  }
  std::size_t batches(std::size_t of) const { return (order.size() + of - 1) / of; }
  /// The pixels of the k-th batch.
  std::string pixels_of_batch(std::size_t k, std::size_t of) const {
    std::string all;
    for (std::size_t i = k * of; i < std::min((k + 1) * of, order.size()); ++i) {
      all += wanted[static_cast<std::size_t>(order[i])];
    }
    return all;
  }

  std::vector<photo> photos;
  std::vector<std::string> wanted;
  std::size_t pixel_bytes = 0;  // of all
  std::vector<int> order;
  std::shared_ptr<std::atomic<std::size_t>> decoded = std::make_shared<std::atomic<std::size_t>>(0);

 private:
  class counting final : public detail::host_image_decoder {
   public:
    counting(std::shared_ptr<const host_image_decoder> by, std::shared_ptr<std::atomic<std::size_t>> count)
        : by_(std::move(by)), count_(std::move(count)) {}
    pixel_buffer pixels(const bytes& data, const where& at) const override {
      ++*count_;
      return by_->pixels(data, at);
    }

   private:
    std::shared_ptr<const host_image_decoder> by_;
    std::shared_ptr<std::atomic<std::size_t>> count_;
  };
};

async_generator<photo> in_order(std::vector<photo> all, std::vector<int> order) {
  for (const int i : order) {
    photo p = all[static_cast<std::size_t>(i)];
    co_yield give(p);
  }
}
stream<photo> photos_of(const album& a) { return stream<photo>(in_order(a.photos, a.order)); }

/// With a crop of the epoch's.
auto cropped(int epoch) {
  return [left = static_cast<float>(epoch)](const photo& p, sample_writer& out) {
    out.key("p" + std::to_string(p.number));
    write_image(out, "image", p.image, image_box(left, 0, p.image.width, p.image.height));
  };
}

/// Runs an epoch: every pixel, every key and the epoch's crops are there.
template <class Device>
void run_epoch(runtime& rt, const album& a, const Device& gpu, std::size_t of, int epoch = 0) {
  const cuda::stream work;
  std::size_t k = 0;
  for (device_batch& b :
       rt.run(photos_of(a) | batch(of) | to_device(gpu, {.slots = 2}, cropped(epoch)), {.prefetch = 1})) {
    INFO("epoch " << epoch << ", batch " << k);
    CHECK(b.keys()[0] == "p" + std::to_string(a.order[k * of]));
    image_part first;
    std::memcpy(&first, b.host_field("image_parts").data(), sizeof first);
    CHECK(first.left == static_cast<float>(epoch));
    CHECK(alike(pixels_of(b, work), a.pixels_of_batch(k, of)));
    ++k;
  }
  CHECK(k == a.batches(of));
}

/// What has been decoded since the test began: on the host, and by the model's nvJPEG.
std::size_t decoded(const album& a) {
#ifdef MILLRACE_FAKE_CUDA
  return *a.decoded + fake_cuda::calls("cudaLaunchKernel");
#elif defined(MILLRACE_TEST_THREADED_CUDA)
  return *a.decoded + threaded_cuda::calls("cudaLaunchKernel");
#else
  return *a.decoded;
#endif
}

template <class Inner>
void keeps_the_first_epoch(const Inner& inner, bool page_locked) {
  INFO("page-locked: " << page_locked);
  album a(22);
  rng random(7);
  const std::size_t before = decoded(a);
  {
    const cuda::resident_images gpu(inner, {.bytes = MiB, .page_locked = page_locked});
    CHECK(gpu.kept() == 0);
    runtime rt;
    run_epoch(rt, a, gpu, 6, 0);
    CHECK(gpu.kept() == a.pixel_bytes);
    const std::size_t first = decoded(a);
#ifndef MILLRACE_TEST_REAL_CUDA
    CHECK(first == before + 22);
#endif
    for (int epoch = 1; epoch < 4; ++epoch) {
      a.shuffle(random);
      run_epoch(rt, a, gpu, static_cast<std::size_t>(3 + epoch * 2), epoch);
    }
    CHECK(decoded(a) == first);
    CHECK(gpu.kept() == a.pixel_bytes);
    gpu.forget();
    CHECK(gpu.kept() == 0);
    run_epoch(rt, a, gpu, 6);
    CHECK(decoded(a) - first == first - before);
  }
}

}  // namespace

TEST_CASE("a second epoch of images is copied: in another order, in other batches, with other crops", "[cuda][kept]") {
  MILLRACE_CUDA_SESSION();
  for (const bool page_locked : {false, true}) {
    keeps_the_first_epoch(cuda::nvjpeg(cuda::stream()), page_locked);
    keeps_the_first_epoch(cuda::stream(), page_locked);
  }
}

TEST_CASE("images that do not fit are decoded in every epoch, and that is said once", "[cuda][kept]") {
  MILLRACE_CUDA_SESSION();
  for (const bool page_locked : {false, true}) {
    std::string said;
    {
      album a(22);
      const std::size_t most = a.pixel_bytes / 2;
      const cuda::resident_images gpu(cuda::nvjpeg(cuda::stream()), {.bytes = most, .page_locked = page_locked});
      runtime_options with;
      const auto add = [&](const log_record& r) { said += std::string(r.text) + '\n'; };
      with.log = add;
      runtime rt(with);
      run_epoch(rt, a, gpu, 6);
      const std::size_t kept = gpu.kept();
      CHECK(kept <= most);
      CHECK(kept > most / 2);
      const std::size_t first = decoded(a);
      run_epoch(rt, a, gpu, 6);
      const std::size_t second = decoded(a) - first;
      CHECK(gpu.kept() == kept);
#ifndef MILLRACE_TEST_REAL_CUDA
      CHECK(second > 8);
      CHECK(second < 16);
#else
      CHECK(second <= 11);
#endif
    }
    INFO(said);
    const std::size_t line = said.find(" are full: what is beyond is decoded in every epoch");
    REQUIRE(line != std::string::npos);
    CHECK(said.find("are full", line + 20) == std::string::npos);
  }
}

TEST_CASE("the same file is kept once, and another file under its key is another image", "[cuda][kept]") {
  MILLRACE_CUDA_SESSION();
  album a(3);
  const cuda::resident_images gpu(cuda::stream(), {.bytes = MiB});
  runtime rt;
  a.order = {0, 1, 0, 2, 0};
  run_epoch(rt, a, gpu, 5);
  CHECK(gpu.kept() == a.pixel_bytes);
  album b(9);
  std::swap(a.photos[1].image, b.photos[7].image);
  a.wanted[1] = b.wanted[7];
  run_epoch(rt, a, gpu, 5);
  CHECK(gpu.kept() == a.pixel_bytes + b.wanted[7].size());
  CHECK(*b.decoded == 1);
}

TEST_CASE("images are distinguished by all their bytes, their size and their kind", "[cuda][kept]") {
  undecoded_image one;
  std::string file(5000, 'x');
  one.data = bytes::copy(file);
  one.height = 20;
  one.width = 30;
  one.plain_jpeg = true;
  const hash128 id = cuda::detail::image_store::id_of(one);
  CHECK(cuda::detail::image_store::id_of(one) == id);
  for (const std::size_t at :
       {std::size_t(0), std::size_t(511), std::size_t(512), std::size_t(2500), file.size() - 1}) {
    INFO(at);
    std::string changed = file;
    changed[at] = 'y';
    undecoded_image other = one;
    other.data = bytes::copy(changed);
    CHECK_FALSE(cuda::detail::image_store::id_of(other) == id);
  }
  undecoded_image other = one;
  other.data = bytes::copy(file + "x");
  CHECK_FALSE(cuda::detail::image_store::id_of(other) == id);
  other = one;
  std::swap(other.height, other.width);
  CHECK_FALSE(cuda::detail::image_store::id_of(other) == id);
  other = one;
  other.plain_jpeg = false;
  CHECK_FALSE(cuda::detail::image_store::id_of(other) == id);
}

TEST_CASE("a corrupt image is named, and those of the batches before it are kept", "[cuda][kept]") {
  MILLRACE_CUDA_SESSION();
  const cuda::resident_images gpu(cuda::nvjpeg(cuda::stream()), {.bytes = MiB});
  album a(9);
  bytes& data = a.photos[4].image.data;
  const bytes whole = data;
  data = data.slice(0, data.size() - 60);
  runtime rt;
  {
    auto run = rt.run(photos_of(a) | batch(3) | to_device(gpu), {.prefetch = 1});
    const cuda::stream work;
    std::optional<device_batch> b = run.next();
    REQUIRE(b);
    CHECK(alike(pixels_of(*b, work), a.pixels_of_batch(0, 3)));
    b.reset();
    REQUIRE_THROWS_WITH(run.next(), Contains("corrupt") && Contains("s3://photos/one.tar") && Contains("p4"));
  }
  CHECK(gpu.kept() == a.pixels_of_batch(0, 3).size());
  data = whole;
  run_epoch(rt, a, gpu, 3);
  CHECK(gpu.kept() == a.pixel_bytes);
}

TEST_CASE("a run that is dropped in the middle leaves images that are right", "[cuda][kept]") {
  MILLRACE_CUDA_SESSION();
  for (const bool page_locked : {false, true}) {
    const cuda::resident_images gpu(cuda::nvjpeg(cuda::stream()), {.bytes = MiB, .page_locked = page_locked});
    album a(40);
    runtime rt;
    for (int i = 0; i < 3; ++i) {
      auto run = rt.run(photos_of(a) | batch(4) | to_device(gpu, {.slots = 2}), {.prefetch = 1});
      REQUIRE(run.next());
    }
    rng random(3);
    a.shuffle(random);
    run_epoch(rt, a, gpu, 7);
    CHECK(gpu.kept() == a.pixel_bytes);
    run_epoch(rt, a, gpu, 7);
  }
}

TEST_CASE("two runs at once share the images that a GPU keeps", "[cuda][kept]") {
  MILLRACE_CUDA_SESSION();
  const cuda::resident_images gpu(cuda::nvjpeg(cuda::stream()), {.bytes = MiB});
  const cuda::stream work;
  album a(40);
  album same(40);
  rng random(5);
  same.shuffle(random);
  runtime rt({.loops = 2});
  for (int epoch = 0; epoch < 2; ++epoch) {
    auto one = rt.run(photos_of(a) | batch(4) | to_device(gpu, {.slots = 2}), {.prefetch = 1});
    auto other = rt.run(photos_of(same) | batch(5) | to_device(gpu, {.slots = 2}), {.prefetch = 1});
    for (std::size_t k = 0; k < 10; ++k) {
      std::optional<device_batch> b = one.next();
      REQUIRE(b);
      CHECK(alike(pixels_of(*b, work), a.pixels_of_batch(k, 4)));
      if (k >= 8) continue;
      b = other.next();
      REQUIRE(b);
      CHECK(alike(pixels_of(*b, work), same.pixels_of_batch(k, 5)));
    }
    CHECK(gpu.kept() == a.pixel_bytes);
  }
}

TEST_CASE("memory of images is freed after the copies that use it", "[cuda][kept]") {
  MILLRACE_CUDA_SESSION();
  for (const bool page_locked : {false, true}) {
    album a(12);
    const cuda::stream work;
    runtime rt;  // has a copy of the first
    for (int i = 0; i < 4; ++i) {
      const cuda::resident_images gpu(cuda::stream(), {.bytes = MiB, .page_locked = page_locked});
      for (int epoch = 0; epoch < 2; ++epoch) {
        auto run = rt.run(photos_of(a) | batch(12) | to_device(gpu), {.prefetch = 1});
        std::optional<device_batch> b = run.next();
        REQUIRE(b);
        b->wait(work);
        if (epoch == 1 && i % 2 == 0) gpu.forget();
      }
    }
  }
}

TEST_CASE("resident images need .bytes, which a memory budget counts", "[cuda][kept]") {
  MILLRACE_CUDA_SESSION();
  REQUIRE_THROWS_WITH(cuda::resident_images(cuda::stream(), {}), Contains("resident_images needs .bytes"));
  album a(3);
  runtime rt;
  for (const bool page_locked : {false, true}) {
    const cuda::resident_images gpu(cuda::stream(), {.bytes = 64 * MiB, .page_locked = page_locked});
    const auto made = [&] {
      return photos_of(a) | batch(3, {.bytes = MiB}) | to_device(gpu, {.slots = 2, .slot_bytes = MiB});
    };
    const run_options enough{.prefetch = 1, .prefetch_bytes = MiB, .budget = 70 * MiB};
    const run_options too_little{.prefetch = 1, .prefetch_bytes = MiB, .budget = 69 * MiB};
    CHECK(rt.run(made(), enough).next());
    REQUIRE_THROWS_WITH(rt.run(made(), too_little), Contains("the stages may hold 73") &&
                                                        Contains("resident images 67.1 MB") &&
                                                        Contains("budget of 72"));
  }
}

#ifdef MILLRACE_FAKE_CUDA
TEST_CASE("memory that there is not is named", "[cuda][kept]") {
  fake_cuda::options with;
  with.largest_allocation = 4 * MiB;
  const test::cuda_session session(with);
  album a(3);
  for (const bool page_locked : {false, true}) {
    const cuda::resident_images gpu(cuda::stream(), {.bytes = 40 * GiB, .page_locked = page_locked});
    testing::virtual_loop loop;
    auto source = photos_of(a) | batch(3) | to_device(gpu);
    REQUIRE_THROWS_WITH(block_on(loop, test::next_of(source)),
                        Contains(page_locked ? "cudaHostAlloc failed: out of memory" : "cudaMalloc failed: out of") &&
                            Contains("67.1 MB for resident images, which have 0 B of 42.9 GB"));
  }
}

TEST_CASE("after the first epoch of images nothing is allocated or freed", "[cuda][kept]") {
  const test::cuda_session session;
  album a(105);  // batches of 35 are of one size
  const cuda::stream work;
  for (const bool page_locked : {false, true}) {
    const cuda::resident_images gpu(cuda::nvjpeg(cuda::stream()), {.bytes = MiB, .page_locked = page_locked});
    runtime rt;
    std::vector<std::size_t> calls;
    for (int epoch = 0; epoch < 4; ++epoch) {
      std::vector<device_batch> held;
      for (device_batch& b : rt.run(photos_of(a) | batch(35) | to_device(gpu, {.slots = 2}), {.prefetch = 1})) {
        b.wait(work);
        fake_cuda::kernel_read(work.get(), b.field("image").data(), b.field("image").bytes());
        held.push_back(std::move(b));
        if (held.size() == 2) held.clear();  // both slots at once
      }
      held.clear();
      std::vector<std::size_t> now;
      for (const char* name : {"cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost"}) {
        now.push_back(fake_cuda::calls(name));
      }
      if (epoch == 0) calls = now;
      CHECK(now == calls);
    }
  }
}

TEST_CASE("whatever the order of the device's work, images that are kept are whole", "[cuda][kept]") {
  const std::uint64_t first = testing::virtual_loop::seed_from_environment(1);
  for (std::uint64_t seed = first; seed < first + 30; ++seed) {
    INFO("seed " << seed);
    rng random(seed);
    const test::cuda_session session(test::drawn_options(seed, random));
    testing::virtual_loop loop(seed);
    const cuda::stream work{cuda::device{0}};
    album a(20);
    const std::size_t most = random.below(2) == 0 ? MiB : a.pixel_bytes / 2;
    const cuda::resident_images gpu(cuda::nvjpeg(cuda::stream()), {.bytes = most, .page_locked = random.below(2) == 0});
    for (int epoch = 0; epoch < 3; ++epoch) {
      a.shuffle(random);
      const std::size_t of = 2 + random.below(4);
      auto source = photos_of(a) | batch(of) | to_device(gpu, {.slots = 1 + random.below(3)});
      const std::size_t last = random.below(2) == 0 ? a.batches(of) : 3;  // the stage is dropped then
      std::vector<std::string> seen(last);
      for (std::size_t k = 0; k < last; ++k) {
        device_batch b = block_on(loop, test::next_of(source));
        b.wait(work);
        std::string& to = seen[k];
        const std::size_t n = b.field("image").bytes();
        fake_cuda::kernel(work.get(), b.field("image").data(), n,
                          [&to, n](const void* at) { to.assign(static_cast<const char*>(at), n); });
      }
      work.synchronize();
      for (std::size_t k = 0; k < last; ++k) CHECK(seen[k] == a.pixels_of_batch(k, of));
    }
  }
}
#endif
