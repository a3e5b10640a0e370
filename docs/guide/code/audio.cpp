// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The programs of docs/guide/audio.md, over small data sets of their own.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <millrace/decode/decode_arrays.hpp>
#include <millrace/millrace.hpp>
#include <millrace/tar/writer.hpp>

#if defined(MILLRACE_WITH_AUDIO)
#include <sndfile.h>

#include <millrace/decode/decode_audio.hpp>

#include "examples/common/encode_audio.hpp"
#endif
#include "tests/support/catch.hpp"

namespace mill = millrace;

namespace {

auto samples_of(const std::string& folder, std::uint64_t epoch) {
  return mill::glob(folder + "/*.tar") | mill::shuffle_shards({.seed = 7, .epoch = epoch}) |
         mill::fetch(mill::files()) | mill::untar() | mill::group_samples();
}

/// A folder of one shard, for as long as it lives.
class shard_folder {
 public:
  shard_folder(const char* name, const std::string& tar) : path_(std::filesystem::temp_directory_path() / name) {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / "0.tar", std::ios::binary) << tar;
  }
  ~shard_folder() { std::filesystem::remove_all(path_); }
  std::string text() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// begin arrays
auto features(const std::string& folder) {
  return samples_of(folder, 0) | mill::decode_arrays() | mill::batch(8) | mill::to_device(mill::host_device());
}
// end arrays

}  // namespace

TEST_CASE("the guide's program for arrays sees every one", "[guide]") {
  std::string tar;
  mill::tar::writer w(tar);
  for (int i = 0; i < 10; ++i) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
    header.append(117 - header.size(), ' ').append("\n");
    const float x[] = {static_cast<float>(i), 0.5F};
    w.add(std::to_string(i) + ".x.npy",
          std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header +
              std::string(reinterpret_cast<const char*>(x), sizeof x));
    w.add(std::to_string(i) + ".cls", std::to_string(i));
  }
  w.finish();
  const shard_folder folder("millrace-guide-arrays", tar);
  mill::runtime rt;
  float sum = 0;
  for (const mill::device_batch& b : rt.run(features(folder.text()))) {
    for (const float v : b.field("x").values<float>()) sum += v;
  }
  CHECK(sum == 50);
}

#if defined(MILLRACE_WITH_AUDIO)

namespace {

// begin training
auto training(const std::string& folder, std::uint64_t epoch) {
  const mill::audio_options sounds{
      .rate = 16000, .channels = 1, .seconds = 0.5, .crop = mill::audio_crop::random, .label = "cls"};
  return samples_of(folder, epoch) | mill::decode_audio(sounds) | mill::batch(8) |
         mill::to_device(mill::host_device());
}
// end training

// begin speech
/// A recording and its transcript.
class utterance {
 public:
  explicit utterance(mill::audio_sample a) : heard(std::move(a)) {
    if (!mark_of(heard).padding) text = heard.of["txt"].view();  // padding of an epoch's last batch has no fields
  }
  mill::audio_sample heard;
  std::string text;
};

void collate(const utterance& u, mill::sample_writer& out) {
  collate(u.heard, out);       // "audio", "audio_lengths"
  out.ragged("text", u.text);  // "text", "text_offsets"
}

auto speech(const std::string& folder) {
  return samples_of(folder, 0) | mill::decode_audio({.rate = 16000, .channels = 1}) |
         mill::map([](mill::audio_sample a) { return utterance(std::move(a)); }) | mill::batch(8) |
         mill::to_device(mill::host_device());
}
// end speech

}  // namespace

TEST_CASE("the guide's programs for recordings hear every one", "[guide]") {
  std::string tar;
  mill::tar::writer w(tar);
  for (int i = 0; i < 20; ++i) {
    std::vector<float> tone(static_cast<std::size_t>(8000 + 1000 * (i % 7)));
    for (std::size_t t = 0; t < tone.size(); ++t) tone[t] = std::sin(0.05F * static_cast<float>(t));
    const std::string name = "k" + std::to_string(i);
    w.add(name + ".flac", examples::encode_audio(tone, 1, 8000, SF_FORMAT_FLAC | SF_FORMAT_PCM_16));
    w.add(name + ".txt", std::string(static_cast<std::size_t>(i), 'a'));
    w.add(name + ".cls", std::to_string(i % 3));
  }
  w.finish();
  const shard_folder folder("millrace-guide-audio", tar);
  mill::runtime rt;
  std::size_t heard = 0;
  for (const mill::device_batch& b : rt.run(training(folder.text(), 0))) {
    CHECK(b.field("audio").dims() == mill::shape{static_cast<std::int64_t>(b.size()), 8000});
    heard += b.field("label").values<std::int64_t>().size();
  }
  CHECK(heard == 20);
  std::int64_t letters = 0;
  for (const mill::device_batch& b : rt.run(speech(folder.text()))) {
    letters += b.field("text_offsets").values<std::int64_t>()[b.size()];
    CHECK(b.field("audio").dims()[1] == (b.size() == 8 ? 28000 : 26000));
  }
  CHECK(letters == 190);
}

#else
TEST_CASE("the guide's programs for recordings", "[guide]") {
  MILLRACE_SKIP("libsndfile and libsoxr are not installed (Debian: libsndfile1-dev, libsoxr-dev)");
}
#endif
