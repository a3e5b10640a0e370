// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What to_device costs and hides, on a GPU: batches of 256 images of 224x224x3 bytes from page-locked memory, beside
// bare cudaMemcpyAsync from the same memory; and whether copies, the host's work and the device's overlap. The step of
// the training loop is a stream that fills device memory, which takes longer than a copy. And a checkpoint of 512 MiB
// from a store to the device by s3.read(), through memory of the program and through page-locked memory.
// images: the README's pipeline, from a store in a process of its own on core 0, which decodes 110 KB JPEGs on the pool
// and copies 224x224x3 bytes of each; beside it, in turns, nvJPEG's decoders, which are sent the files and leave all
// 500x375x3 bytes on the device; and bare copies of the former's batches.
// memory: what slabs of 8 MiB cost when they are allocated, written for the first time and again.
// Without a GPU it says so, and measures plain memory alone.
// Build: c++ -std=c++20 -O3 -DMILLRACE_WITH_JPEG -Iinclude -I. bench/device_bench.cpp -o device_bench -lcurl -luring
// -lssl -lcrypto -lexpat -larchive -ljpeg -lnvjpeg -lcudart
//
//   device_bench [batches per round, default 200] [copies | images | memory, default all]

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/cuda/nvjpeg.hpp>
#include <millrace/decode/decode_images.hpp>
#include <millrace/decode/write_image.hpp>
#include <millrace/millrace.hpp>
#include <millrace/millrace_cuda.hpp>
#include <millrace/tar/writer.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/photo.hpp"
#include "bench/common/served.hpp"

namespace {

namespace mill = millrace;

constexpr std::size_t slots = 3;
constexpr std::size_t in_batch = 256;
constexpr std::size_t checkpoint_bytes = std::size_t(512) << 20;
constexpr const char* checkpoint_url = "s3://b/checkpoint";

mill::batch_layout images() { return mill::batch_layout(in_batch, {{"image", mill::dtype::u8, {224, 224, 3}}}); }

void check(cudaError_t code) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "device_bench: %s\n", cudaGetErrorString(code));
  std::exit(1);
}

/// Full batches whose pixels are whatever is there: the cost of filling them is not the question.
mill::async_generator<mill::host_batch> batches(mill::batch_pool pool, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    mill::batch_builder builder = pool.start();
    for (std::size_t r = 0; r < builder.capacity(); ++r) builder.row(r).done();
    mill::host_batch b = std::move(builder).seal();
    co_yield give(b);
  }
}

/// Device memory to write, `times` over: stands for a training step of that length.
class busywork {
 public:
  explicit busywork(int times) : times_(times) { check(cudaMalloc(&memory_, size)); }
  busywork(const busywork&) = delete;
  busywork& operator=(const busywork&) = delete;
  ~busywork() { cudaFree(memory_); }
  void enqueue(cudaStream_t stream) const {
    for (int i = 0; i < times_; ++i) check(cudaMemsetAsync(memory_, i, size, stream));
  }

 private:
  static constexpr std::size_t size = std::size_t(1) << 30;
  void* memory_ = nullptr;
  int times_;
};

/// Copies of batches that are in page-locked memory, by nothing but the runtime.
class bare_copies {
 public:
  explicit bare_copies(const mill::cuda::stream& copies)
      : copies_(copies), pinned_(images().bytes(), std::make_shared<mill::cuda::pinned_source>()) {
    for (std::size_t i = 0; i < slots; ++i) from_.push_back(pinned_.acquire());
  }
  std::uint64_t run(std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t n = images().bytes();
      check(cudaMemcpyAsync(static_cast<char*>(to_.data()) + i % slots * n, from_[i % slots].data(), n,
                            cudaMemcpyHostToDevice, copies_.get()));
    }
    copies_.synchronize();
    return count * images().bytes();
  }

 private:
  const mill::cuda::stream& copies_;
  mill::slab_pool pinned_;
  std::vector<mill::writable_bytes> from_;
  mill::cuda::device_memory to_{slots * images().bytes(), copies_.on()};
};

mill::task<void> consume(mill::stream<mill::device_batch> all, mill::cuda::stream on, const busywork* work,
                         std::uint64_t& total) {
  while (std::optional<mill::device_batch> b = co_await all.next()) {
    total += b->bytes();
    b->wait(on);
    if (work != nullptr) work->enqueue(on.get());
    b->release(on);
  }
}

std::uint64_t through_to_device(mill::event_loop& loop, const mill::batch_pool& pool, const mill::cuda::stream& copies,
                                const mill::cuda::stream& training, const busywork* work, std::size_t count) {
  std::uint64_t total = 0;
  mill::block_on(loop,
                 consume(batches(pool, count) | mill::to_device(copies, {.slots = slots}), training, work, total));
  training.synchronize();
  return total;
}

/// The checkpoint by way of `memory`, which takes all of it, to the device.
std::uint64_t restore(mill::event_loop& loop, const mill::s3::client& s3, std::span<std::byte> memory, void* to,
                      const mill::cuda::stream& copies) {
  if (mill::block_on(loop, s3.read(checkpoint_url, memory)) != checkpoint_bytes) std::abort();
  check(cudaMemcpyAsync(to, memory.data(), memory.size(), cudaMemcpyHostToDevice, copies.get()));
  copies.synchronize();
  return checkpoint_bytes;
}

void copies_and_overlap(mill::event_loop& loop, std::size_t count) {
  const mill::cuda::stream copies;
  const mill::cuda::stream training;
  const mill::batch_pool pool(images(), copies);
  {
    const bare_copies bus(copies);
    bench::contender bare("bare cudaMemcpyAsync", [&] { return bus.run(count); });
    bench::contender ours("to_device", [&] { return through_to_device(loop, pool, copies, training, nullptr, count); });
    bench::take_turns({&bare, &ours});
    bench::print_table({&bare, &ours});
    bench::goal_at_least("GB/s, to_device / bare copies", bench::ratio(ours.gb_per_second, bare.gb_per_second), 0.95);
  }
  const busywork work(8);
  bench::contender alone("steps alone", [&] {
    for (std::size_t i = 0; i < count; ++i) work.enqueue(training.get());
    training.synchronize();
    return count * images().bytes();
  });
  bench::contender both("steps fed by to_device",
                        [&] { return through_to_device(loop, pool, copies, training, &work, count); });
  bench::take_turns({&alone, &both});
  std::printf("\noverlap: GB/s of the batches that the steps used up\n");
  bench::print_table({&alone, &both});
  bench::goal_at_least("steps/s, fed by to_device / alone", bench::ratio(both.gb_per_second, alone.gb_per_second),
                       0.95);
}

void checkpoint(mill::event_loop& loop, const mill::s3::client& s3) {
  const mill::cuda::stream copies;
  std::vector<std::byte> pageable(checkpoint_bytes, std::byte(1));
  mill::slab_pool large(checkpoint_bytes, std::make_shared<mill::cuda::pinned_source>());
  mill::writable_bytes locked = large.acquire();
  const mill::cuda::device_memory to(checkpoint_bytes, copies.on());
  bench::contender through_own("s3.read(), memory of the program",
                               [&] { return restore(loop, s3, pageable, to.data(), copies); });
  bench::contender through_locked("s3.read(), page-locked memory", [&] {
    std::span<std::byte> memory(reinterpret_cast<std::byte*>(locked.data()), checkpoint_bytes);
    return restore(loop, s3, memory, to.data(), copies);
  });
  bench::take_turns({&through_own, &through_locked});
  std::printf("\na checkpoint of 512 MiB, from the store to the device\n");
  bench::print_table({&through_own, &through_locked});
  bench::goal_at_least("GB/s, page-locked / memory of the program",
                       bench::ratio(through_locked.gb_per_second, through_own.gb_per_second), 1);
}

/// A shard of one batch of images; `files` are the bytes of their JPEGs.
std::string photo_shard(std::size_t& files) {
  std::string text;
  mill::tar::writer archive(text);
  std::vector<std::string> photos;
  for (std::uint64_t i = 0; i < 32; ++i) photos.push_back(bench::make_photo(i));
  for (std::size_t i = 0; i < in_batch; ++i) {
    const std::string name = std::to_string(1000 + i);
    archive.add(name + ".jpg", photos[i % photos.size()]);
    archive.add(name + ".cls", "7");
    files += photos[i % photos.size()].size();
  }
  archive.finish();
  return text;
}

mill::stream<mill::sample> samples(const mill::s3::client& s3) {
  return s3.list("s3://b/train/") | mill::shuffle_shards({.seed = 7}) | mill::fetch(s3) | mill::untar() |
         mill::group_samples() | mill::shuffle({.window = 512, .seed = 7});
}

/// The README's pipeline, but for the shuffle's window, which is an eighth: a round is short.
mill::stream<mill::device_batch> decoded_on_pool(const mill::s3::client& s3, const mill::cuda::stream& copies) {
  return samples(s3) |
         mill::decode_images({.height = 224, .width = 224, .crop = mill::crop::random_resized{}, .flip = 0.5}) |
         mill::batch(in_batch) | mill::to_device(copies, {.slots = slots});
}

struct jpeg_photo {
  std::string key;
  mill::undecoded_image image;
};
void collate(const jpeg_photo& p, mill::sample_writer& out) {
  out.key(p.key);
  mill::write_image(out, "image", p.image, mill::image_box(0, 0, p.image.width, p.image.height));
}

mill::stream<mill::device_batch> decoded_on_gpu(const mill::s3::client& s3, const mill::cuda::nvjpeg& gpu) {
  const mill::image_decoder decoder({.height = 224, .width = 224});
  const auto header = [decoder](const mill::sample& s) { return jpeg_photo{s.key, decoder.undecoded(s["jpg"])}; };
  return samples(s3) | mill::map(header) | mill::batch(in_batch) | mill::to_device(gpu, {.slots = slots});
}

/// The images of all batches; `stages` becomes the table of their run.
std::size_t take(mill::runtime& rt, mill::stream<mill::device_batch> batches, const mill::cuda::stream& on,
                 std::string& stages) {
  std::size_t n = 0;
  auto run = rt.run(std::move(batches), {.prefetch = 2});
  for (mill::device_batch& b : run) {
    n += b.size();
    b.wait(on);
    b.release(on);
  }
  on.synchronize();
  stages = run.stats().table();
  return n;
}

void print_images(const bench::contender& who, double per_image) {
  std::printf("  %-38s %7.0f images/s  %7.1f CPU us an image\n", who.name.c_str(),
              who.gb_per_second.median() * 1e9 / per_image, who.cpu_per_gb.median() * 1e-9 * per_image * 1e6);
}

void decoding(const mill::s3::client& s3, std::size_t count, double per_image) {
  const mill::cuda::stream copies;
  const mill::cuda::stream training;
  mill::runtime rt;
  const bare_copies bus(copies);
  const auto files = [per_image](std::size_t n) { return static_cast<double>(n) * per_image; };
  const std::pair<const char*, nvjpegBackend_t> decoders[] = {{"nvJPEG, as it chooses", NVJPEG_BACKEND_DEFAULT},
                                                              {"nvJPEG by kernels", NVJPEG_BACKEND_GPU_HYBRID},
                                                              {"nvJPEG by decoders", NVJPEG_BACKEND_HARDWARE}};
  std::printf("\nJPEGs of %.0f KB from a store to the device, GB of JPEG; %u threads\n", per_image * 1e-3,
              rt.pool().threads());
  for (const auto& [name, backend] : decoders) {
    try {
      const mill::cuda::nvjpeg gpu(copies, backend);
      std::string stages;
      bench::contender bare("bare copies of 224x224x3",
                            [&] { return files(bus.run(count) / images().bytes() * in_batch); });
      bench::contender pool("decode_images | batch | to_device",
                            [&] { return files(take(rt, decoded_on_pool(s3, copies), training, stages)); });
      bench::contender there(name, [&] { return files(take(rt, decoded_on_gpu(s3, gpu), training, stages)); });
      bench::take_turns({&bare, &pool, &there}, 3);
      bench::print_table({&bare, &pool, &there});
      for (const bench::contender* who : {&bare, &pool, &there}) print_images(*who, per_image);
      std::printf("\n%s\n", stages.c_str());
    } catch (const mill::error& e) {
      std::printf("  %s: not measured: %s\n", name, e.what());
    }
  }
}

/// 64 slabs of 8 MiB.
void first_touch(const char* who, std::shared_ptr<mill::slab_source> source) {
  bench::figure allocated;
  bench::figure first;
  bench::figure again;
  mill::slab_pool pool(mill::slab_pool::default_slab_bytes, std::move(source));
  std::vector<mill::writable_bytes> held;
  const auto timed = [](bench::figure& into, auto f) {
    const std::int64_t begin = mill::monotonic_ns();
    f();
    into.add(static_cast<double>(mill::monotonic_ns() - begin) * 1e-6);
  };
  for (int i = 0; i < 64; ++i) {
    timed(allocated, [&] { held.push_back(pool.acquire()); });
    timed(first, [&] { std::memset(held.back().data(), i, pool.slab_bytes()); });
    timed(again, [&] { std::memset(held.back().data(), i + 1, pool.slab_bytes()); });
  }
  std::printf("  %-18s allocated %6.2f (max %6.2f), written %6.2f (max %6.2f), again %6.2f (max %6.2f) ms for 8 MiB\n",
              who, allocated.median(), allocated.highest(), first.median(), first.highest(), again.median(),
              again.highest());
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = static_cast<std::size_t>(argc > 1 ? std::atoi(argv[1]) : 200);
  const std::string_view which = argc > 2 ? argv[2] : "all";
  const auto wanted = [which](std::string_view part) { return which == "all" || which == part; };
  bench::print_machine();
  if (wanted("memory")) first_touch("plain memory", std::make_shared<mill::plain_slab_source>());
  try {
    if (mill::cuda::device::count() == 0) throw mill::cuda::error(cudaErrorNoDevice, "cudaGetDeviceCount");
  } catch (const mill::cuda::error& e) {
    if (!e.no_device()) {
      std::fprintf(stderr, "device_bench: %s\n", e.what());
      return 1;
    }
    std::printf("skipped: there is no GPU: %s\n", e.what());
    return 77;
  }
  std::size_t files = 0;
  const std::string shard = wanted("images") ? photo_shard(files) : std::string();
  const bench::served store(false, [&](mill::s3_server::background& server) {
    if (wanted("copies")) server.put("b", "checkpoint", bench::noise(checkpoint_bytes, 1));
    const mill::s3_server::object one(mill::bytes::copy(shard));
    for (std::size_t i = 0; wanted("images") && i < count; ++i) {
      server.objects().put("b", "train/" + std::to_string(i) + ".tar", one);
    }
  });
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s\n", properties.name);
  if (wanted("memory")) first_touch("page-locked memory", std::make_shared<mill::cuda::pinned_source>());
  const auto loop = mill::make_event_loop();
  if (wanted("copies")) {
    copies_and_overlap(*loop, count);
    checkpoint(*loop, store.client());
  }
  if (wanted("images")) {
    bench::pin_from(1);
    decoding(store.client(), count, static_cast<double>(files) / in_batch);
  }
}
