// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Images per second, of ImageNet's shape: JPEGs of 500x375 and 110 KB, a random part of each resized to 224x224 and
// mirrored or not, as f16 CHW in batches of 256. decode_images() | batch() beside the bare work on as many threads, in
// turns: libjpeg-turbo, told to decode that part, and the resizer; and the same with the whole image decoded, as
// programs do that know no better. Then what a batch costs beyond decoding.
// Build:
//   c++ -std=c++20 -O3 -DMILLRACE_WITH_JPEG -Iinclude -I. bench/image_bench.cpp -o image_bench -luring -ljpeg
//
//   image_bench [images per round, default 2048]

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/decode/augment.hpp>
#include <millrace/decode/decode_images.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>

#include "bench/common/bare_jpeg.hpp"
#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/on_threads.hpp"
#include "bench/common/photo.hpp"

namespace {

namespace mill = millrace;

constexpr int width = bench::photo_width;
constexpr int height = bench::photo_height;
constexpr int side = 224;
constexpr std::size_t batch = 256;
constexpr std::size_t different = 64;

const mill::image_options options{.height = side,
                                  .width = side,
                                  .crop = mill::crop::random_resized{},
                                  .flip = 0.5,
                                  .layout = mill::image_layout::chw,
                                  .type = mill::dtype::f16,
                                  .mean = {0.485f, 0.456f, 0.406f},
                                  .std = {0.229f, 0.224f, 0.225f}};

/// The samples of one round: the JPEGs in turn, each at a place of its own.
class data_set {
 public:
  data_set() {
    for (std::size_t i = 0; i < different; ++i) {
      jpegs_.push_back(mill::bytes::copy(bench::make_photo(i)));
      total_ += jpegs_.back().size();
    }
  }
  mill::sample operator()(int i) const {
    const auto n = static_cast<std::uint64_t>(i);
    mill::sample s("image", mill::origin(from_, n * 128000, n));
    s.fields.emplace_back("jpg", jpegs_[n % different]);
    s.fields.emplace_back("cls", label_);
    return s;
  }
  double per_image() const { return static_cast<double>(total_) / different; }

 private:
  std::vector<mill::bytes> jpegs_;
  mill::bytes label_ = mill::bytes::copy("417");
  std::shared_ptr<const mill::shard> from_ = std::make_shared<const mill::shard>("s3://bench/train.tar");
  std::uint64_t total_ = 0;
};

/// libjpeg-turbo and the resizer, for one thread: the pixels of the part, a plane a channel, stay in its own memory.
class bare_work {
 public:
  explicit bare_work(bool whole) : whole_(whole) {}

  void operator()(const mill::bytes& jpeg, mill::sample_rng& numbers) {
    jpeg_.open(jpeg);
    const mill::image_box box = options.crop.box(width, height, side, side, numbers);
    mill::detail::resize_geometry g;
    g.columns = static_cast<int>(box.width());
    g.rows = static_cast<int>(box.height());
    g.box = mill::image_box(0, 0, box.width(), box.height());
    g.width = side;
    g.height = side;
    const auto top = static_cast<JDIMENSION>(box.top);
    auto left = static_cast<JDIMENSION>(box.left);
    jpeg_.start(JCS_EXT_RGBX);
    jpeg_decompress_struct& state = jpeg_.state();
    // Not where libjpeg-turbo would write past the caches: see image_decoder.
    line_.resize(std::size_t(width) * 4 + 64);
    std::uint8_t* const line = line_.data() + 40 - reinterpret_cast<std::uintptr_t>(line_.data()) % 32;
    std::size_t skipped = left;
    if (whole_) {
      for (JDIMENSION y = 0; y < top; ++y) jpeg_.read(line);
    } else {
      const JDIMENSION first = left < 2 ? 0 : left - 2;
      JDIMENSION columns = std::min(JDIMENSION(width), left + static_cast<JDIMENSION>(g.columns) + 2) - first;
      skipped = left;
      left = first;
      jpeg_crop_scanline(&state, &left, &columns);
      skipped -= left;
      jpeg_skip_scanlines(&state, top);
    }
    resizer_.begin(g);
    for (int y = 0; y < g.rows; ++y) {
      jpeg_.read(line);
      resizer_.put_row(line + skipped * 4);
    }
    if (whole_) {
      while (state.output_scanline < state.output_height) jpeg_.read(line);
      jpeg_.finish();
    } else {
      jpeg_.abandon();
    }
  }

 private:
  bool whole_;
  bench::bare_jpeg jpeg_;
  mill::detail::resizer resizer_;
  std::vector<std::uint8_t> line_;
};

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 2048;
  bench::print_machine();
  const data_set data;
  mill::runtime rt;
  const unsigned threads = rt.pool().threads();
  const double bytes = static_cast<double>(count) * data.per_image();
  const auto bare = [&](bool whole) {
    bench::on_threads(threads, count, [&data, whole] {
      return [&data, work = std::make_unique<bare_work>(whole)](int i) {
        const mill::sample s = data(i);
        mill::sample_rng numbers = s.random(mill::purpose::augment);
        (*work)(s["jpg"], numbers);
      };
    });
    return bytes;
  };
  bench::contender a("libjpeg-turbo and resizer, the part", [&] { return bare(false); });
  bench::contender b("libjpeg-turbo and resizer, the whole", [&] { return bare(true); });
  const mill::image_row_writer writer(options);
  mill::batch_pool pool(writer.layout(batch));
  bench::contender c("image_row_writer on threads", [&] {
    mill::batch_builder builder = pool.start();
    bench::on_threads(threads, count, [&] {
      return [&](int i) {
        const mill::sample s = data(i);
        writer(s, builder.row(s.from.ordinal % batch));
      };
    });
    return bytes;
  });
  bench::contender d("decode_images | batch", [&] {
    auto batches = mill::iota(count) | mill::map([&data](int i) { return data(i); }) | mill::decode_images(options) |
                   mill::batch(batch);
    std::size_t n = 0;
    for (const mill::host_batch& made : rt.run(std::move(batches))) n += made.size();
    return static_cast<double>(n) * data.per_image();
  });
  const mill::augment::color_jitter jitter{.brightness = 0.4f, .contrast = 0.4f, .saturation = 0.4f, .hue = 0.1f};
  bench::contender e("decode_images with color_jitter | batch", [&] {
    auto batches = mill::iota(count) | mill::map([&data](int i) { return data(i); }) |
                   mill::decode_images(options, jitter) | mill::batch(batch);
    std::size_t n = 0;
    for (const mill::host_batch& made : rt.run(std::move(batches))) n += made.size();
    return static_cast<double>(n) * data.per_image();
  });
  bench::take_turns({&a, &b, &c, &d, &e}, 15);
  std::printf("%dx%d, %.0f KB, a random part to %dx%d f16 CHW; %u threads; GB of JPEG\n", width, height,
              data.per_image() * 1e-3, side, side, threads);
  bench::print_table({&a, &b, &c, &d, &e});
  const auto us = [&](const bench::contender& who) { return who.cpu_per_gb.median() * 1e-9 * data.per_image() * 1e6; };
  for (const bench::contender* who : {&a, &b, &c, &d, &e}) {
    std::printf("  %-38s %7.0f images/s  %7.1f CPU us an image\n", who->name.c_str(),
                who->gb_per_second.median() * 1e9 / data.per_image(), us(*who));
  }
  bench::goal_at_least("images/s, decode_images | batch / libjpeg-turbo and resizer",
                       bench::ratio(d.gb_per_second, a.gb_per_second), 0.95);
  bench::goal_at_most("CPU us an image of batching, beyond decoding", us(d) - us(c), 20, "us");
}
