// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// One rank of a training on clips of films that expects to be killed at any moment: killed_rank.hpp says how it is
// called. With the words "draw FOLDER" it draws the films, 0.mp4 and so on, for run_killed.

#include "tests/killed/killed_rank.hpp"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/decode/decode_video.hpp>
#include <millrace/device/batch.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/formats/video_shards.hpp>

#include "examples/common/encode_video.hpp"

namespace mill = millrace;

namespace {

int draw(const std::string& folder) {
  for (int n = 0; n < 5; ++n) {
    const int frames = 25 * (3 + n) + 10 * n;  // a second has 25, and a group 12
    std::ofstream file(folder + "/" + std::to_string(n) + ".mp4", std::ios::binary);
    file << examples::encode_video({.frames = frames, .seed = n, .between = n % 3});
  }
  return 0;
}

/// What the row of a batch does not say of a sample, before its key.
mill::sample with_its_place(mill::sample s) {
  s.key = std::to_string(s.mark.epoch) + " " + std::to_string(s.mark.position) + " " + s.key;
  return s;
}

void learn(const mill::device_batch& batch, killed::model& trained) {
  const std::span<const std::uint8_t> pixels = batch.field("video").values<std::uint8_t>();
  const std::span<const double> times = batch.field("video_times").values<double>();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (batch.weights()[i] == 0) continue;
    const std::size_t row = pixels.size() / batch.size();
    std::uint32_t crc = mill::crc32c(0, reinterpret_cast<const char*>(pixels.data() + i * row), row);
    const std::size_t frames = times.size() / batch.size();
    crc = mill::crc32c(crc, reinterpret_cast<const char*>(times.data() + i * frames), frames * sizeof(double));
    const std::string key(batch.keys()[i]);
    trained.add(key + " " + std::to_string(crc), std::stoull(key), batch.tags<mill::origin>()[i]);
  }
}

int train(const std::vector<std::string>& words) {
  if (words.at(0) == "draw") return draw(words.at(1));
  const auto batches = [](auto samples) {
    const mill::video_options frames{
        .frames = 6, .height = 24, .width = 32, .rate = 10, .crop = mill::crop::random_resized{}, .flip = 0.5};
    return std::move(samples) | mill::map(with_its_place) | mill::decode_video(frames) | mill::batch() |
           mill::to_device(mill::host_device());
  };
  return killed::train(words, mill::video_shards({.seconds = 1}), batches, learn);
}

}  // namespace

int main(int count, char** arguments) { return killed::main_of(count, arguments, train); }
