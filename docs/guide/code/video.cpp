// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The programs of docs/guide/video.md, over small data sets of their own.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <millrace/decode/decode_video.hpp>
#include <millrace/millrace.hpp>
#include <millrace/tar/writer.hpp>

#include "examples/common/encode_video.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"

namespace mill = millrace;

namespace {

auto video_samples(const std::string& folder, std::uint64_t epoch) {
  return mill::glob(folder + "/*.tar") | mill::shuffle_shards({.seed = 7, .epoch = epoch}) |
         mill::fetch(mill::files()) | mill::untar() | mill::group_samples();
}

// begin training
auto training(const std::string& folder, std::uint64_t epoch) {
  const mill::video_options clips{.frames = 8,
                                  .height = 112,
                                  .width = 112,
                                  .rate = 10,
                                  .crop = mill::crop::random_resized{},
                                  .flip = 0.5,
                                  .layout = mill::image_layout::chw,
                                  .type = mill::dtype::f16,
                                  .mean = {0.43f, 0.39f, 0.38f},
                                  .std = {0.23f, 0.22f, 0.22f},
                                  .label = "cls"};
  return video_samples(folder, epoch) | mill::decode_video(clips) | mill::batch(4) |
         mill::to_device(mill::host_device());
}
// end training

// begin evaluation
/// Ten clips of each video, its middle, whatever its length.
auto evaluation(const std::string& folder) {
  const mill::video_options clips{.frames = 8,
                                  .height = 112,
                                  .width = 112,
                                  .clips = 10,
                                  .start = mill::clip_start::even,
                                  .stride = 4,
                                  .fill = true,
                                  .crop = mill::crop::center{},
                                  .label = "cls"};
  return video_samples(folder, 0) | mill::decode_video(clips) |
         mill::batch(2, {.failures = {.then = mill::on_failure::skip}}) | mill::to_device(mill::host_device());
}
// end evaluation

}  // namespace

TEST_CASE("the guide's programs for videos see every one", "[guide]") {
  std::string tar;
  mill::tar::writer w(tar);
  for (int i = 0; i < 6; ++i) {
    w.add(std::to_string(i) + ".mp4", examples::encode_video({.codec = "mpeg4", .frames = 25 + i, .seed = i}));
    w.add(std::to_string(i) + ".cls", std::to_string(i));
  }
  w.finish();
  const mill::test::temporary_folder folder;
  std::ofstream(folder.file("0.tar"), std::ios::binary) << tar;
  mill::runtime rt;
  std::size_t seen = 0;
  for (const mill::device_batch& b : rt.run(training(folder.path(), 0))) {
    CHECK(b.field("video").dims() == mill::shape{static_cast<std::int64_t>(b.size()), 8, 3, 112, 112});
    CHECK(b.field("video_times").dims() == mill::shape{static_cast<std::int64_t>(b.size()), 8});
    seen += b.size();
  }
  CHECK(seen == 6);
  std::int64_t frames = 0;
  for (const mill::device_batch& b : rt.run(evaluation(folder.path()))) {
    CHECK(b.field("video").dims() == mill::shape{2, 10, 8, 112, 112, 3});
    for (const std::int64_t n : b.field("video_lengths").values<std::int64_t>()) frames += n;
  }
  CHECK(frames == 10 * (4 * 7 + 2 * 8));
}
