// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Recordings of mixed lengths and their transcripts become padded batches of similar length. The recordings are
// made here: a word's letters are tones of a tenth of a second, in FLAC files of 22050 Hz, which are heard at 16000 Hz.
//
//   example_speech
//
// With AWS_ENDPOINT_URL_S3 (and keys) in the environment that store is used; without, an S3 server inside this program.

#include <sndfile.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <millrace/decode/decode_audio.hpp>
#include <millrace/flow/bucket_by_length.hpp>
#include <millrace/millrace.hpp>
#include <millrace/tar/writer.hpp>

#include "examples/common/connect.hpp"
#include "examples/common/encode_audio.hpp"

namespace mill = millrace;

namespace {

constexpr double pi = 3.14159265358979;
constexpr double lowest = 300, between = 50;  // Hz: of the letter a, and to the next one

std::string spoken(const std::string& word) {
  std::vector<float> wave;
  for (const char letter : word) {
    const double step = 2 * pi * (lowest + between * (letter - 'a')) / 22050;
    for (int i = 0; i < 2205; ++i) wave.push_back(static_cast<float>(0.5 * std::sin(step * i)));
  }
  return examples::encode_audio(wave, 1, 22050, SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
}

mill::task<void> upload(mill::s3::client s3, int shards, int words) {
  co_await s3.create_bucket("s3://speech");
  for (int n = 0; n < shards; ++n) {
    std::string tar;
    mill::tar::writer w(tar);
    mill::rng random(7, 0, static_cast<std::uint64_t>(n));
    for (int i = 0; i < words; ++i) {
      std::string word;
      for (std::uint64_t letters = 2 + random.below(12); letters > 0; --letters) {
        word += static_cast<char>('a' + random.below(26));
      }
      const std::string name = std::to_string(n) + "-" + std::to_string(i);
      w.add(name + ".flac", spoken(word));
      w.add(name + ".txt", word);
    }
    w.finish();
    co_await s3.put("s3://speech/" + std::to_string(n) + ".tar", mill::bytes::copy(tar));
  }
}

/// A recording and its transcript.
class utterance {
 public:
  explicit utterance(mill::audio_sample a) : heard(std::move(a)) {
    if (!mark_of(heard).padding) text = heard.of["txt"].view();  // padding of an epoch's last batch has no fields
  }
  mill::audio_sample heard;
  std::string text;
  friend mill::epoch_mark mark_of(const utterance& u) noexcept { return mark_of(u.heard); }
};

void collate(const utterance& u, mill::sample_writer& out) {
  collate(u.heard, out);       // "audio", padded to the longest of the batch, and "audio_lengths"
  out.ragged("text", u.text);  // "text" of all, one after the other, and "text_offsets"
}

auto epoch_of(const mill::s3::client& s3, std::uint64_t epoch) {
  const mill::audio_options sounds{.rate = 16000, .channels = 1, .pad = {.multiple = 160}};
  return s3.list("s3://speech/") | mill::shuffle_shards({.seed = 7, .epoch = epoch}) | mill::fetch(s3) |
         mill::untar() | mill::group_samples() | mill::shuffle({.window = 128, .seed = 7, .epoch = epoch}) |
         mill::decode_audio(sounds) | mill::map([](mill::audio_sample a) { return utterance(std::move(a)); }) |
         mill::bucket_by_length([](const utterance& u) { return u.heard.sound.frames; }, {.batch = 16, .seed = 7}) |
         mill::to_device(mill::host_device());
}

/// In place of a model: what it hears, by counting how often the wave goes upwards through zero.
std::string heard(std::span<const float> wave) {
  std::string word;
  for (; wave.size() >= 1600; wave = wave.subspan(1600)) {
    int waves = 0;
    for (std::size_t i = 101; i < 1500; ++i) waves += wave[i - 1] < 0 && wave[i] >= 0;
    const double hertz = waves / (1399.0 / 16000);
    word += static_cast<char>('a' + std::lround((hertz - lowest) / between));
  }
  return word;
}

}  // namespace

int main() {
  try {
    std::optional<mill::s3_server::background> server;
    const mill::s3::client s3 = examples::connect(server);
    const auto loop = mill::make_event_loop();
    mill::block_on(*loop, upload(s3, 4, 60));
    mill::runtime rt;
    std::size_t words = 0, right = 0;
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      double frames = 0, sound = 0;
      for (const mill::device_batch& b : rt.run(epoch_of(s3, epoch))) {
        const auto audio = b.field("audio").values<float>();
        const auto lengths = b.field("audio_lengths").values<std::int64_t>();
        const auto text = b.field("text").values<char>();
        const auto offsets = b.field("text_offsets").values<std::int64_t>();
        const std::size_t longest = audio.size() / b.size();
        for (std::size_t i = 0; i < b.size(); ++i) {
          const std::string said(text.begin() + offsets[i], text.begin() + offsets[i + 1]);
          const auto length = static_cast<std::size_t>(lengths[i]);
          right += heard(audio.subspan(i * longest, length)) == said;
          sound += static_cast<double>(length);
        }
        words += b.size();
        frames += static_cast<double>(audio.size());
      }
      std::printf("epoch %d: %.0f s of sound, %.0f%% of the batches is padding\n", static_cast<int>(epoch),
                  sound / 16000, 100 * (1 - sound / frames));
    }
    std::printf("%zu words, %zu heard right\n", words, right);
    return right == words ? 0 : 1;
  } catch (const mill::error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
