// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/video_decoder.hpp>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "examples/common/encode_video.hpp"
#include "tests/support/bare_video.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/encode_png.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/field_video.hpp"

// libx265 loses memory with each encoder.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:x265"; }

using namespace millrace;
using Catch::Matchers::Contains;
using examples::encode_video;
using examples::video_form;
using test::bare_video;

namespace {

class clips {
 public:
  std::vector<decoded_clip> about;
  std::vector<std::string> frames;  // of all clips
};

clips decoded(const std::string& file, const video_options& o, std::uint64_t draw = 0,
              std::optional<video_span> part = {}) {
  const video_decoder decoder(o);
  const tensor_view shaped(nullptr, o.type, decoder.dims());
  std::string memory(shaped.elements() * size_of(o.type), '\xee');
  sample_rng numbers(1, 2, 3, draw, 4);
  clips made;
  made.about = decoder.into(tensor_view(memory.data(), o.type, decoder.dims()), bytes::copy(file), numbers, where(),
                            part);
  const std::size_t count = static_cast<std::size_t>(o.clips) * static_cast<std::size_t>(o.frames);
  const std::size_t size = memory.size() / count;
  for (std::size_t i = 0; i < count; ++i) made.frames.push_back(memory.substr(i * size, size));
  return made;
}

/// Options for clips of frames as they are.
video_options as_they_are(const bare_video& v, int frames) {
  video_options o;
  o.frames = frames;
  o.width = v.width;
  o.height = v.height;
  o.start = clip_start::first;
  return o;
}

/// How many frames differ from FFmpeg's, or 9999 if their number or times do.
int differing(const std::string& file) {
  const bare_video bare = bare_video::decode(file);
  const clips all = decoded(file, as_they_are(bare, static_cast<int>(bare.frames.size())));
  if (all.about[0].times != bare.times) return 9999;
  int n = 0;
  for (std::size_t i = 0; i < bare.frames.size(); ++i) n += all.frames[i] != bare.frames[i];
  // One frame more than there are is too many.
  CHECK_THROWS_AS(decoded(file, as_they_are(bare, static_cast<int>(bare.frames.size()) + 1)), decode_error);
  return n;
}

bytes png_of(const bare_video& v, std::size_t frame) {
  const auto value = [&](int x, int y, int c) {
    return static_cast<std::uint8_t>(v.frames[frame][static_cast<std::size_t>((y * v.width + x) * 3 + c)]);
  };
  return bytes::copy(test::encode_png(v.width, v.height, {.depth = 8, .colours = 2}, value));
}

std::string reason_of(const std::string& file, const video_options& o, std::optional<video_span> part = {}) {
  try {
    decoded(file, o, 0, part);
  } catch (const decode_error& e) {
    return e.reason();
  }
  return "none";
}

}  // namespace

TEST_CASE("every frame equals that of FFmpeg, and so does its time") {
  const auto check = [](const char* what, const video_form& form) {
    INFO(what);
    if (!examples::has_encoder(form.codec)) {
      WARN("FFmpeg has no encoder " << form.codec);
      return;
    }
    CHECK(differing(encode_video(form)) == 0);
  };
  check("H.264 with B frames", {.between = 3});
  check("H.264 in Matroska", {.container = "matroska", .between = 2});
  check("H.264 with open groups", {.between = 3, .options = "x264-params=open-gop=1:bframes=3:keyint=10"});
  check("H.264, interlaced", {.options = "x264-params=interlaced=1:bframes=2"});
  check("H.264, 4:4:4 of 10 bits", {.format = AV_PIX_FMT_YUV444P10, .between = 2});
  check("H.264, fragmented", {.between = 2, .layout = "movflags=frag_keyframe+empty_moov"});
  check("H.264 in QuickTime, other colours",
        {.container = "mov", .colours = AVCOL_SPC_BT709, .range = AVCOL_RANGE_JPEG});
  check("sizes that vectors do not divide", {.width = 70, .height = 46});
  check("HEVC of 10 bits",
        {.codec = "libx265", .format = AV_PIX_FMT_YUV420P10, .frames = 20, .options = "x265-params=log-level=none"});
  check("VP9", {.codec = "libvpx-vp9", .container = "webm", .frames = 20, .options = "deadline=realtime:cpu-used=8"});
  check("VP8 with frames that are not shown",
        {.codec = "libvpx", .container = "webm", .frames = 40, .options = "auto-alt-ref=1:lag-in-frames=16"});
  check("AV1", {.codec = "libaom-av1", .frames = 12, .options = "usage=realtime:cpu-used=8"});
  check("MPEG-4 part 2", {.codec = "mpeg4", .between = 1});
  check("FFV1", {.codec = "ffv1", .container = "matroska", .frames = 5});
  video_form uneven{.container = "matroska", .frames = 12, .tick = {1, 1000}, .between = 2};
  for (int i = 0; i < uneven.frames; ++i) uneven.times.push_back(i * 33 + i * i % 20);
  check("frames of different lengths", uneven);
  check("an edit list that leaves out the beginning", {.frames = 30, .hidden = 512 * 7, .between = 2});
}

TEST_CASE("a clip begins at any frame, after an open group's key frame too") {
  for (const char* const container : {"mp4", "matroska"}) {
    const std::string file = encode_video(
        {.container = container, .frames = 50, .options = "x264-params=open-gop=1:bframes=3:b-adapt=0:keyint=10"});
    const bare_video bare = bare_video::decode(file);
    REQUIRE(bare.frames.size() == 50);
    video_options o = as_they_are(bare, 2);
    o.start = clip_start::random;
    std::vector<bool> seen(50);
    for (std::uint64_t draw = 0; draw < 150; ++draw) {
      const clips one = decoded(file, o, draw);
      const auto at = std::find(bare.times.begin(), bare.times.end(), one.about[0].times[0]) - bare.times.begin();
      REQUIRE(at < 49);
      seen[static_cast<std::size_t>(at)] = true;
      CHECK((one.frames[0] == bare.frames[static_cast<std::size_t>(at)]));
      CHECK((one.frames[1] == bare.frames[static_cast<std::size_t>(at) + 1]));
    }
    CHECK(std::count(seen.begin(), seen.end(), true) > 40);
  }
}

TEST_CASE("a video that is refreshed bit by bit is decoded from far enough before") {
  const std::string file = encode_video({.frames = 60, .options = "x264-params=intra-refresh=1:keyint=15:bframes=0"});
  const bare_video bare = bare_video::decode(file);
  video_options o = as_they_are(bare, 1);
  o.start = clip_start::even;
  o.clips = 12;
  const clips all = decoded(file, o);
  for (std::size_t i = 0; i < 12; ++i) CHECK((all.frames[i] == bare.frames[i * 5 + 2]));
}

TEST_CASE("two fields are a frame, in packets of their own too") {
  for (const char* container : {"mp4", "matroska"}) {
    for (const bool each : {true, false}) {
      INFO(container << ", a packet for each field: " << each);
      const std::string file = test::field_video::made(container, 20, each);
      const bare_video bare = bare_video::decode(file);
      REQUIRE(bare.frames.size() == 20);
      CHECK(differing(file) == 0);
      // A frame is shown for as long as both of its fields.
      video_options o = as_they_are(bare, 20);
      o.rate = 25;
      const clips all = decoded(file, o);
      CHECK(all.about[0].times == bare.times);
      CHECK((all.frames == bare.frames));
      o.rate = 50;
      o.frames = 40;
      CHECK(decoded(file, o).about[0].times[39] == bare.times[19]);
      o.frames = 41;
      CHECK_THROWS_AS(decoded(file, o), decode_error);
    }
  }
}

TEST_CASE("frames are taken by stride or by rate, clips one after the other, evenly or at random") {
  const std::string file = encode_video({.frames = 50});  // at 25 a second
  video_options o{.frames = 4, .height = 48, .width = 64, .clips = 2, .start = clip_start::first, .stride = 3};
  using times = std::vector<double>;
  const auto taken = [&] {
    const clips made = decoded(file, o);
    times all;
    for (const decoded_clip& c : made.about) {
      CHECK(c.length == o.frames);
      for (const double t : c.times) all.push_back(std::round(t * 25));
    }
    return all;
  };
  CHECK(taken() == times{0, 3, 6, 9, 12, 15, 18, 21});
  o.start = clip_start::even;  // 41 beginnings
  CHECK(taken() == times{10, 13, 16, 19, 30, 33, 36, 39});
  o.clips = 1;
  CHECK(taken() == times{20, 23, 26, 29});
  o.stride = 1;
  o.rate = 5;
  o.start = clip_start::first;
  CHECK(taken() == times{0, 5, 10, 15});
  o.rate = 50;
  CHECK(taken() == times{0, 0, 1, 1});
  o.clips = 3;
  o.rate = 10;
  CHECK(taken() == times{0, 2, 5, 7, 10, 12, 15, 17, 20, 22, 25, 27});
  o.start = clip_start::random;
  o.clips = 20;
  const times drawn = taken();
  CHECK(std::is_sorted(drawn.begin(), drawn.begin() + 4));
  CHECK(drawn.front() != drawn[76]);
  CHECK(drawn == taken());
  for (std::size_t i = 4; i < drawn.size(); i += 4) CHECK(drawn[i] >= drawn[i - 4]);
}

TEST_CASE("a rate takes the frame that is shown, of a video whose frames are uneven") {
  video_form form{.container = "matroska", .frames = 6, .tick = {1, 1000}};
  form.times = {0, 33, 67, 400, 433, 1000};
  const std::string file = encode_video(form);
  video_options o{.frames = 10, .height = 48, .width = 64, .start = clip_start::first, .rate = 10};
  const clips made = decoded(file, o);
  const std::vector<double> expected{0, 0.067, 0.067, 0.067, 0.4, 0.433, 0.433, 0.433, 0.433, 0.433};
  CHECK(made.about[0].times == expected);
  CHECK((made.frames[1] == made.frames[3]));
  CHECK((made.frames[3] != made.frames[4]));
  o.frames = 3;
  o.rate = 30;  // 0, 33.3 and 66.7 ms
  CHECK(decoded(file, o).about[0].times == std::vector<double>{0, 0.033, 0.067});
}

TEST_CASE("a video that is too short is refused, or its last frame repeated and the frames counted") {
  const std::string file = encode_video({.frames = 10});
  video_options o{.frames = 8, .height = 48, .width = 64, .start = clip_start::random, .stride = 2};
  CHECK_THAT(reason_of(file, o), Contains("has 10 frames in 0.4") && Contains("too few for a clip (.fill"));
  o.fill = true;
  clips made = decoded(file, o);
  CHECK(made.about[0].length == 5);
  CHECK((made.frames[4] != made.frames[5]));
  CHECK((made.frames[5] == made.frames[7]));
  CHECK(made.about[0].times[7] == Approx(0.36));
  o.stride = 1;
  o.rate = 12.5;
  made = decoded(file, o);
  CHECK(made.about[0].length == 5);
  CHECK(made.about[0].times[4] == Approx(0.32));
  CHECK(made.about[0].times[7] == Approx(0.36));
  o.clips = 2;
  o.start = clip_start::first;
  CHECK(decoded(file, o).about[1].length == 0);
}

TEST_CASE("clips of a part of a video are of its frames alone") {
  const std::string file = encode_video({.frames = 40, .between = 2});  // one every 0.04 s
  const bare_video bare = bare_video::decode(file);
  const auto is_of = [&](const clips& got, const std::vector<std::size_t>& wanted) {
    std::vector<std::string> frames;
    std::vector<double> times;
    for (const std::size_t f : wanted) {
      frames.push_back(bare.frames[f]);
      times.push_back(bare.times[f]);
    }
    CHECK(got.frames == frames);
    CHECK(got.about[0].times == times);
  };
  video_options o = as_they_are(bare, 5);
  is_of(decoded(file, o, 0, video_span{0.41, 0.6}), {10, 11, 12, 13, 14});
  is_of(decoded(file, o, 0, video_span{0.4, 0.6}), {10, 11, 12, 13, 14});
  is_of(decoded(file, o, 0, video_span{-3, 0.2}), {0, 1, 2, 3, 4});
  is_of(decoded(file, o, 0, video_span{1.4, 99}), {35, 36, 37, 38, 39});
  o.rate = 50;
  is_of(decoded(file, o, 0, video_span{0.41, 0.6}), {10, 10, 11, 11, 12});
  o.rate = 0;
  o.frames = 6;
  CHECK_THAT(reason_of(file, o, video_span{0.4, 0.6}), Contains("has 5 frames in 0.200000 s, too few for a clip"));
  o.fill = true;
  const clips filled = decoded(file, o, 0, video_span{0.4, 0.6});
  is_of(filled, {10, 11, 12, 13, 14, 14});
  CHECK(filled.about[0].length == 5);
  o.frames = 1;
  o.start = clip_start::even;
  is_of(decoded(file, o, 0, video_span{0.4, 0.6}), {12});
  o.start = clip_start::random;
  for (std::uint64_t draw = 0; draw < 20; ++draw) {
    const double at = decoded(file, o, draw, video_span{0.4, 0.6}).about[0].times[0];
    CHECK((at >= 0.4 && at < 0.6));
  }
  const double none = std::numeric_limits<double>::quiet_NaN();
  for (const video_span& bad : {video_span{5, 6}, video_span{0.6, 0.4}, video_span{none, 1}, video_span{0, none}}) {
    CHECK_THAT(reason_of(file, o, bad), Contains("shows nothing from"));
  }
}

TEST_CASE("frames are turned upright") {
  for (const int quarters : {1, 2, 3}) {
    const std::string file = encode_video({.frames = 2, .quarters = quarters});
    const bare_video plain = bare_video::decode(file);  // it does not turn them
    const bool lies = quarters != 2;
    video_options o{.frames = 1, .height = lies ? 64 : 48, .width = lies ? 48 : 64, .start = clip_start::first};
    const std::string turned = decoded(file, o).frames[0];
    int wrong = 0;
    for (int y = 0; y < o.height; ++y) {
      for (int x = 0; x < o.width; ++x) {
        const int column = quarters == 1 ? y : quarters == 2 ? 63 - x : 63 - y;
        const int row = quarters == 1 ? 47 - x : quarters == 2 ? 47 - y : x;
        wrong += turned.compare(static_cast<std::size_t>(y * o.width + x) * 3, 3, plain.frames[0],
                                static_cast<std::size_t>(row * 64 + column) * 3, 3) != 0;
      }
    }
    CHECK(wrong == 0);
    o = as_they_are(plain, 1);
    o.upright = false;
    CHECK((decoded(file, o).frames[0] == plain.frames[0]));
  }
}

TEST_CASE("frames are cropped, resized, mirrored and stored as images are, all frames of a clip alike") {
  const std::string file = encode_video({.frames = 9, .between = 2});
  const bare_video bare = bare_video::decode(file);
  const auto check = [&](image_crop crop, image_filter filter, image_layout layout, dtype type) {
    video_options o{.frames = 3, .height = 20, .width = 31, .clips = 2, .start = clip_start::first};
    o.crop = crop;
    o.flip = 0.5;
    o.filter = filter;
    o.layout = layout;
    o.type = type;
    if (type != dtype::u8) o.mean = {0.4F, 0.5F, 0.6F};
    image_options i{.height = o.height,
                    .width = o.width,
                    .crop = crop,
                    .filter = filter,
                    .layout = layout,
                    .type = type,
                    .mean = o.mean};
    const image_decoder images(i);
    for (std::uint64_t draw = 0; draw < 6; ++draw) {
      const clips made = decoded(file, o, draw);
      for (std::size_t k = 0; k < 6; ++k) {
        const image_geometry& g = made.about[k / 3].geometry;
        CHECK(g.width == 64);
        std::string expected(made.frames[k].size(), '\0');
        images.into(tensor_view(expected.data(), type, images.dims()), png_of(bare, k), g);
        CHECK((made.frames[k] == expected));
      }
      if (crop.random()) CHECK(!(made.about[0].geometry.taken == made.about[1].geometry.taken));
    }
  };
  check(crop::none, image_filter::bilinear, image_layout::hwc, dtype::u8);
  check(crop::random_resized{}, image_filter::bilinear, image_layout::chw, dtype::f16);
  check(crop::center{0.7}, image_filter::bicubic, image_layout::chw, dtype::f32);
  check(crop::center{0.5}, image_filter::lanczos, image_layout::hwc, dtype::bf16);
  check(crop::random_resized{}, image_filter::nearest, image_layout::hwc, dtype::u8);
}

TEST_CASE("a file that is cut short is refused; with .tolerate_corruption its frames are taken") {
  for (const char* const container : {"mp4", "matroska"}) {
    for (const char* const layout : {"", "movflags=frag_keyframe+empty_moov"}) {
      if (*container == 'm' && container[1] == 'a' && *layout != '\0') continue;
      const std::string file = encode_video({.container = container, .frames = 40, .layout = layout});
      video_options o{.frames = 4, .height = 48, .width = 64, .start = clip_start::first};
      const bare_video bare = bare_video::decode(file, 4);
      for (std::size_t less = 1; less < file.size(); less += file.size() / 23) {
        INFO(container << " " << layout << " without " << less);
        const std::string cut = file.substr(0, file.size() - less);
        // What is left of a fragmented file may end before the box of its index.
        o.tolerate_corruption = false;
        const std::string reason = reason_of(cut, o);
        if (reason != "none") {
          CHECK_THAT(reason, Contains("cut short") || Contains("cannot read the header") || Contains("not a video"));
        }
        if (reason == "none") CHECK(less < 400);
        o.tolerate_corruption = true;
        if (*layout != '\0' && less < file.size() / 3) CHECK((decoded(cut, o).frames[3] == bare.frames[3]));
      }
    }
  }
}

TEST_CASE("damage is an error with its byte and time, where a clip needs it") {
  std::string file = encode_video({.frames = 40, .group = 10});
  const bare_video bare = bare_video::decode(file);
  // The third key frame's slice, found by its type and the length before it.
  std::size_t at = 0;
  for (int n = 0; n < 3;) {
    at = file.find("\x65\x88", at + 1);
    REQUIRE(at != std::string::npos);
    if (file[at - 4] == 0 && file[at - 3] == 0) ++n;
  }
  file.replace(at + 1, 60, 60, '\xff');
  video_options o = as_they_are(bare, 40);
  const std::string reason = reason_of(file, o);
  CHECK_THAT(reason, Contains("the MP4 is damaged at byte") && Contains(", in the frame of 0.800000 s: "));
  o.tolerate_corruption = true;
  CHECK((decoded(file, o).frames[19] == bare.frames[19]));
  o = as_they_are(bare, 10);
  CHECK((decoded(file, o).frames[9] == bare.frames[9]));  // it ends before
  o.start = clip_start::even;
  o.clips = 1;
  o.frames = 2;
  CHECK_THAT(reason_of(encode_video({.frames = 40, .group = 100}), o), Contains("none"));
}

TEST_CASE("bombs are refused by their headers") {
  const std::string file = encode_video({.frames = 5});
  video_options o{.frames = 1, .height = 48, .width = 64};
  o.max_pixels = 64 * 48 - 1;
  CHECK_THAT(reason_of(file, o), Contains("has frames of 64 x 48 pixels, more than are allowed"));
  o.max_pixels = 64 * 48;
  CHECK(reason_of(file, o) == "none");
  o.max_frames = 4;
  CHECK_THAT(reason_of(file, o), Contains("the MP4 has 5 packets, more than are allowed"));
  CHECK_THAT(reason_of(encode_video({.container = "matroska", .frames = 5}), o),
             Contains("the Matroska file has more frames than are allowed"));
  o.max_frames = 1 << 22;
  std::string many = file;
  many.replace(many.find("stsz") + 8, 8, std::string("\0\0\0\1\x7f\xff\xff\xff", 8));
  CHECK_THAT(reason_of(many, o), Contains("the MP4 has 2147483647 packets"));
  std::string edits = file;
  edits.replace(edits.find("elst") + 8, 4, std::string("\x7f\xff\xff\xff", 4));
  CHECK_THAT(reason_of(edits, o), Contains("packets, more than are allowed"));
  // The frames are larger than the container says.
  std::string wide = file;
  wide.replace(wide.find("avc1") + 28, 4, std::string("\0\1\0\1", 4));
  o.max_pixels = 1000;
  CHECK_THAT(reason_of(wide, o), Contains("more than are allowed") || Contains("cannot"));
}

TEST_CASE("files of other kinds, without a video or of other codecs are refused") {
  const video_options o{.frames = 1, .height = 48, .width = 64};
  CHECK_THAT(reason_of("plain text, long enough", o), Contains("not a video: it begins as no MP4"));
  CHECK_THAT(reason_of("", o), Contains("not a video"));
  CHECK_THAT(reason_of("\x1a\x45\xdf\xa3", o), Contains("cut short: it has no segment"));
  CHECK_THAT(reason_of(std::string("\0\0\0\x0c", 4) + "ftypisom", o), Contains("cannot read the header"));
  CHECK_THAT(reason_of(encode_video({.codec = "mjpeg", .container = "mov", .format = AV_PIX_FMT_YUVJ420P}), o),
             Contains("codec mjpeg, which is not decoded"));
  CHECK(detail::video_kind_of(std::string("\0\0\0\x20", 4) + "ftypM4A ") == detail::video_kind::unknown);
  CHECK(detail::video_kind_of(std::string("\0\0\0\x20", 4) + "ftypavif") == detail::video_kind::unknown);
  CHECK(detail::video_kind_of("the free words") == detail::video_kind::unknown);
}

TEST_CASE("where FFmpeg gets no memory, that is said, and nothing is lost") {
  const std::string file = encode_video({.frames = 12, .between = 2});
  const video_options o{.frames = 6, .height = 48, .width = 64};
  int without_memory = 0;
  for (std::size_t most = 64; most < (std::size_t(1) << 21); most += most / 3) {
    ::av_max_alloc(most);  // for a single allocation
    try {
      decoded(file, o);
    } catch (const std::bad_alloc&) {
      ++without_memory;
    } catch (const decode_error&) {
      ++without_memory;
    }
  }
  ::av_max_alloc(INT_MAX);
  CHECK(without_memory > 3);
  CHECK(reason_of(file, o) == "none");
}

TEST_CASE("options that contradict each other are refused") {
  const auto refused = [](auto change) {
    video_options o{.frames = 1, .height = 48, .width = 64};
    change(o);
    CHECK_THROWS_AS(video_decoder(o), configuration_error);
  };
  refused([](video_options& o) { o.frames = 0; });
  refused([](video_options& o) { o.height = 0; });
  refused([](video_options& o) { o.clips = 0; });
  refused([](video_options& o) { o.stride = 0; });
  refused([](video_options& o) { o.rate = -1; });
  refused([](video_options& o) { o.rate = 5, o.stride = 2; });
  refused([](video_options& o) { o.flip = 2; });
  refused([](video_options& o) { o.mean = {0.5F, 0, 0}; });
  const video_decoder decoder({.frames = 2, .height = 4, .width = 5, .clips = 3, .layout = image_layout::chw});
  CHECK(decoder.dims() == shape{3, 2, 3, 4, 5});
  sample_rng numbers(0, 0, 0, 0, 0);
  CHECK_THROWS_AS(decoder.into(tensor_view(nullptr, dtype::u8, shape{1}), bytes(), numbers), configuration_error);
}
