// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// JPEGs per second: map_concurrent(decode on a pool) beside bare tjDecompress2 on as many threads, in turns; images of
// 500x375 and about 100 KB. The bare threads write into one buffer each, or into a new one per image, as a pipeline
// that hands its images on must; the decoder's come from its pool. Then the time to the next batch at a training thread
// whose steps take longer than decoding.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/jpeg_bench.cpp -o jpeg_bench -luring -lturbojpeg
//
//   jpeg_bench [images per round, default 2000]

#include <turbojpeg.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <time.h>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/decode/jpeg_decoder.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/iota.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"

namespace {

namespace mill = millrace;

constexpr int width = 500;
constexpr int height = 375;
constexpr std::size_t pixels = std::size_t(width) * height * 3;
constexpr std::size_t different = 32;

/// Noise over a gradient, at the quality that makes about 100 KB of it.
mill::bytes make_jpeg(std::uint64_t seed) {
  std::vector<unsigned char> image(pixels);
  mill::rng random(seed);
  for (std::size_t i = 0; i < pixels; ++i) {
    image[i] = static_cast<unsigned char>(60 + i / 3 % width / 4 + random.next() % 48);
  }
  const tjhandle encoder = tjInitCompress();
  mill::bytes jpeg;
  for (int quality = 98; quality > 20; quality -= 2) {
    unsigned char* data = nullptr;
    unsigned long size = 0;
    if (tjCompress2(encoder, image.data(), width, 0, height, TJPF_RGB, &data, &size, TJSAMP_420, quality, 0) != 0) {
      std::abort();
    }
    jpeg = mill::bytes::copy(std::string_view(reinterpret_cast<const char*>(data), size));
    tjFree(data);
    if (size <= 102000) break;
  }
  tjDestroy(encoder);
  return jpeg;
}

/// The same decoding without millrace: threads that take the next number.
std::uint64_t decode_bare(const std::vector<mill::bytes>& jpegs, int count, unsigned threads, bool new_buffers) {
  std::atomic<int> next{0};
  std::atomic<std::uint64_t> total{0};
  const auto work = [&] {
    const tjhandle decoder = tjInitDecompress();
    std::vector<unsigned char> buffer(pixels);
    for (int i; (i = next.fetch_add(1)) < count;) {
      const mill::bytes& jpeg = jpegs[static_cast<std::size_t>(i) % jpegs.size()];
      const auto* data = reinterpret_cast<const unsigned char*>(jpeg.data());
      int w = 0, h = 0, subsampling = 0, colours = 0;
      if (tjDecompressHeader3(decoder, data, jpeg.size(), &w, &h, &subsampling, &colours) != 0) std::abort();
      if (new_buffers) buffer = std::vector<unsigned char>(pixels);
      if (tjDecompress2(decoder, data, jpeg.size(), buffer.data(), w, 0, h, TJPF_RGB, 0) != 0) std::abort();
      total += jpeg.size();
    }
    tjDestroy(decoder);
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < threads; ++i) pool.emplace_back(work);
  for (std::thread& t : pool) t.join();
  return total;
}

auto images(const std::vector<mill::bytes>& jpegs, int count, mill::cpu_pool& cores) {
  const auto pick = [&jpegs](int i) { return jpegs[static_cast<std::size_t>(i) % jpegs.size()]; };
  const mill::jpeg_decoder decoder;
  auto decode = [decoder](const mill::bytes& jpeg) { return decoder(jpeg); };
  return mill::iota(count) | mill::map(pick) | mill::map_concurrent(std::move(decode), {.on = &cores});
}

template <class T>
mill::task<int> count_all(mill::stream<T> items) {
  int n = 0;
  while (std::optional<T> item = co_await items.next()) ++n;
  co_return n;
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 2000;
  bench::print_machine();
  std::vector<mill::bytes> jpegs;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < different; ++i) {
    jpegs.push_back(make_jpeg(i));
    bytes += jpegs.back().size();
  }
  const double per_image = static_cast<double>(bytes) / different;
  mill::cpu_pool cores;
  const auto loop = mill::make_event_loop();
  bench::contender a("turbojpeg, one buffer a thread",
                     [&] { return decode_bare(jpegs, count, cores.threads(), false); });
  bench::contender b("turbojpeg, a new buffer an image",
                     [&] { return decode_bare(jpegs, count, cores.threads(), true); });
  bench::contender c("map_concurrent(decode)", [&] {
    const int n = mill::block_on(*loop, count_all(images(jpegs, count, cores)));
    return static_cast<double>(n) * per_image;
  });
  bench::take_turns({&a, &b, &c});
  std::printf("%dx%d, %.0f KB; %u threads; GB of JPEG\n", width, height, per_image * 1e-3, cores.threads());
  bench::print_table({&a, &b, &c});
  const double speed = c.gb_per_second.median() * 1e9 / per_image;
  std::printf("  map_concurrent: %.0f images/s, %.0f per CPU second\n", speed, 1e9 / per_image / c.cpu_per_gb.median());
  bench::goal_at_least("images/s, map_concurrent / bare turbojpeg", bench::ratio(c.gb_per_second, a.gb_per_second),
                       0.95);
  bench::goal_at_most("CPU s/image, map_concurrent / bare turbojpeg", bench::ratio(c.cpu_per_gb, a.cpu_per_gb),
                      1 / 0.95);

  constexpr int batch = 32;
  const double step = 2.5 * batch / speed;
  mill::run_options how;
  how.show = mill::progress::off;
  auto batches = mill::run(images(jpegs, batch * 200, cores) | mill::batch(batch), how);
  bench::figure waits;
  for (int i = 0;; ++i) {
    const std::int64_t asked = mill::monotonic_ns();
    const auto item = batches.next();
    if (!item) break;
    if (i >= 4) waits.add(static_cast<double>(mill::monotonic_ns() - asked) * 1e-6);  // the first ones fill the queue
    const timespec t{static_cast<time_t>(step), static_cast<long>((step - static_cast<double>(time_t(step))) * 1e9)};
    ::nanosleep(&t, nullptr);
  }
  std::printf("\ntraining thread: batches of %d, steps of %.0f ms; next() p50 %.3f ms, max %.3f ms\n", batch,
              step * 1e3, waits.median(), waits.highest());
  bench::goal_at_most("p99 of next() when not bound by the source", waits.at(0.99), 5, "ms");
}
