// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/audio_decoder.hpp>

#include <sndfile.h>
#include <soxr.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>

#include "examples/common/encode_audio.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/captured_stderr.hpp"

// libsndfile 1.2.0 forgets what libvorbis has allocated for a header that it then refuses.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:vorbis_info_init"; }

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

constexpr int wav = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
constexpr int wav_float = SF_FORMAT_WAV | SF_FORMAT_FLOAT;
constexpr int flac = SF_FORMAT_FLAC | SF_FORMAT_PCM_16;
constexpr int vorbis = SF_FORMAT_OGG | SF_FORMAT_VORBIS;
constexpr int opus = SF_FORMAT_OGG | SF_FORMAT_OPUS;
constexpr int mp3 = SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III;
constexpr int aiff = SF_FORMAT_AIFF | SF_FORMAT_PCM_24;
constexpr int au = SF_FORMAT_AU | SF_FORMAT_PCM_16;
constexpr int caf = SF_FORMAT_CAF | SF_FORMAT_PCM_24;
constexpr int w64 = SF_FORMAT_W64 | SF_FORMAT_FLOAT;
constexpr int rf64 = SF_FORMAT_RF64 | SF_FORMAT_PCM_16;
constexpr int rifx = SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG;
constexpr int all_formats[] = {wav, wav_float, rifx, rf64, w64, flac, vorbis, opus, mp3, aiff, au, caf};

/// A tone with noise over it, other ones in the channels.
std::vector<float> sound(std::size_t frames, std::size_t channels, std::uint64_t seed = 1) {
  std::vector<float> made(frames * channels);
  rng random(seed);
  for (std::size_t i = 0; i < made.size(); ++i) {
    const double tone = std::sin(0.01 * static_cast<double>(i / channels) * static_cast<double>(1 + i % channels));
    made[i] = static_cast<float>(0.6 * tone + 0.2 * (random.uniform() - 0.5));
  }
  return made;
}

bytes file_of(const std::vector<float>& values, int channels, int rate, int format) {
  return bytes::copy(examples::encode_audio(values, channels, rate, format));
}

/// What libsndfile itself reads of the file, which it is given on a disk.
std::vector<float> read_by_sndfile(const bytes& file) {
  std::FILE* const disk = std::tmpfile();
  REQUIRE(disk != nullptr);
  REQUIRE(std::fwrite(file.data(), 1, file.size(), disk) == file.size());
  std::fflush(disk);
  std::rewind(disk);
  SF_INFO info = {};
  SNDFILE* const in = ::sf_open_fd(::fileno(disk), SFM_READ, &info, SF_FALSE);
  REQUIRE(in != nullptr);
  std::vector<float> values(static_cast<std::size_t>(info.frames) * static_cast<std::size_t>(info.channels));
  REQUIRE(::sf_readf_float(in, values.data(), info.frames) == info.frames);
  ::sf_close(in);
  std::fclose(disk);
  return values;
}

template <class T = float>
std::vector<T> values_of(const audio& a) {
  std::vector<T> values(a.values.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), a.data(), a.values.size());
  return values;
}

std::string reason_for(const audio_options& o, const bytes& file) {
  try {
    audio_decoder{o}(file, 0, where{"s3://b/a.tar", 512, "k"});
  } catch (const decode_error& e) {
    CHECK(std::string(e.what()).starts_with("s3://b/a.tar at byte 512, k: "));
    return e.reason();
  }
  return "none";
}

}  // namespace

TEST_CASE("recordings of every format have the values that libsndfile reads, to the bit") {
  for (const int format : all_formats) {
    CAPTURE(format);
    const bytes file = file_of(sound(30000, 2), 2, 48000, format);
    const audio a = audio_decoder()(file);
    CHECK(a.rate == 48000);
    CHECK(a.channels == 2);
    CHECK(a.frames == 30000);
    CHECK(a.rows() == 30000);
    CHECK(values_of(a) == read_by_sndfile(file));
  }
}

TEST_CASE("a part has the values of the whole recording there, to the bit, in every format") {
  for (const int format : all_formats) {
    CAPTURE(format);
    const bytes file = file_of(sound(50000, 2), 2, 48000, format);
    const std::vector<float> whole = read_by_sndfile(file);
    const auto part = [&](std::size_t first) {
      return std::vector<float>(whole.begin() + static_cast<std::ptrdiff_t>(2 * first),
                                whole.begin() + static_cast<std::ptrdiff_t>(2 * (first + 12000)));
    };
    audio_options o{.seconds = 0.25};
    CHECK(values_of(audio_decoder(o)(file, 0.7)) == part(0));
    o.crop = audio_crop::center;
    CHECK(values_of(audio_decoder(o)(file, 0.7)) == part(19000));
    o.crop = audio_crop::random;
    const audio_decoder decode(o);
    CHECK(values_of(decode(file, 0)) == part(0));
    CHECK(values_of(decode(file, 0.5)) == part(19000));
    CHECK(values_of(decode(file, 0.9999999)) == part(38000));
    CHECK(decode(file, 0.3).frames == 12000);
  }
}

TEST_CASE("shorter recordings are filled with zeros where that is wanted, which are not counted") {
  const bytes file = file_of(sound(1000, 1), 1, 8000, flac);
  const audio filled = audio_decoder({.seconds = 0.25})(file);
  CHECK(filled.frames == 1000);
  CHECK(filled.rows() == 2000);
  const std::vector<float> values = values_of(filled);
  CHECK(std::vector<float>(values.begin() + 1000, values.end()) == std::vector<float>(1000, 0.0F));
  CHECK(std::vector<float>(values.begin(), values.begin() + 1000) == read_by_sndfile(file));
  CHECK(audio_decoder({.seconds = 0.25, .fill = false})(file).rows() == 1000);
}

TEST_CASE("channels are mixed to their mean, and one becomes two") {
  const bytes two = file_of(sound(500, 2), 2, 8000, wav);
  const std::vector<float> both = read_by_sndfile(two);
  std::vector<float> mean;
  for (std::size_t i = 0; i < 500; ++i) mean.push_back((both[2 * i] + both[2 * i + 1]) / 2);
  const audio mixed = audio_decoder({.channels = 1})(two);
  CHECK(mixed.channels == 1);
  CHECK(values_of(mixed) == mean);
  const bytes one = file_of(sound(500, 1), 1, 8000, wav);
  const std::vector<float> alone = read_by_sndfile(one);
  std::vector<float> twice;
  for (const float v : alone) twice.insert(twice.end(), 2, v);
  CHECK(values_of(audio_decoder({.channels = 2})(one)) == twice);
  CHECK(reason_for({.channels = 2}, file_of(sound(500, 3), 3, 8000, wav)) ==
        "the WAV has 3 channels, of which no two are made");
}

TEST_CASE("whole numbers of 16 bits come back as they were; others are rounded and clipped") {
  const std::vector<float> values = sound(3000, 1);
  std::vector<std::int16_t> wanted;
  for (const float v : read_by_sndfile(file_of(values, 1, 8000, flac))) {
    wanted.push_back(static_cast<std::int16_t>(v * 32768));
  }
  const audio a = audio_decoder({.type = dtype::i16})(file_of(values, 1, 8000, flac));
  CHECK(a.type == dtype::i16);
  CHECK(values_of<std::int16_t>(a) == wanted);
  const std::vector<float> edges = {0, 1, -1, 2, -2, 0.5F / 32768, -0.5F / 32768, 1.4F / 32768, std::nanf("")};
  const bytes file = file_of(edges, 1, 8000, wav_float);
  CHECK(values_of<std::int16_t>(audio_decoder({.type = dtype::i16})(file)) ==
        std::vector<std::int16_t>{0, 32767, -32768, 32767, -32768, 1, -1, 1, 0});
}

TEST_CASE("another rate is libsoxr's, and a tone stays the tone") {
  constexpr int from = 44100;
  constexpr int to = 16000;
  std::vector<float> tone(from);
  for (std::size_t i = 0; i < tone.size(); ++i) {
    tone[i] = static_cast<float>(0.5 * std::sin(2 * 3.14159265358979 * 440 * static_cast<double>(i) / from));
  }
  const bytes file = file_of(tone, 1, from, wav_float);
  const audio a = audio_decoder({.rate = to})(file);
  CHECK(a.rate == to);
  REQUIRE(a.frames == to);
  const std::vector<float> made = values_of(a);
  std::vector<float> direct(to + 100);
  std::size_t used = 0, count = 0;
  const soxr_quality_spec_t high = ::soxr_quality_spec(SOXR_HQ, 0);
  REQUIRE(::soxr_oneshot(from, to, 1, tone.data(), tone.size(), &used, direct.data(), direct.size(), &count, nullptr,
                         &high, nullptr) == nullptr);
  direct.resize(count);
  CHECK(made == direct);
  double worst = 0;
  for (std::size_t i = 1000; i < to - 1000; ++i) {
    const double wanted = 0.5 * std::sin(2 * 3.14159265358979 * 440 * static_cast<double>(i) / to);
    worst = std::max(worst, std::fabs(static_cast<double>(made[i]) - wanted));
  }
  CHECK(worst < 1e-5);
  // A part has as many frames as it says, at the rate that is wanted, whichever that is.
  for (const int rate : {8000, 16000, 22050, 44100, 48000}) {
    CAPTURE(rate);
    const audio part = audio_decoder({.rate = rate, .seconds = 0.3, .crop = audio_crop::random})(file, 0.4);
    CHECK(part.frames == static_cast<std::size_t>(std::lround(0.3 * rate)));
    CHECK(part.rows() == part.frames);
  }
}

TEST_CASE("resampled, a recording keeps its end, whatever its length") {
  constexpr int from = 44100;
  constexpr int to = 16000;
  const std::vector<float> level(20040, 0.5F);
  const audio_decoder decoder({.rate = to});
  for (std::size_t frames = 20000; frames < level.size(); ++frames) {
    CAPTURE(frames);
    const auto end = level.begin() + static_cast<std::ptrdiff_t>(frames);
    const audio a = decoder(file_of(std::vector<float>(level.begin(), end), 1, from, wav_float));
    const auto exact = static_cast<double>(frames) * to / from;
    REQUIRE(a.frames == static_cast<std::size_t>(std::llround(exact)));
    CHECK(values_of(a)[a.frames - 100] == Approx(0.5).margin(0.05));  // not zeros
  }
}

TEST_CASE("a recording that is cut short anywhere is an error, and with tolerance what there is") {
  const test::captured_stderr libmpg123(test::captured_stderr::into::pipe);  // talks
  for (const int format : all_formats) {
    const bytes file = file_of(sound(30000, 2), 2, 48000, format);
    for (const std::size_t size : {std::size_t(3), std::size_t(60), file.size() / 3, file.size() - 2}) {
      CAPTURE(format, size);
      const bytes cut = file.slice(0, size);
      const std::string reason = reason_for({}, cut);
      const bool said = reason.find("cut short") != std::string::npos || reason.find("not a rec") == 0 ||
                        reason.find("libsndfile refuses the header of the") == 0;
      CHECK(said);
      if (size + 2 < file.size()) continue;
      const audio rest = audio_decoder({.tolerate_corruption = true})(cut);
      CHECK(rest.frames > 1000);
      CHECK(rest.frames < 30000);
    }
  }
}

TEST_CASE("an Ogg that lacks whole pages at its end has what there is, and a line says so") {
  const bytes whole = file_of(sound(30000, 1), 1, 8000, vorbis);
  const std::size_t last = whole.view().rfind("OggS");
  REQUIRE(last > 1000);
  test::captured_stderr said(test::captured_stderr::into::pipe);
  const std::size_t frames = audio_decoder()(whole.slice(0, last)).frames;
  CHECK(frames > 10000);
  CHECK(frames < 30000);
  CHECK_THAT(said.text(), Contains("whether it was cut between two pages is not known"));
}

TEST_CASE("recordings that cannot be had are refused with the reason") {
  CHECK(reason_for({}, bytes::copy("no sound at all")) ==
        "not a recording: it begins as no WAV, FLAC, Ogg, MP3, AIFF, AU, CAF or W64 does");
  CHECK(reason_for({}, bytes()) == "not a recording: it begins as no WAV, FLAC, Ogg, MP3, AIFF, AU, CAF or W64 does");
  CHECK(reason_for({.max_values = 999}, file_of(sound(500, 2), 2, 8000, wav)) ==
        "the WAV has 500 frames of 2 channels, more than are allowed");
  CHECK(reason_for({.max_values = 1000}, file_of(sound(500, 2), 2, 8000, wav)) == "none");
  CHECK(reason_for({.rate = 48000, .max_values = 1000}, file_of(sound(500, 1), 1, 8000, wav)) ==
        "the WAV has 3000 frames of 1 channels, more than are allowed");
  std::string damaged(file_of(sound(30000, 1), 1, 8000, flac).view());
  for (std::size_t i = damaged.size() / 2; i < damaged.size() / 2 + 100; ++i) damaged[i] ^= 0x5a;
  CHECK_THAT(reason_for({}, bytes::copy(damaged)), Contains("the FLAC is cut short or damaged"));
  std::string fast(file_of(sound(500, 1), 1, 8000, wav).view());
  fast.replace(24, 4, std::string("\xff\xff\xff\x7f", 4));  // the rate
  CHECK_THAT(reason_for({}, bytes::copy(fast)), Contains("values a second"));
  for (const audio_options& o : {audio_options{.rate = -1}, audio_options{.channels = 3}, audio_options{.seconds = -1},
                                 audio_options{.type = dtype::f64}}) {
    CHECK_THROWS_AS(audio_decoder(o), configuration_error);
  }
}

TEST_CASE("what a stream's writer could not know is taken as it comes") {
  std::string file(file_of(sound(500, 1), 1, 8000, wav).view());
  const std::size_t data = file.find("data");
  file.replace(data + 4, 4, std::string("\xff\xff\xff\xff", 4));
  CHECK(audio_decoder()(bytes::copy(file)).frames == 500);
  // An Ogg that has lost its last page tells no length: with tolerance, all that there is is cut.
  std::string ogg(file_of(sound(50000, 1), 1, 8000, vorbis).view());
  ogg.resize(ogg.size() - 2);
  const audio_options o{.seconds = 1, .crop = audio_crop::random, .tolerate_corruption = true};
  const bytes part_of = bytes::copy(ogg);
  const std::vector<float> whole = values_of(audio_decoder({.tolerate_corruption = true})(part_of));
  const std::vector<float> end = values_of(audio_decoder(o)(part_of, 0.9999999));
  REQUIRE(end.size() == 8000);
  CHECK(end == std::vector<float>(whole.end() - 8000, whole.end()));
}

TEST_CASE("whatever a recording is damaged to, it is decoded or refused, within its limits") {
  const test::captured_stderr libmpg123(test::captured_stderr::into::pipe);  // talks
  rng random(7);
  for (const int format : all_formats) {
    const std::string whole(file_of(sound(3000, 2), 2, 48000, format).view());
    for (int n = 0; n < 60; ++n) {
      std::string hostile = whole;
      const std::size_t reach = n % 2 == 0 ? 100 : hostile.size();
      for (int k = 0; k < 4; ++k) {
        hostile[random.below(std::min(reach, hostile.size()))] = static_cast<char>(random.next());
      }
      const bool tolerant = n % 3 == 0;
      const audio_decoder decode({.rate = n % 5 == 0 ? 8000 : 0,
                                  .seconds = n % 7 == 0 ? 0.01 : 0,
                                  .tolerate_corruption = tolerant,
                                  .max_values = 1 << 20});
      try {
        const audio a = decode(bytes::copy(hostile));
        CHECK(a.values.size() <= 4 << 20);
      } catch (const decode_error& e) {
        CHECK_FALSE(e.reason().empty());
      }
    }
  }
}
