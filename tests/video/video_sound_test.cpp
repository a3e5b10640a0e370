// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/video_sound.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/video_shards.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "examples/common/encode_video.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/scanned.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using examples::encode_video;
using examples::video_form;
using test::failure_of;
using test::output_of;

namespace {

/// A WAV of f32, parsed.
class heard {
 public:
  int rate = 0;
  std::size_t channels = 0;
  std::vector<float> values;

  explicit heard(const bytes& wav) {
    REQUIRE(wav.size() > 44);
    const auto number = [&](std::size_t at, std::size_t width) {
      std::uint32_t n = 0;
      std::memcpy(&n, wav.data() + at, width);
      return n;
    };
    CHECK(wav.view().substr(0, 4) == "RIFF");
    CHECK(wav.view().substr(8, 8) == "WAVEfmt ");
    CHECK(number(4, 4) == wav.size() - 8);
    CHECK(number(20, 2) == 3);
    CHECK(number(34, 2) == 32);
    CHECK(number(40, 4) == wav.size() - 44);
    channels = number(22, 2);
    rate = static_cast<int>(number(24, 4));
    values.resize((wav.size() - 44) / sizeof(float));
    std::memcpy(values.data(), wav.data() + 44, values.size() * sizeof(float));
  }
  std::size_t frames() const { return values.size() / channels; }
};

heard sound_of(const std::string& file, std::optional<video_span> part = {}) {
  return heard(video_sound(bytes::copy(file), {}, where(), part));
}

std::string reason_of(const std::string& file, const video_sound_options& o = {}, std::optional<video_span> part = {}) {
  return failure_of([&] { video_sound(bytes::copy(file), o, where(), part); });
}

/// 1.2 s of sound, of two channels.
video_form form_of(const char* sound, const char* container) {
  video_form form{.codec = "mpeg4", .container = container, .frames = 30};
  form.sound = sound;
  if (std::string_view(container) == "matroska") {
    form.tick = {1, 1000};
    form.length = 40;
  }
  return form;
}

/// As 16 bits have it.
float drawn(int channel, std::int64_t n, int rate) {
  return static_cast<float>(std::lround(examples::sound_at(channel, n, rate) * 32768)) / 32768;
}

/// The root of the mean square of the differences from what was drawn, from frame `first` of the recording on, which
/// is value `from` of the drawing.
double error_of(const heard& h, std::int64_t from, std::size_t first = 0, std::size_t count = SIZE_MAX) {
  double sum = 0;
  count = std::min(count, h.frames() - first);
  for (std::size_t i = first; i < first + count; ++i) {
    for (std::size_t c = 0; c < h.channels; ++c) {
      const auto n = from + static_cast<std::int64_t>(i - first);
      const double d = h.values[i * h.channels + c] - examples::sound_at(static_cast<int>(c), n, h.rate);
      sum += d * d;
    }
  }
  return std::sqrt(sum / static_cast<double>(count * h.channels));
}

std::vector<float> slice(const heard& h, std::size_t from, std::size_t to) {
  const auto at = [&](std::size_t i) { return h.values.begin() + static_cast<std::ptrdiff_t>(i * h.channels); };
  return std::vector<float>(at(from), at(to));
}

/// The largest difference of two values; 9 if there are not as many.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 9;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max<double>(most, std::abs(a[i] - b[i]));
  return most;
}

/// False where FFmpeg has no such encoder, or the container does not take its sound.
bool encoded(const video_form& form, std::string& file) {
  try {
    file = encode_video(form);
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

/// A time as video_shards() gives it.
bytes seconds(double s) {
  char text[sizeof s];
  std::memcpy(text, &s, sizeof s);
  return bytes::copy(std::string_view(text, sizeof text));
}

}  // namespace

TEST_CASE("the sound of a video is what was put into it, value by value") {
  for (const auto& [sound, container] : {std::pair("flac", "mp4"), std::pair("flac", "matroska"),
                                         std::pair("pcm_s16le", "mov"), std::pair("pcm_s16le", "matroska")}) {
    INFO(sound << " in " << container);
    for (const std::int64_t hidden : {0, 3}) {  // frames of the pictures, by an edit list
      video_form form = form_of(sound, container);
      if (hidden != 0 && form.tick.den == 1000) continue;
      form.hidden = hidden * form.length;
      const heard h = sound_of(encode_video(form));
      CHECK(h.rate == 48000);
      CHECK(h.channels == 2);
      REQUIRE(h.frames() == 57600);
      bool same = true;
      for (std::size_t i = 0; i < h.values.size(); ++i) {
        same = same && h.values[i] == drawn(static_cast<int>(i % 2), static_cast<std::int64_t>(i / 2), 48000);
      }
      CHECK(same);
    }
  }
}

TEST_CASE("what a codec loses moves nothing in time") {
  // Without Opus in Matroska, where libavformat's muxer makes the delay of the encoder a delay of the pictures.
  const char* const sounds[][2] = {{"aac", "mp4"},        {"aac", "matroska"},        {"libopus", "mp4"},
                                   {"libmp3lame", "mp4"}, {"libmp3lame", "matroska"}, {"ac3", "mp4"},
                                   {"ac3", "matroska"}};
  for (const auto& [sound, container] : sounds) {
    if (!examples::has_encoder(sound)) {
      WARN("skipped: FFmpeg has no encoder " << sound);
      continue;
    }
    INFO(sound << " in " << container);
    const heard h = sound_of(encode_video(form_of(sound, container)));
    CHECK(h.rate == 48000);
    CHECK(h.channels == 2);
    CHECK(h.frames() >= 57600 - 48);
    // A value earlier or later the sine is another one. Matroska has milliseconds, of 48 values.
    const std::int64_t reach = std::string_view(container) == "mp4" ? 0 : 48;
    std::int64_t found = -100;
    double least = 1;
    for (std::int64_t shift = -reach - 2; shift <= reach + 2; ++shift) {
      const double e = error_of(h, 1000 + shift, 1000, 50000);
      if (e < least) found = shift;
      least = std::min(least, e);
    }
    CHECK(std::abs(found) <= reach);
    CHECK(least < 0.03);
  }
}

TEST_CASE("sound that begins after the pictures has silence before it") {
  for (const auto& [sound, container] : {std::pair("flac", "mp4"), std::pair("pcm_s16le", "matroska")}) {
    INFO(sound << " in " << container);
    video_form form = form_of(sound, container);
    form.late = 4800;  // 0.1 s
    const heard h = sound_of(encode_video(form));
    REQUIRE(h.frames() == 57600 + 4800);
    CHECK(std::all_of(h.values.begin(), h.values.begin() + 9600, [](float v) { return v == 0; }));
    CHECK(error_of(h, 0, 4800) < 1e-4);
    // So it is in a part.
    const heard part = sound_of(encode_video(form), video_span{0.05, 0.2});
    REQUIRE(part.frames() == 7200);
    CHECK(part.values == slice(h, 2400, 9600));
  }
}

TEST_CASE("the sound begins when the first picture is shown") {
  for (const std::int64_t late : {21600, 26400}) {  // 0.45 and 0.55 s
    for (const char* const container : {"mp4", "matroska"}) {
      INFO(late << " in " << container);
      video_form form = form_of("flac", container);
      form.late = late;
      form.between = 2;
      const std::int64_t half = form.tick.den / 2;
      for (int i = 0; i < form.frames; ++i) form.times.push_back(half + i * form.length);
      const heard h = sound_of(encode_video(form));
      REQUIRE(static_cast<std::int64_t>(h.frames()) == 57600 + late - 24000);
      if (late < 24000) CHECK(error_of(h, 24000 - late) < 1e-4);
      if (late > 24000) CHECK(error_of(h, 0, static_cast<std::size_t>(late - 24000)) < 1e-4);
    }
  }
}

TEST_CASE("a part of the sound is that part of the whole") {
  for (const auto& [sound, container] :
       {std::pair("flac", "mp4"), std::pair("pcm_s16le", "mov"), std::pair("aac", "mp4")}) {
    INFO(sound << " in " << container);
    video_form form = form_of(sound, container);
    form.frames = 75;
    const std::string file = encode_video(form);
    const heard all = sound_of(file);
    const double lost = std::string_view(sound) == "aac" ? 0.02 : 0;  // it puts in noise
    REQUIRE(all.frames() >= 3 * 48000);
    for (const auto& [begin, end] : {std::pair(0.0, 0.5), std::pair(0.25, 0.7), std::pair(2.0, 2.5)}) {
      const heard part = sound_of(file, video_span{begin, end});
      const std::vector<float> wanted =
          slice(all, static_cast<std::size_t>(begin * 48000), static_cast<std::size_t>(end * 48000));
      CHECK(difference(part.values, wanted) <= lost);
    }
    CHECK(difference(sound_of(file, video_span{2.9, 9}).values, slice(all, 139200, all.frames())) <= lost);
    CHECK_THAT(reason_of(file, {}, video_span{3.5, 4}), Contains("has no sound from 3.500000 to 4.000000 s"));
    CHECK_THAT(reason_of(file, {}, video_span{1, std::nan("")}), Contains("has no sound from 1.000000 to"));
  }
}

TEST_CASE("clips of films have their sound, from its first value on") {
  for (const char* const sound : {"flac", "aac"}) {
    INFO(sound);
    video_form form = form_of(sound, "mp4");
    form.frames = 100;
    form.group = 25;
    const std::string file = encode_video(form);
    const heard all = sound_of(file);
    const auto format = video_shards({.seconds = 1, .audio = true});
    const shard object("s3://films/a.mp4");
    const shard_index index = test::scanned(std::move(*format->scanner("a.mp4", object, nullptr)), file);
    const std::shared_ptr<const shard_reader> reader = format->reader(index);
    REQUIRE(index.samples() == 4);
    for (std::size_t c = 0; c < 4; ++c) {
      INFO("clip " << c);
      std::vector<bytes> parts;
      for (const object_range& r : reader->ranges(index, c)) {
        parts.push_back(bytes::copy(std::string_view(file).substr(r.begin, r.end - r.begin)));
      }
      sample s;
      reader->unpack(object, c, parts).samples->fill(s, c);
      CHECK(index.end(c) - index.offset(c) == s["video"].size());
      const heard clip(video_sound(s));
      CHECK(difference(clip.values, slice(all, c * 48000, c * 48000 + 48000)) <=
            (std::string_view(sound) == "aac" ? 0.02 : 0));
    }
  }
}

TEST_CASE("what is damaged is an error with its byte and time, or silence") {
  std::string file = encode_video(form_of("flac", "mp4"));
  const heard all = sound_of(file);
  const std::string whole = file;
  const std::size_t at = file.find("\xff\xf8", file.size() / 2);  // a frame of FLAC
  REQUIRE(at != std::string::npos);
  file.replace(at + 100, 40, 40, '\x55');
  CHECK_THAT(reason_of(file), Contains("the MP4 is damaged at byte") && Contains(", in the sound of 0."));
  CHECK_THAT(failure_of([&] {
               video_sound(bytes::copy(file), {}, where{"s3://b/a.tar", 512, "k"});
             }),
             Contains("s3://b/a.tar") && Contains("512") && Contains("k"));
  const heard rest(video_sound(bytes::copy(file), {.tolerate_corruption = true}));
  CHECK(rest.frames() == all.frames());
  CHECK(slice(rest, 0, 4608) == slice(all, 0, 4608));
  CHECK(slice(rest, 50000, 57600) == slice(all, 50000, 57600));
  // A bit, which the frame's checksum may notice alone.
  for (std::size_t byte = at + 500; byte < at + 3000; byte += 100) {
    std::string bit = whole;
    bit[byte] = static_cast<char>(bit[byte] ^ 64);
    CHECK_THAT(reason_of(bit), Contains("the MP4 is damaged at byte"));
  }
  // Damage before a part is not looked at.
  CHECK(reason_of(file, {}, video_span{1.1, 1.2}) == "no error");

  const std::string last = encode_video(form_of("aac", "matroska"));
  CHECK_THAT(reason_of(last.substr(0, last.size() - 2000)), Contains("the Matroska file is cut short"));
  const std::string moved = encode_video(form_of("pcm_s16le", "mov"));
  CHECK_THAT(reason_of(moved.substr(0, 9000)), Contains("the MP4 is cut short"));
}

TEST_CASE("what has no sound that is read is refused, and bombs before they take memory") {
  CHECK_THAT(reason_of("plain text, long enough"), Contains("not a video"));
  CHECK_THAT(reason_of(encode_video({.frames = 3})), Contains("the MP4 has no sound"));
  CHECK_THAT(reason_of(encode_video(form_of("wmav2", "matroska"))),
             Contains("the Matroska file has sound of the codec wmav2, which is not decoded"));
  const std::string file = encode_video(form_of("flac", "mp4"));
  CHECK(reason_of(file, {.max_values = 2 * 57600}) == "no error");
  CHECK_THAT(reason_of(file, {.max_values = 2 * 57600 - 1}), Contains("the MP4 has more sound than is allowed"));
  CHECK_THAT(reason_of(file, {.max_packets = 40}), Contains("packets, more than are allowed"));
  // A gap of an hour.
  video_form form = form_of("flac", "matroska");
  form.late = 48000LL * 3600;
  CHECK_THAT(reason_of(encode_video(form)), Contains("the Matroska file has more sound than is allowed"));
}

TEST_CASE("a stage puts the sound of samples in the place of their videos") {
  const auto from = std::make_shared<const shard>("s3://b/a.tar");
  std::vector<sample> made;
  const std::string file = encode_video(form_of("flac", "mp4"));
  for (std::uint64_t i = 0; i < 3; ++i) {
    sample s("k" + std::to_string(i), origin(from, 512 * i, i));
    s.fields.emplace_back("txt", bytes::copy("words"));
    s.fields.emplace_back("mp4", bytes::copy(i == 1 ? encode_video({.frames = 3}) : file));
    if (i == 2) s.fields.emplace_back("begin", seconds(0.5));
    if (i == 2) s.fields.emplace_back("end", seconds(0.75));
    made.push_back(std::move(s));
  }
  testing::virtual_loop loop;
  cpu_pool cores(2);
  const auto collected = [&](const video_sound_options& o, failure_policy failures) {
    auto all = from_range(made) | sound_of_videos(o, {.on = cores, .failures = failures});
    return block_on(loop, collect(std::move(all)));
  };
  const std::vector<sample> got = collected({}, {.then = on_failure::skip});
  REQUIRE(got.size() == 2);
  CHECK(got[0].key == "k0");
  CHECK(got[0].fields.size() == 2);
  CHECK(got[0]["txt"].view() == "words");
  CHECK(heard(got[0]["sound.wav"]).frames() == 57600);
  CHECK(heard(got[1]["sound.wav"]).frames() == 12000);
  CHECK(got[1].find("mp4") == nullptr);
  CHECK_THAT(failure_of([&] { collected({}, {}); }),
             Contains("the MP4 has no sound") && Contains("s3://b/a.tar") && Contains("k1"));
  CHECK_THAT(failure_of([&] { collected({.field = "mov"}, {}); }), Contains("mov"));
}

TEST_CASE("sounds equal what the program ffmpeg makes of them", "[outside]") {
  if (output_of("command -v ffmpeg").empty()) {
    MILLRACE_SKIP("there is no program ffmpeg (Debian: ffmpeg)");
  }
  const test::temporary_folder folder;
  int compared = 0;
  for (const char* const sound : {"aac", "flac", "libopus", "libmp3lame", "ac3", "alac", "pcm_s16le", "pcm_s24le",
                                  "pcm_f32le", "eac3", "libvorbis"}) {
    for (const char* const container : {"mp4", "mov", "matroska"}) {
      for (const int rate : {48000, 44100}) {
        for (const int channels : {1, 2}) {
          video_form form = form_of(sound, container);
          form.rate = rate;
          form.channels = channels;
          std::string file;
          if (!encoded(form, file)) continue;
          ++compared;
          INFO(sound << " in " << container << ", " << channels << " channels of " << rate);
          const std::string path = folder.file("sound", file);
          const std::string raw = output_of("ffmpeg -nostdin -v fatal -i " + path + " -map 0:a -f f32le -");
          const heard h = sound_of(file);
          // The program writes what lies before the first picture, too, which libavformat makes late in Matroska where
          // an encoder has a delay.
          std::size_t before =
              std::string_view(container) == "matroska" ? raw.size() - h.values.size() * sizeof(float) : 0;
          REQUIRE(before <= 1200 * sizeof(float) * h.channels);
          REQUIRE(h.values.size() * sizeof(float) == raw.size() - before);
          CHECK(std::memcmp(h.values.data(), raw.data() + before, raw.size() - before) == 0);
        }
      }
    }
  }
  CHECK(compared > 40);
}
