// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <millrace/millrace.hpp>
#include <millrace/tar/writer.hpp>

#include "examples/common/encode_jpeg.hpp"

/// \file
/// Makes a small data set: JPEG pictures of a bright spot at one of eight places on a noisy, coloured ground. The class
/// is the place. Same arguments, same bytes.

namespace examples {

inline constexpr int image_side = 64;
inline constexpr int classes = 8;

inline std::vector<std::uint8_t> paint(int label, millrace::rng& random) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(image_side) * image_side * 3);
  const double angle = 2 * 3.14159265358979 * label / classes;
  const double x0 = image_side * (0.5 + 0.30 * std::cos(angle)) + 6 * (random.uniform() - 0.5);
  const double y0 = image_side * (0.5 + 0.30 * std::sin(angle)) + 6 * (random.uniform() - 0.5);
  const double radius = 5 + 3 * random.uniform();
  double ground[3];
  double spot[3];
  for (int c = 0; c < 3; ++c) {
    ground[c] = 20 + 80 * random.uniform();
    spot[c] = 110 + 100 * random.uniform();
  }
  std::size_t at = 0;
  for (int y = 0; y < image_side; ++y) {
    for (int x = 0; x < image_side; ++x) {
      const double d = std::hypot(x - x0, y - y0);
      const double share = d < radius ? 1 : std::exp(-(d - radius) * 0.7);
      for (int c = 0; c < 3; ++c) {
        const double noise = 160 * (random.uniform() - 0.5);
        const double value = ground[c] + share * (spot[c] - ground[c]) + noise;
        pixels[at++] = static_cast<std::uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
      }
    }
  }
  return pixels;
}

/// One shard of `samples` pictures: members NAME.jpg and NAME.cls.
inline std::string painted_shard(int samples, std::uint64_t seed, int shard) {
  millrace::rng random(seed, 0, static_cast<std::uint64_t>(shard));
  std::string tar;
  millrace::tar::writer w(tar);
  for (int i = 0; i < samples; ++i) {
    const int label = static_cast<int>(random.below(classes));
    char key[32];
    std::snprintf(key, sizeof key, "%04d%06d", shard, i);
    w.add(std::string(key) + ".jpg", encode_jpeg(paint(label, random), image_side, image_side));
    w.add(std::string(key) + ".cls", std::to_string(label));
  }
  w.finish();
  return tar;
}

inline millrace::task<void> upload(millrace::s3::client s3, std::string bucket, std::string prefix, int shards,
                                   int samples, std::uint64_t seed) {
  co_await s3.create_bucket("s3://" + bucket);
  for (int n = 0; n < shards; ++n) {
    char name[32];
    std::snprintf(name, sizeof name, "%06d.tar", n);
    const std::string url = "s3://" + bucket + "/" + prefix + name;
    millrace::bytes tar = millrace::bytes::copy(painted_shard(samples, seed, n));
    co_await s3.put(url, std::move(tar), "application/x-tar");
  }
}

/// Writes `shards` tar shards of `samples` pictures each below s3://bucket/prefix.
inline void write_painted_shards(const millrace::s3::client& s3, const std::string& bucket, const std::string& prefix,
                                 int shards, int samples, std::uint64_t seed) {
  const auto loop = millrace::make_event_loop();
  millrace::block_on(*loop, upload(s3, bucket, prefix, shards, samples, seed));
  std::printf("wrote %d shards of %d JPEG images to s3://%s/%s\n", shards, samples, bucket.c_str(), prefix.c_str());
}

}  // namespace examples
