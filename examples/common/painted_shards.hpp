// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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
/// Makes a small data set: JPEG pictures of a bright spot at one of eight places on a noisy, coloured ground, no two of
/// one size. The class is the place. Same arguments, same bytes.

namespace examples {

inline constexpr int image_side = 64;  // of what the models of the examples take
inline constexpr int classes = 8;

class picture {
 public:
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> pixels;
};

inline picture paint(int label, millrace::rng& random) {
  picture made;
  made.width = 48 + static_cast<int>(random.below(64));
  made.height = 48 + static_cast<int>(random.below(64));
  const double angle = 2 * 3.14159265358979 * label / classes;
  const double x0 = made.width * (0.5 + 0.30 * std::cos(angle) + 0.09 * (random.uniform() - 0.5));
  const double y0 = made.height * (0.5 + 0.30 * std::sin(angle) + 0.09 * (random.uniform() - 0.5));
  const double radius = std::min(made.width, made.height) * (0.08 + 0.05 * random.uniform());
  double ground[3];
  double spot[3];
  for (int c = 0; c < 3; ++c) {
    ground[c] = 20 + 80 * random.uniform();
    spot[c] = 110 + 100 * random.uniform();
  }
  for (int y = 0; y < made.height; ++y) {
    for (int x = 0; x < made.width; ++x) {
      const double d = std::hypot(x - x0, y - y0);
      const double share = d < radius ? 1 : std::exp(-(d - radius) * 0.7);
      for (int c = 0; c < 3; ++c) {
        const double noise = 160 * (random.uniform() - 0.5);
        const double value = ground[c] + share * (spot[c] - ground[c]) + noise;
        made.pixels.push_back(static_cast<std::uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value));
      }
    }
  }
  return made;
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
    const picture p = paint(label, random);
    w.add(std::string(key) + ".jpg", encode_jpeg(p.pixels, p.width, p.height));
    w.add(std::string(key) + ".cls", std::to_string(label));
  }
  w.finish();
  return tar;
}

inline std::string painted_shard_url(const std::string& bucket, const std::string& prefix, int n) {
  char name[32];
  std::snprintf(name, sizeof name, "%06d.tar", n);
  return "s3://" + bucket + "/" + prefix + name;
}

inline millrace::task<void> upload(millrace::s3::client s3, std::string bucket, std::string prefix, int shards,
                                   int samples, std::uint64_t seed) {
  co_await s3.create_bucket("s3://" + bucket);
  for (int n = 0; n < shards; ++n) {
    const std::string url = painted_shard_url(bucket, prefix, n);
    millrace::bytes tar = millrace::bytes::copy(painted_shard(samples, seed, n));
    co_await s3.put(url, std::move(tar), "application/x-tar");
  }
}

/// Writes `shards` tar shards of `samples` pictures each below s3://bucket/prefix.
inline void write_painted_shards(const millrace::s3::client& s3, const std::string& bucket, const std::string& prefix,
                                 int shards, int samples, std::uint64_t seed) {
  const auto loop = millrace::make_event_loop();
  millrace::block_on(*loop, upload(s3, bucket, prefix, shards, samples, seed));
  std::printf("wrote %d shards of %d JPEG images of mixed sizes to s3://%s/%s\n", shards, samples, bucket.c_str(),
              prefix.c_str());
}

/// Removes what write_painted_shards() wrote.
inline void remove_painted_shards(const millrace::s3::client& s3, const std::string& bucket, const std::string& prefix,
                                  int shards) {
  const auto loop = millrace::make_event_loop();
  for (int n = 0; n < shards; ++n) millrace::block_on(*loop, s3.remove(painted_shard_url(bucket, prefix, n)));
}

}  // namespace examples
