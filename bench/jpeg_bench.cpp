// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// JPEGs per second: map_concurrent(decode on a pool) beside bare libjpeg-turbo on as many threads, in turns; images of
// 500x375 and about 100 KB. The bare threads write into one buffer each, or into a new one per image, as a pipeline
// that hands its images on must; the decoder's come from its pool. Then the time to the next batch at a training thread
// whose steps take longer than decoding.
// Build:
//   c++ -std=c++20 -O2 -DMILLRACE_WITH_JPEG -Iinclude -I. bench/jpeg_bench.cpp -o jpeg_bench -luring -ljpeg
//
//   jpeg_bench [images per round, default 2000]

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <time.h>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loop/make_event_loop.hpp>

#include "bench/common/bare_jpeg.hpp"
#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/on_threads.hpp"
#include "examples/common/encode_jpeg.hpp"

namespace {

namespace mill = millrace;

constexpr int width = 500;
constexpr int height = 375;
constexpr std::size_t pixels = std::size_t(width) * height * 3;
constexpr std::size_t different = 32;

/// Noise over a gradient, at the quality that makes about 100 KB of it.
mill::bytes make_jpeg(std::uint64_t seed) {
  std::vector<std::uint8_t> image(pixels);
  mill::rng random(seed);
  for (std::size_t i = 0; i < pixels; ++i) {
    image[i] = static_cast<std::uint8_t>(60 + i / 3 % width / 4 + random.next() % 48);
  }
  std::string jpeg;
  for (int quality = 98; quality > 20 && (jpeg.empty() || jpeg.size() > 102000); quality -= 2) {
    jpeg = examples::encode_jpeg(image, width, height, {.quality = quality});
  }
  return mill::bytes::copy(jpeg);
}

/// The same decoding without millrace: threads that take the next number.
std::uint64_t decode_bare(const std::vector<mill::bytes>& jpegs, int count, unsigned threads, bool new_buffers) {
  std::atomic<std::uint64_t> total{0};
  bench::on_threads(threads, count, [&] {
    return [&, decoder = std::make_unique<bench::bare_jpeg>(),
            buffer = std::vector<unsigned char>(pixels)](int i) mutable {
      const mill::bytes& jpeg = jpegs[static_cast<std::size_t>(i) % jpegs.size()];
      if (new_buffers) buffer = std::vector<unsigned char>(pixels);
      decoder->open(jpeg);
      decoder->start(JCS_RGB);
      for (std::size_t y = 0; y < height; ++y) decoder->read(buffer.data() + y * width * 3);
      decoder->finish();
      total += jpeg.size();
    };
  });
  return total;
}

auto images(const std::vector<mill::bytes>& jpegs, int count, mill::cpu_pool& cores) {
  const auto pick = [&jpegs](int i) { return jpegs[static_cast<std::size_t>(i) % jpegs.size()]; };
  const mill::image_decoder decoder({.height = height, .width = width});
  auto decode = [decoder](const mill::bytes& jpeg) { return decoder.whole(jpeg); };
  return mill::iota(count) | mill::map(pick) | mill::map_concurrent(std::move(decode), {.on = &cores});
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
  bench::contender a("libjpeg-turbo, one buffer a thread",
                     [&] { return decode_bare(jpegs, count, cores.threads(), false); });
  bench::contender b("libjpeg-turbo, a new buffer an image",
                     [&] { return decode_bare(jpegs, count, cores.threads(), true); });
  bench::contender c("map_concurrent(decode)", [&] {
    const int n = mill::block_on(*loop, bench::count_all(images(jpegs, count, cores)));
    return static_cast<double>(n) * per_image;
  });
  bench::take_turns({&a, &b, &c});
  std::printf("%dx%d, %.0f KB; %u threads; GB of JPEG\n", width, height, per_image * 1e-3, cores.threads());
  bench::print_table({&a, &b, &c});
  const double speed = c.gb_per_second.median() * 1e9 / per_image;
  std::printf("  map_concurrent: %.0f images/s, %.0f per CPU second\n", speed, 1e9 / per_image / c.cpu_per_gb.median());
  bench::goal_at_least("images/s, map_concurrent / bare libjpeg-turbo", bench::ratio(c.gb_per_second, a.gb_per_second),
                       0.95);
  bench::goal_at_most("CPU s/image, map_concurrent / bare libjpeg-turbo", bench::ratio(c.cpu_per_gb, a.cpu_per_gb),
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
