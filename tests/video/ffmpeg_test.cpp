// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Drawn videos beside the program ffmpeg, and beside torchcodec of PyPI: each frame and each timestamp.
#include <millrace/decode/video_decoder.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <millrace/base/rng.hpp>

#include "examples/common/encode_video.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/test_data.hpp"

using namespace millrace;
using examples::video_form;
using test::output_of;

namespace {

/// All frames of a video, one after the other, and when each is shown first, in seconds.
class all_frames {
 public:
  std::string pixels;
  std::vector<double> times;
};

/// What the program makes of a file; `tick`: of its timestamps.
all_frames by_program(const std::string& path, double tick) {
  all_frames all;
  // -copyts keeps the timestamps; showinfo's lines have those of the frames that are written.
  const std::string log = path + ".log";
  all.pixels = output_of("ffmpeg -nostdin -v info -threads 1 -copyts -i " + path +
                         " -map 0:v -vf showinfo -fps_mode passthrough -f rawvideo -pix_fmt rgb24 - 2> " + log);
  std::ifstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find("] n:");
    const std::size_t pts = line.find(" pts:");
    if (at == std::string::npos || pts == std::string::npos) continue;
    all.times.push_back(static_cast<double>(std::atoll(line.c_str() + pts + 5)) * tick);
  }
  return all;
}

/// What torchcodec_frames.py has written of a file.
all_frames by_torchcodec(const std::string& path) {
  all_frames all;
  all.pixels = test::read_file(path + ".rgb");
  const std::string times = test::read_file(path + ".times");
  all.times.resize(times.size() / sizeof(double));
  std::memcpy(all.times.data(), times.data(), times.size());
  return all;
}

template <class T, std::size_t N>
const T& any_of(rng& random, const T (&all)[N]) {
  return all[random.below(N)];
}

video_form drawn_form(rng& random, int number) {
  struct codec {
    const char* name;
    const char* options;
    const char* containers[2];
    AVPixelFormat formats[3];
    int most;
  };
  static const codec codecs[] = {
      {"libx264",
       "preset=ultrafast",
       {"mp4", "matroska"},
       {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV420P10, AV_PIX_FMT_YUV444P},
       40},
      {"libx264",
       "preset=superfast:x264-params=open-gop=1:bframes=3",
       {"mp4", "mov"},
       {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV422P, AV_PIX_FMT_YUV420P},
       40},
      {"libx264",
       "preset=ultrafast:x264-params=interlaced=1",
       {"matroska", "mp4"},
       {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV420P},
       40},
      {"libx265",
       "preset=ultrafast:x265-params=log-level=none:pools=none:frame-threads=1",
       {"mp4", "matroska"},
       {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV420P10, AV_PIX_FMT_YUV420P},
       20},
      {"libvpx-vp9",
       "deadline=realtime:cpu-used=8",
       {"webm", "mp4"},
       {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV444P, AV_PIX_FMT_YUV420P},
       20},
      {"libaom-av1",
       "usage=realtime:cpu-used=8:lag-in-frames=0",
       {"mp4", "webm"},
       {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV420P},
       10},
      {"mpeg4", "", {"mp4", "matroska"}, {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV420P}, 40},
  };
  const codec* taken = &any_of(random, codecs);
  while (!examples::has_encoder(taken->name)) taken = &any_of(random, codecs);
  video_form form;
  form.codec = taken->name;
  form.options = taken->options;
  form.container = any_of(random, taken->containers);
  form.format = any_of(random, taken->formats);
  form.seed = number;
  form.width = 32 + 2 * static_cast<int>(random.below(24));
  form.height = 32 + 4 * static_cast<int>(random.below(10));
  if (std::string(form.codec) == "libx265") {  // it writes beyond its memory for smaller ones
    form.width = 64;
    form.height = 64;
  }
  form.frames = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(taken->most)));
  form.group = 1 + static_cast<int>(random.below(15));
  const bool reorders = std::string(form.codec) == "libx264" || std::string(form.codec) == "mpeg4";
  form.between = reorders ? static_cast<int>(random.below(3)) : 0;
  const bool matroska = std::string(form.container) == "matroska" || std::string(form.container) == "webm";
  if (matroska) {
    form.tick = {1, 1000};
    form.length = 40;
  }
  if (random.below(3) == 0) {  // uneven
    std::int64_t at = 0;
    for (int i = 0; i < form.frames; ++i) {
      form.times.push_back(at);
      at += form.length / 2 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(form.length) * 2));
    }
  }
  const bool mp4 = std::string(form.container) == "mp4" || std::string(form.container) == "mov";
  if (mp4 && random.below(4) == 0) form.layout = "movflags=frag_keyframe+empty_moov";
  // FFmpeg shows those frames of an AV1 that an edit list leaves out.
  const bool hides = mp4 && form.layout[0] == '\0' && form.frames > 8 && std::string(form.codec) != "libaom-av1";
  if (hides && random.below(4) == 0) form.hidden = form.length * 3;
  if (random.below(4) == 0) form.colours = AVCOL_SPC_BT709;
  if (random.below(6) == 0) form.range = AVCOL_RANGE_JPEG;
  // The program turns frames before it makes RGB of them, which is another colour where pixels share theirs.
  if (mp4 && form.format == AV_PIX_FMT_YUV420P && random.below(6) == 0)
    form.quarters = 1 + static_cast<int>(random.below(3));
  return form;
}

std::string text_of(const video_form& f) {
  std::ostringstream text;
  text << "video " << f.seed << ": " << f.codec << " " << f.options << " in " << f.container << " " << f.layout
       << ", pixel format " << f.format << ", " << f.width << " x " << f.height << ", " << f.frames
       << " frames, groups of " << f.group << ", " << f.between << " between, hidden " << f.hidden << ", quarters "
       << f.quarters << ", colours " << f.colours << ", range " << f.range << ", uneven " << !f.times.empty();
  return text.str();
}

/// Compares every frame, then clips of single frames and of every second to fourth one from places in the middle.
void compare(const std::string& file, const video_form& form, const all_frames& expected, rng& random) {
  const bool lies = form.quarters % 2 == 0;
  const std::size_t size = static_cast<std::size_t>(form.width) * static_cast<std::size_t>(form.height) * 3;
  const std::size_t count = expected.pixels.size() / size;
  REQUIRE(count == expected.times.size());
  REQUIRE(count > 0);
  video_options o;
  o.width = lies ? form.width : form.height;
  o.height = lies ? form.height : form.width;
  const auto decoded = [&](clip_start start, int frames, std::string& pixels) {
    o.start = start;
    o.frames = frames;
    const video_decoder decoder(o);
    pixels.resize(static_cast<std::size_t>(frames) * size);
    sample_rng numbers(random.next(), 0, 0, 0, 0);
    return decoder.into(tensor_view(pixels.data(), dtype::u8, decoder.dims()), bytes::copy(file), numbers)[0].times;
  };
  std::string pixels;
  const std::vector<double> times = decoded(clip_start::first, static_cast<int>(count), pixels);
  CHECK((pixels == expected.pixels));
  for (std::size_t i = 0; i < count; ++i) CHECK(times[i] == Approx(expected.times[i]).margin(1e-9));
  CHECK_THROWS_AS(decoded(clip_start::first, static_cast<int>(count) + 1, pixels), decode_error);
  for (int i = 0; i < 4; ++i) {
    o.stride = 1 + i;
    const std::size_t most = (count - 1) / static_cast<std::size_t>(o.stride) + 1;
    const std::vector<double> some =
        decoded(clip_start::random, i == 0 ? 1 : 1 + static_cast<int>(random.below(most)), pixels);
    for (std::size_t k = 0; k < some.size(); ++k) {
      const auto frame = static_cast<std::size_t>(std::find(times.begin(), times.end(), some[k]) - times.begin());
      REQUIRE(frame < count);
      CHECK((expected.pixels.compare(frame * size, size, pixels, k * size, size) == 0));
    }
  }
}

void compare_drawn(int from, int to) {
  if (output_of("command -v ffmpeg").empty()) {
    MILLRACE_SKIP("there is no program ffmpeg (Debian: ffmpeg)");
  }
  const test::temporary_folder folder;
  const std::string path = folder.file("drawn");
  for (int i = from; i < to; ++i) {
    rng random(static_cast<std::uint64_t>(i), 0, 0);
    const video_form form = drawn_form(random, i);
    INFO(text_of(form));
    const std::string file = examples::encode_video(form);
    std::ofstream(path, std::ios::binary) << file;
    compare(file, form, by_program(path, static_cast<double>(form.tick.num) / form.tick.den), random);
  }
}

}  // namespace

TEST_CASE("drawn videos equal what the program ffmpeg makes of them, a few", "[outside]") { compare_drawn(0, 12); }

TEST_CASE("500 drawn videos equal what the program ffmpeg makes of them", "[slow]") { compare_drawn(12, 512); }

TEST_CASE("500 drawn videos equal what torchcodec makes of them", "[outside]") {
  const char* const python = std::getenv("MILLRACE_TORCHCODEC_PYTHON");
  if (python == nullptr) {
    MILLRACE_SKIP("torchcodec is not installed (MILLRACE_TORCHCODEC_PYTHON names a Python that has it)");
  }
  const test::temporary_folder folder;
  constexpr int videos = 500;
  std::vector<std::string> files;
  for (int i = 0; i < videos; ++i) {
    rng random(static_cast<std::uint64_t>(i), 0, 0);
    files.push_back(examples::encode_video(drawn_form(random, i)));
    folder.file(std::to_string(i), files.back());
  }
  const std::string command = std::string(python) + " '" + MILLRACE_TEST_SOURCE_DIR +
                              "/tests/video/torchcodec_frames.py' '" + folder.path() + "' " + std::to_string(videos);
  REQUIRE(std::system(command.c_str()) == 0);
  int failed = 0;
  for (int i = 0; i < videos; ++i) {
    rng random(static_cast<std::uint64_t>(i), 0, 0);
    const video_form form = drawn_form(random, i);
    INFO(text_of(form));
    const std::string path = folder.file(std::to_string(i));
    if (!std::filesystem::exists(path + ".rgb")) {
      // Of some it looks for the first frame from a key frame on that comes later than the hidden one.
      CHECK(form.hidden != 0);
      ++failed;
      continue;
    }
    compare(files[static_cast<std::size_t>(i)], form, by_torchcodec(path), random);
  }
  CHECK(failed <= 1);
}
