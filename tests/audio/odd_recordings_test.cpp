// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/audio_decoder.hpp>

#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/decode/detail/sound_parts.hpp>

#include "examples/common/encode_audio.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/test_data.hpp"

// Recordings whose headers say nothing of their length, or what is not so. What is right is what ffmpeg 5.1 decodes,
// unless a comment says otherwise; libsndfile 1.2.0 believes headers, and estimates where there are none.

using namespace millrace;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

constexpr int wav = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
constexpr int flac = SF_FORMAT_FLAC | SF_FORMAT_PCM_16;
constexpr int vorbis = SF_FORMAT_OGG | SF_FORMAT_VORBIS;
constexpr int opus = SF_FORMAT_OGG | SF_FORMAT_OPUS;
constexpr int mp3 = SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III;
constexpr int aiff = SF_FORMAT_AIFF | SF_FORMAT_PCM_16;
constexpr int au = SF_FORMAT_AU | SF_FORMAT_PCM_16;
constexpr int caf = SF_FORMAT_CAF | SF_FORMAT_PCM_16;
constexpr int w64 = SF_FORMAT_W64 | SF_FORMAT_PCM_16;
constexpr int rf64 = SF_FORMAT_RF64 | SF_FORMAT_PCM_16;

/// Bytes with zeros among them, of a literal.
template <std::size_t N>
std::string raw(const char (&text)[N]) {
  return std::string(text, N - 1);
}

std::string number(std::uint64_t value, std::size_t size, bool big = false) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += static_cast<char>(value >> 8 * (big ? size - 1 - i : i));
  return text;
}

std::vector<float> sound(std::size_t frames, std::size_t channels = 1, std::uint64_t seed = 1) {
  std::vector<float> made(frames * channels);
  rng random(seed);
  for (std::size_t i = 0; i < made.size(); ++i) {
    const double tone = std::sin(0.03 * static_cast<double>(seed) * static_cast<double>(i / channels));
    made[i] = static_cast<float>(0.5 * tone + 0.2 * (random.uniform() - 0.5));
  }
  return made;
}

std::string encoded(std::size_t frames, int format, std::uint64_t seed = 1, int rate = 16000, int channels = 1,
                    double compression = 0.5) {
  return examples::encode_audio(sound(frames, static_cast<std::size_t>(channels), seed), channels, rate, format,
                                compression);
}

std::vector<float> values(const std::string& file, const audio_options& o = {}, double place = 0) {
  const audio a = audio_decoder(o)(bytes::copy(file), place);
  std::vector<float> all(a.values.size() / sizeof(float));
  if (!all.empty()) std::memcpy(all.data(), a.data(), a.values.size());
  return all;
}
std::size_t frames(const std::string& file) { return audio_decoder()(bytes::copy(file)).frames; }

std::string refusal(const std::string& file) {
  try {
    return "nothing, " + std::to_string(frames(file)) + " frames";
  } catch (const decode_error& e) {
    return e.reason();
  }
}

std::vector<float> joined(std::vector<float> a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// But for the last bit: libmpg123 adds in another order after a seek.
bool near(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    worst = std::max(worst, static_cast<double>(std::fabs(a[i] - b[i])));
  }
  return worst < 1e-6;
}

std::string with(std::string file, std::size_t at, const std::string& value) {
  REQUIRE(at + value.size() <= file.size());
  return file.replace(at, value.size(), value);
}

// MP3

/// Without the frame that LAME puts before the others.
std::string without_header(const std::string& file) { return file.substr(detail::mpeg_frame::at(file, 0)->size); }

std::size_t count_frames(const std::string& file) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < file.size(); ++count) at += detail::mpeg_frame::at(file, at)->size;
  return count;
}

std::string id3(std::size_t size) {
  return raw("ID3\4\0\0\0\0") + number((size / 128) << 8 | size % 128, 2, true) + std::string(size, 'x');
}
std::string id3v1() { return "TAG" + std::string(125, ' '); }
std::string ape(std::size_t size, bool header) {
  const auto mark = [&](std::uint64_t flags) {
    return "APETAGEX" + number(2000, 4) + number(size + 32, 4) + number(1, 4) + number(flags, 4) + number(0, 8);
  };
  const std::uint64_t has = header ? 0x80000000u : 0;
  return (header ? mark(has | 0x20000000u) : std::string()) + std::string(size, 'a') + mark(has);
}

/// Frames of several bit rates, without a header: 16 kHz, one channel, 576 values each.
std::string of_variable_rate() {
  std::string file;
  for (const double compression : {0.0, 0.9, 0.4}) {
    file += without_header(encoded(20000, mp3, 1, 16000, 1, compression));
  }
  return file;
}

// Ogg

std::vector<std::string> pages(const std::string& file) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < file.size();) {
    const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(file[at + i])); };
    std::size_t size = 27 + byte(26);
    for (std::size_t i = 0; i < byte(26); ++i) size += byte(27 + i);
    all.push_back(file.substr(at, size));
    at += size;
  }
  return all;
}

/// The page with other flags, and the checksum that it has then (RFC 3533, section 6).
std::string flagged(std::string page, char flags) {
  page[5] = flags;
  page.replace(22, 4, 4, '\0');
  std::uint32_t crc = 0;
  for (const char c : page) {
    crc ^= static_cast<std::uint32_t>(static_cast<unsigned char>(c)) << 24;
    for (int i = 0; i < 8; ++i) crc = crc << 1 ^ ((crc & 0x80000000u) != 0 ? 0x04c11db7u : 0);
  }
  return page.replace(22, 4, number(crc, 4));
}

std::string without_end_mark(const std::string& file) {
  std::vector<std::string> all = pages(file);
  std::string text;
  all.back() = flagged(all.back(), 0);
  for (const std::string& page : all) text += page;
  return text;
}

}  // namespace

TEST_CASE("an MP3 without a header has as many values as its frames, of whatever bit rates") {
  const std::string variable = of_variable_rate();
  const std::size_t all = count_frames(variable) * 576;
  CHECK(frames(variable) == all);
  const std::vector<float> whole = values(variable);
  // Not silence, and a part is what the whole has there.
  double loud = 0;
  for (const float v : whole) loud += std::fabs(v);
  CHECK(loud / static_cast<double>(all) > 0.1);
  const std::vector<float> end = values(variable, {.seconds = 0.5, .crop = audio_crop::random}, 0.9999999);
  CHECK(near(end, std::vector<float>(whole.end() - 8000, whole.end())));

  for (const int rate : {8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000}) {
    for (const int channels : {1, 2}) {
      CAPTURE(rate, channels);
      const std::string file = without_header(encoded(30000, mp3, 1, rate, channels));
      CHECK(frames(file) == count_frames(file) * (rate >= 32000 ? 1152 : 576));
    }
  }
}

TEST_CASE("a part of an MP3 of few bits has what the whole one has there") {
  // A frame's data may stand in those before it: libmpg123 alone is wrong by half of full scale here.
  for (const double compression : {0.5, 0.9, 1.0}) {
    for (const int rate : {16000, 24000, 44100, 48000}) {
      const std::string file = encoded(60000, mp3, 1, rate, 1, compression);
      const std::vector<float> whole = values(file);
      const double seconds = 2000.0 / rate;
      for (const double place : {0.01, 0.09, 0.24, 0.7, 0.99}) {
        CAPTURE(compression, rate, place);
        const std::vector<float> part = values(file, {.seconds = seconds, .crop = audio_crop::random}, place);
        const auto first = static_cast<std::ptrdiff_t>(place * (60000 - 2000 + 1));
        CHECK(near(part, std::vector<float>(whole.begin() + first, whole.begin() + first + 2000)));
      }
    }
  }
}

TEST_CASE("tags before, after and between the frames of an MP3 are no sound") {
  const std::string file = of_variable_rate();
  const std::vector<float> plain = values(file);
  CHECK((values(id3(300) + file) == plain));
  CHECK((values(id3(300) + id3(50) + std::string(500, '\0') + file) == plain));
  CHECK((values(file + id3v1()) == plain));
  CHECK((values(file + ape(100, true)) == plain));
  CHECK((values(file + ape(100, false) + id3v1()) == plain));
  CHECK((values(id3(1) + ape(100, true) + file + std::string(700, '\0')) == plain));
  const std::size_t second = detail::mpeg_frame::at(file, 0)->size;
  CHECK((values(file.substr(0, second) + id3(60) + file.substr(second)) == plain));  // as HLS joins its segments
  CHECK((values(file.substr(0, second) + id3v1() + id3(60) + file.substr(second)) == plain));
  test::captured_stderr said(test::captured_stderr::into::pipe);
  CHECK((values(id3(20) + "no tag" + file) == plain));
  CHECK_THAT(said.text(), Contains("millrace: the MP3: bytes before its first frame are no tag, and left out"));
  CHECK_THAT(refusal(id3(300).substr(0, 200)), Contains("the MP3 is cut short"));
  CHECK(refusal(id3(300) + std::string(400, 'x')) == "the MP3 is without a frame of MPEG audio, layer III");
  // What ID3 precedes need be no MP3.
  CHECK((values(id3(300) + encoded(3000, flac)) == values(encoded(3000, flac))));
}

TEST_CASE("what an MP3's header says is compared with its frames") {
  const std::string file = encoded(20000, mp3);  // with Info: 16 kHz, one channel
  const std::size_t info = std::min(file.find("Info"), file.find("Xing"));
  REQUIRE(info == 13);
  const std::vector<float> whole = values(file);
  CHECK(whole.size() == 20000);
  const std::size_t count = count_frames(file) - 1;
  {
    test::captured_stderr said(test::captured_stderr::into::pipe);
    const std::size_t some = frames(with(file, info + 8, number(count - 9, 4, true)));
    CHECK(some >= 20000 - 576);  // LAME's padding is believed
    CHECK_THAT(said.text(), Contains("it has more frames than its header says: all are taken"));
  }
  CHECK(refusal(with(file, info + 8, number(count + 5, 4, true))) ==
        "the MP3 is cut short: it says that it has " + std::to_string(count + 5) + " frames, and has " +
            std::to_string(count));
  const std::string one_more = with(file, info + 8, number(count + 1, 4, true));
  CHECK_THAT(refusal(one_more.substr(0, file.size() - 1)), Contains("cut short"));
  // A header that counts itself, as the number of bytes shows.
  CHECK(frames(one_more) == 20000);
  // No number in it, another kind, or none that libmpg123 would see: what is there is counted.
  CHECK(frames(with(file, info + 4, number(0, 4, true))) == count * 576);
  CHECK(frames(with(file, 10, "x")) == count * 576);
  std::string vbri = with(file, info, std::string(200, '\0'));
  vbri = with(vbri, 36, "VBRI" + number(1, 2, true) + number(0, 4) + number(file.size(), 4, true));
  CHECK(frames(with(vbri, 50, number(count, 4, true))) == count * 576);
  CHECK_THAT(refusal(with(vbri, 50, number(count + 7, 4, true))), Contains("cut short"));
  for (std::size_t size = 4; size < file.size(); size += 1 + file.size() / 97) {
    CAPTURE(size);
    CHECK_THAT(refusal(file.substr(0, size)), StartsWith("the MP3 is cut short"));
  }
  const std::string bare = without_header(file);  // cut inside a frame
  CHECK_THAT(refusal(bare.substr(0, bare.size() - 1)), StartsWith("the MP3 is cut short"));
  CHECK_THAT(refusal(bare.substr(0, bare.size() / 2 + 1)), StartsWith("the MP3 is cut short"));
  CHECK_THAT(refusal(bare + "\xff\xf3"), StartsWith("the MP3 is cut short"));
}

TEST_CASE("damage between the frames of an MP3 is an error that says where") {
  const test::captured_stderr libmpg123(test::captured_stderr::into::pipe);  // talks
  const std::string file = of_variable_rate();
  const std::size_t second = detail::mpeg_frame::at(file, 0)->size;
  CHECK(refusal(file.substr(0, second) + "rubbish" + file.substr(second)) ==
        "the MP3 is damaged: bytes " + std::to_string(second) + " to " + std::to_string(second + 7) +
            " are no frame of MPEG audio");
  CHECK_THAT(refusal(with(file, second, "xx")), StartsWith("the MP3 is damaged: bytes " + std::to_string(second)));
  CHECK_THAT(refusal(file + "rubbish"), StartsWith("the MP3 is damaged"));
  const audio rest = audio_decoder({.tolerate_corruption = true})(bytes::copy(with(file, second, "xx")));
  CHECK(rest.frames >= (count_frames(file) - 2) * 576);
}

TEST_CASE("joined MP3s give all recordings, one after the other") {
  const std::string a = encoded(20000, mp3, 1);
  const std::string b = encoded(9000, mp3, 2);
  CHECK((values(a + b) == joined(values(a), values(b))));
  CHECK((values(a + id3v1() + id3(100) + b) == joined(values(a), values(b))));
  CHECK((values(a + b + a) == joined(joined(values(a), values(b)), values(a))));
  CHECK(frames(without_header(a) + without_header(b)) == (count_frames(a) + count_frames(b) - 2) * 576);
  const std::vector<float> whole = joined(values(a), values(b));
  for (const double place : {0.0, 0.4, 0.65, 0.9999999}) {  // parts of one, of both, and of the other
    CAPTURE(place);
    const std::vector<float> part = values(a + b, {.seconds = 0.5, .crop = audio_crop::random}, place);
    const auto first = static_cast<std::ptrdiff_t>(place * (29000 - 8000 + 1));
    CHECK(near(part, std::vector<float>(whole.begin() + first, whole.begin() + first + 8000)));
  }
  CHECK(refusal(a + encoded(9000, mp3, 1, 22050)) ==
        "the MP3 is made of 2 recordings, of which number 2 has 1 channels of 22050 values a second, and the first "
        "one 1 of 16000");
  CHECK_THAT(refusal(without_header(a) + without_header(encoded(9000, mp3, 1, 16000, 2))),
             Contains("number 2 has 2 channels"));
}

TEST_CASE("a WAV whose writer did not know its length has all that follows") {
  test::captured_stderr said(test::captured_stderr::into::pipe);
  for (const int channels : {1, 2}) {
    for (const int format : {wav, SF_FORMAT_WAV | SF_FORMAT_PCM_24, SF_FORMAT_WAV | SF_FORMAT_FLOAT}) {
      const std::string file = encoded(401, format, 1, 8000, channels);
      const std::vector<float> whole = values(file);
      const std::size_t data = file.find("data") + 4;
      const std::size_t end = data + 4 + 401 * static_cast<std::size_t>(channels) *
                                             (format == wav ? 2 : format == (SF_FORMAT_WAV | SF_FORMAT_PCM_24) ? 3 : 4);
      for (const std::uint64_t size :
           {0ull, 0x7f000000ull, 0x7fff0000ull, 0x7fffeffcull, 0x7ffff000ull, 0x7ffffffeull, 0x7fffffffull,
            0x7fffffdbull, 0x80000000ull, 0x80000024ull, 0xffffffffull, 0xffffffdbull, 0xfffffff0ull, 0xffffff00ull,
            0xffff0000ull}) {
        CAPTURE(channels, format, size);
        const std::string odd = with(file, data, number(size, 4)).substr(0, end);
        CHECK((values(odd) == whole));
        CHECK((values(with(odd, 4, number(size, 4))) == whole));
        CHECK((values(with(odd, 4, number(file.size() - 8, 4))) == whole));
      }
      // As long as it says, or an error.
      for (const std::uint64_t more : {1u, 2u, 1000u, 0x7000000u, 0x7ffe0000u, 0xf0000000u}) {
        CHECK(refusal(with(file, data, number(end - data - 4 + more, 4)).substr(0, end)) == "the WAV is cut short");
      }
    }
  }
  CHECK_THAT(said.text(), Contains("millrace: the WAV: its header does not say how much there is"));
}

TEST_CASE("chunks around a WAV's data are no sound, and an empty WAV is empty") {
  test::captured_stderr said(test::captured_stderr::into::pipe);
  const std::string file = encoded(300, wav, 1, 8000);
  const std::vector<float> whole = values(file);
  const std::string list = "LIST" + number(18, 4) + "INFOISFT" + number(6, 4) + raw("SoX 1\0");
  const std::size_t data = file.find("data");
  CHECK((values(file + list) == whole));
  CHECK((values(file.substr(0, data) + list + file.substr(data)) == whole));
  CHECK((values(with(file.substr(0, data) + list + file.substr(data), data + list.size() + 4, number(0, 4))) == whole));
  CHECK((values(file + std::string(100, '\0')) == whole));
  const std::string empty = with(file.substr(0, data + 8), data + 4, number(0, 4));
  CHECK(frames(empty) == 0);
  CHECK(frames(empty + list) == 0);
  CHECK(frames(empty + list + "id3 " + number(3, 4) + raw("abc\0")) == 0);
  CHECK(frames(empty + std::string(200, '\0')) == 100);  // silence
  CHECK((values(file + "rubbish!!") == whole));
  CHECK_THAT(said.text(), Contains("what follows its data is no chunk, and left out"));
  CHECK_THAT(refusal(file + file.substr(data)),
             Contains("the WAV is in two pieces: a second chunk of data is at byte"));
  const std::string odd = encoded(301, SF_FORMAT_WAV | SF_FORMAT_PCM_U8, 1, 8000);
  CHECK(frames(odd) == 301);
  CHECK(frames(odd.substr(0, odd.find("data") + 8 + 301)) == 301);  // without the byte that makes it even
}

TEST_CASE("joined WAVs and FLACs give all recordings, one after the other") {
  const test::captured_stderr said(test::captured_stderr::into::pipe);
  for (const int format : {wav, flac, aiff, SF_FORMAT_RF64 | SF_FORMAT_PCM_16, wav | SF_ENDIAN_BIG}) {
    CAPTURE(format);
    const std::string a = encoded(3000, format, 1);
    const std::string b = encoded(500, format, 2);
    CHECK((values(a + b) == joined(values(a), values(b))));
    CHECK((values(a + b + b) == joined(joined(values(a), values(b)), values(b))));
    CHECK_THAT(refusal(a + encoded(500, format, 1, 8000)), Contains("number 2 has 1 channels of 8000"));
    CHECK_THAT(refusal(a + encoded(500, format, 1, 16000, 2)), Contains("number 2 has 2 channels"));
    CHECK_THAT(refusal(a + b.substr(0, b.size() - 9)), Contains("cut short"));
  }
}

TEST_CASE("AIFF, AU, CAF, W64, RF64 and big-endian WAV are taken with the lengths that streams have") {
  const test::captured_stderr said(test::captured_stderr::into::pipe);
  const auto check = [](int format, const std::string& name, std::size_t length, std::size_t extra, bool big,
                        const std::vector<std::uint64_t>& unknown) {
    const std::string file = encoded(400, format, 1, 8000);
    const std::vector<float> whole = values(file);
    CHECK(whole.size() == 400);
    const std::size_t data = name.empty() ? 8 : file.rfind(name) + (format == w64 ? 16 : 4);
    const std::size_t end = file.find(file.substr(file.size() - 8)) + 8;
    for (const std::uint64_t size : unknown) {
      CAPTURE(format, size);
      const std::string odd = with(file, data, number(size, length, big)).substr(0, end);
      CHECK((values(odd) == whole));
    }
    CAPTURE(format);
    const std::size_t true_size = 800 + extra;
    CHECK((values(with(file, data, number(true_size, length, big))) == whole));
    CHECK_THAT(refusal(file.substr(0, file.size() - 200)), Contains("cut short"));
    CHECK_THAT(refusal(with(file, data, number(true_size + 1000, length, big))), Contains("cut short"));
  };
  const std::vector<std::uint64_t> words = {0, 0x7f000000, 0x7effffe8, 0x7ffff000, 0x80000000, 0xffffffff, 0xffffffdb};
  const std::vector<std::uint64_t> longs = {0, 0xffffffffffffffff, 0x7fffffffffffffff, 0x7fffffffffffffe8, 0xffffffff};
  check(aiff, "SSND", 4, 8, true, words);
  check(au, "", 4, 0, true, words);
  check(caf, "data", 8, 4, true, longs);
  check(w64, "data", 8, 24, false, longs);
  check(wav | SF_ENDIAN_BIG, "data", 4, 0, true, words);

  // RF64: the length is in another chunk.
  const std::string file = encoded(400, rf64, 1, 8000);
  const std::size_t length = file.find("ds64") + 16;
  for (const std::uint64_t size : longs) {
    CAPTURE(size);
    CHECK((values(with(file, length, number(size, 8))) == values(file)));
  }
  CHECK(refusal(with(file, length, number(801, 8))) == "the WAV is cut short");
  // AIFF counts frames, too; FFmpeg and SoX do not know them either.
  const std::string counted = encoded(400, aiff, 1, 8000);
  const std::size_t count = counted.find("COMM") + 10;
  const std::size_t size = counted.find("SSND") + 4;
  CHECK((values(with(counted, count, number(0, 4))) == values(counted)));
  CHECK((values(with(with(counted, count, number(0, 4)), size, number(0, 4))) == values(counted)));
  CHECK(values(with(with(counted, count, number(0x3f800000, 4, true)), size, number(0x7f000008, 4, true))) ==
        values(counted));
}

TEST_CASE("a recording that is cut at any byte is an error, or a line says what is not known") {
  const test::captured_stderr libmpg123(test::captured_stderr::into::pipe);  // talks
  for (const int format : {wav, wav | SF_ENDIAN_BIG, SF_FORMAT_WAV | SF_FORMAT_IMA_ADPCM, rf64, w64, flac, vorbis, opus,
                           mp3, aiff, au, caf, SF_FORMAT_CAF | SF_FORMAT_ALAC_16}) {
    const std::string file = encoded(300, format);
    for (std::size_t size = 0; size < file.size(); size += size < 200 || size + 200 > file.size() ? 1 : 23) {
      CAPTURE(format, size);
      const std::string reason = refusal(file.substr(0, size));
      if (reason.find("nothing") == 0) CHECK(reason == refusal(file));  // what was cut was no sound
    }
  }
}

TEST_CASE("a FLAC that does not say its length has all its frames") {
  const std::string file = encoded(20000, flac);
  std::string odd = file;
  odd[21] &= '\xf0';  // 36 bits of STREAMINFO: how many values
  odd.replace(22, 4, 4, '\0');
  test::captured_stderr said(test::captured_stderr::into::pipe);
  CHECK((values(odd) == values(file)));
  CHECK_THAT(said.text(), Contains("millrace: the FLAC: its header does not say how much there is"));
  const std::vector<float> whole = values(file);
  CHECK(values(odd, {.seconds = 0.25, .crop = audio_crop::random}, 0.9999999) ==
        std::vector<float>(whole.end() - 4000, whole.end()));
  CHECK_THAT(refusal(file.substr(0, file.size() / 2)), Contains("cut short"));
}

TEST_CASE("a header that says fewer frames than there are loses none") {
  for (const std::size_t length : {20000, 4000, 4096 * 3}) {
    const std::string file = encoded(length, flac);
    const std::vector<float> whole = values(file);
    REQUIRE(whole.size() == length);
    test::captured_stderr said(test::captured_stderr::into::pipe);
    const std::string odd = with(file, 22, number(1000, 4, true));
    CHECK((values(odd) == whole));
    CHECK((values(odd + id3v1()) == whole));
    CHECK((values(odd, {.seconds = 0.0625, .crop = audio_crop::center}) ==
           std::vector<float>(whole.begin() + static_cast<std::ptrdiff_t>(length / 2 - 500),
                              whole.begin() + static_cast<std::ptrdiff_t>(length / 2 + 500))));
    CHECK((values(odd + file) == joined(whole, whole)));
    CHECK_THAT(said.text(), Contains("millrace: the FLAC: it has more frames than its header says: all are taken"));
    CHECK_THAT(refusal(with(file, 22, number(length + 1, 4, true))), Contains("cut short"));
  }
  const std::string counted = encoded(400, aiff, 1, 8000);
  test::captured_stderr said(test::captured_stderr::into::pipe);
  CHECK((values(with(counted, counted.find("COMM") + 10, number(100, 4, true))) == values(counted)));
  CHECK_THAT(said.text(), Contains("millrace: the AIFF: it has more frames than its header says: all are taken"));
  const std::string simple = encoded(400, au, 1, 8000);
  const std::vector<float> whole = values(simple);
  test::captured_stderr left_out(test::captured_stderr::into::pipe);
  CHECK((values(simple + "more") == whole));
  CHECK((values(simple + std::string(8, '\0')) == whole));
  CHECK_THAT(left_out.text(), Contains("millrace: the AU: what follows its data is left out"));
}

TEST_CASE("chained Oggs give all links, one after the other") {
  for (const int format : {vorbis, opus}) {
    CAPTURE(format);
    const std::string a = encoded(30000, format, 1);
    const std::string b = encoded(9000, format, 2);
    const std::vector<float> whole = joined(values(a), values(b));
    CHECK(whole.size() == 39000);
    CHECK((values(a + b) == whole));
    CHECK((values(a + b + a) == joined(whole, values(a))));
    const std::vector<float> end = values(a + b, {.seconds = 1, .crop = audio_crop::random}, 0.9999999);
    CHECK((end == std::vector<float>(whole.end() - 16000, whole.end())));
    CHECK_THAT(refusal(a + encoded(9000, format, 1, 16000, 2)), Contains("the Ogg is made of 2 recordings"));
    CHECK(refusal(a + b.substr(0, b.size() - 1)) == "the Ogg is cut short");
    CHECK(refusal(a + b.substr(0, 20)) == "the Ogg is cut short");
  }
  CHECK_THAT(refusal(encoded(9000, vorbis) + encoded(9000, vorbis, 1, 8000)),
             Contains("number 2 has 1 channels of 8000"));
}

TEST_CASE("an Ogg needs no mark at its end, and one that is cut inside a page or a packet is an error") {
  for (const int format : {vorbis, opus}) {
    CAPTURE(format);
    const std::string file = encoded(30000, format);
    {
      test::captured_stderr said(test::captured_stderr::into::pipe);
      CHECK((values(without_end_mark(file)) == values(file)));
      CHECK_THAT(said.text(), Contains("millrace: the Ogg: it has no mark at its end"));
    }
    const test::captured_stderr said(test::captured_stderr::into::pipe);
    CHECK((values(without_end_mark(file) + file) == joined(values(file), values(file))));
    for (std::size_t size = 4; size < file.size(); size += 1 + file.size() / 83) {
      CAPTURE(size);
      bool inside = true;
      std::size_t at = 0;
      for (const std::string& page : pages(file)) inside = inside && (at += page.size()) != size;
      if (inside) CHECK(refusal(file.substr(0, size)) == "the Ogg is cut short");
    }
    // Of another codec.
    std::string other = file;
    other.replace(28, 4, "????");
    CHECK_THAT(refusal(flagged(pages(other)[0], 2) + file.substr(pages(file)[0].size())),
               StartsWith("libsndfile refuses the header of the Ogg (it reads Vorbis and Opus)"));
    // Its headers alone.
    const std::vector<std::string> all = pages(file);
    CHECK(refusal(all[0] + all[1]) == "the Ogg is cut short");
    CHECK_THAT(refusal(all[0] + "rubbish" + file.substr(all[0].size())), StartsWith("the Ogg is damaged: bytes "));
    CHECK((values(file + std::string(100, '\0')) == values(file)));
  }
}

TEST_CASE("the odd recordings that were reported have the lengths that ffmpeg gives them") {
  const std::string folder = test::test_data_folder();
  if (folder.empty()) MILLRACE_SKIP("no test data");
  const test::captured_stderr said(test::captured_stderr::into::pipe);
  const auto odd = [&](const char* name) { return frames(test::read_file(folder + "/odd/" + name)); };
  CHECK(odd("vbr_without_length.mp3") == 65664);
  CHECK(odd("wav_size_zero.wav") == 4000);
  CHECK(odd("wav_from_a_pipe.wav") == 4000);
  // Two links of 96312 values at 48 kHz, of each of which the first 312 are left out (RFC 7845, section 4.2), at the
  // 8 kHz that they were encoded from. ffmpeg 5.1 leaves them out of the first one alone.
  CHECK(odd("chained.ogg") == 32000);
  CHECK(odd("third/header_says_fewer.flac") == 4000);
}
