// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Clips of MP4 files that the tests have drawn: the frames of the little file, byte for byte and tick for tick, beside
// those that were put into the whole one. What is damaged, hostile or not read.

#include <millrace/formats/video_shards.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/formats/detail/mp4_file.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/shards/sample.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/drawn_mp4.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/scanned.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::drawn_mp4;
using test::drawn_track;
using test::failure_of;

namespace {

shard_index index_of(const std::string& file, const video_shards_options& options, std::size_t piece = SIZE_MAX) {
  const std::shared_ptr<const shard_format> format = video_shards(options);
  shard object("s3://films/a.mp4");
  const shard_index made = test::scanned(std::move(*format->scanner("a.mp4", object, nullptr)), file, piece);
  std::string text = made.text();  // as a file has it
  std::string_view rest = text;
  return shard_index::read(rest, "x.index");
}

/// A clip, and the bytes of the object that it took.
struct cut_clip {
  sample fields;
  std::uint64_t read = 0;
  std::size_t requests = 0;
};

cut_clip clip_of(const shard_reader& reader, const shard_index& index, const std::string& file, std::size_t number) {
  cut_clip made;
  std::vector<bytes> parts;
  for (const object_range& r : reader.ranges(index, number)) {
    parts.push_back(bytes::copy(std::string_view(file).substr(r.begin, r.end - r.begin)));
    REQUIRE(parts.back().size() == r.end - r.begin);
    made.read += r.end - r.begin;
    ++made.requests;
  }
  reader.unpack(shard("s3://films/a.mp4"), number, parts).samples->fill(made.fields, number);
  return made;
}

double number(const bytes& field) {
  double value = 0;
  REQUIRE(field.size() == sizeof value);
  std::memcpy(&value, field.data(), sizeof value);
  return value;
}

/// The tracks of a little file, by the reader of fragments.
std::vector<detail::mp4_track> tracks_of(std::string_view file) {
  detail::mp4_file made("clip", true);
  for (std::size_t at = 0; at < file.size();) {
    const auto size = static_cast<std::size_t>(detail::read_be(file, at, 4));
    REQUIRE(size >= 8);
    const std::string_view box = file.substr(at, size);
    REQUIRE(box.size() == size);
    if (box.substr(4, 4) == "moov") made.movie(box, at);
    if (box.substr(4, 4) == "moof") made.fragment(box, at);
    at += size;
  }
  return made.tracks();
}

/// Checks a track of a little file beside the whole one's; returns the number of its first frame there.
std::size_t check_frames(const detail::mp4_track& got, const drawn_track& whole, std::string_view file) {
  REQUIRE(!got.samples.empty());
  const auto content = [&](std::size_t i) {
    return file.substr(static_cast<std::size_t>(got.samples[i].offset), got.samples[i].size);
  };
  std::size_t first = 0;
  while (first < whole.frames.size() && whole.frames[first].content != content(0)) ++first;
  REQUIRE(first + got.samples.size() <= whole.frames.size());
  CHECK(got.timescale == whole.timescale);
  bool same = true;
  for (std::size_t i = 0; i < got.samples.size(); ++i) {
    const drawn_track::frame& f = whole.frames[first + i];
    same = same && content(i) == f.content && got.samples[i].key == f.key &&
           got.presented(got.samples[i]) == whole.presented(first + i);
    same = same && (i + 1 == got.samples.size() || got.samples[i].duration == f.duration);
  }
  CHECK(same);
  return first;
}

}  // namespace

TEST_CASE("clips of drawn files have the frames of their groups, and read little else", "[video]") {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    INFO("seed " << seed);
    rng random(seed);
    const bool sound = random.below(2) == 0;
    drawn_mp4 drawn = drawn_mp4::draw(random, 1 + random.below(20), 400, sound);
    const bool fragments = random.below(2) == 0;
    const std::string file = fragments ? drawn.fragmented() : drawn.plain();
    video_shards_options options;
    options.audio = random.below(2) == 0;
    options.partial = random.below(2) == 0;
    if (random.below(2) == 0) {
      options.frames = 1 + static_cast<std::uint32_t>(random.below(12));
      options.frame_stride = static_cast<std::uint32_t>(random.below(12));
    } else {
      options.seconds = 0.1 * static_cast<double>(1 + random.below(9));
      options.stride = 0.1 * static_cast<double>(random.below(9));
    }
    const shard_index index = index_of(file, options, 1 + random.below(2000));
    CHECK(index == index_of(file, options));
    const std::shared_ptr<const shard_reader> reader = video_shards(options)->reader(index);
    const drawn_track& video = drawn.tracks[0];
    for (std::size_t c = 0; c < index.samples(); ++c) {
      const cut_clip made = clip_of(*reader, index, file, c);
      const std::string_view little = made.fields["video"].view();
      const std::vector<detail::mp4_track> tracks = tracks_of(little);
      CHECK(index.end(c) - index.offset(c) == little.size());
      REQUIRE(tracks.size() == (sound && options.audio ? 2 : 1));
      const std::size_t first = check_frames(tracks[0], video, little);
      const std::size_t last = first + tracks[0].samples.size();
      const double begin = number(made.fields["begin"]);
      const double end = number(made.fields["end"]);
      CHECK(begin < end);
      CHECK(video.frames[first].key);
      CHECK((first == 0 || static_cast<double>(video.presented(first)) <= begin * 600 + 1e-6));
      std::size_t shown = 0;
      for (std::size_t i = 0; i < video.frames.size(); ++i) {
        const double at = static_cast<double>(video.presented(i));
        if (at < begin * 600 - 1e-6 || at >= end * 600 - 1e-6) continue;
        ++shown;
        if (i >= last) FAIL("frame " << i << " is not in clip " << c << ", which has " << first << " to " << last);
        // One that is decoded before the clip's key frame is shown before it, but where drawn shifts are odd.
      }
      if (options.frames != 0 && !options.partial) CHECK(shown >= 1);
      std::uint64_t wanted = 0;
      for (const detail::mp4_track& t : tracks) {
        for (const detail::mp4_sample& s : t.samples) wanted += s.size;
      }
      if (tracks.size() == 2 && !tracks[1].samples.empty()) check_frames(tracks[1], drawn.tracks[1], little);
      CHECK((made.read <= wanted + wanted / 2 || made.requests > 60));
    }
  }
}

TEST_CASE("the index of a film takes a few bytes a frame", "[video]") {
  rng random(1);
  drawn_mp4 drawn = drawn_mp4::draw(random, 400, 3000, false);
  const std::size_t frames = drawn.tracks[0].frames.size();
  const shard_index index = index_of(drawn.plain(), {.seconds = 2});
  CHECK(index.file_bytes() < 8 * frames + 100 * index.samples() + 1000);
}

TEST_CASE("what is damaged, or is not read, is an error with the byte", "[video]") {
  rng random(2);
  drawn_mp4 drawn = drawn_mp4::draw(random, 8, 200, false);
  drawn.tracks[0].media_begin = 40;
  drawn.tracks[0].delay_ms = 0;
  drawn.moov_first = true;
  drawn.wide = false;
  const std::string whole = drawn.plain();
  const auto place = [&](const char* type) { return whole.find(type) - 4; };
  const auto failing = [&](std::string file) { return failure_of([&] { index_of(file, {}); }); };
  const auto with = [&](std::size_t at, const std::string& text) {
    std::string file = whole;
    file.replace(at, text.size(), text);
    return failing(file);
  };
  CHECK(index_of(whole, {.seconds = 0.1}).samples() > 3);
  CHECK_THAT(failing("no video at all, but a text"), Contains("this is no MP4 file"));
  CHECK_THAT(failing(whole.substr(0, 40)), Contains("a.mp4") && Contains("in the middle of a box"));
  CHECK_THAT(failing(whole.substr(0, place("moov"))), Contains("there is no moov"));
  CHECK_THAT(with(place("avc1") + 4, "encv"), Contains("encrypted (encv)"));
  CHECK_THAT(with(place("vide") + 4, "text"), Contains("no track of pictures"));
  CHECK_THAT(with(place("stsc") + 12, drawn_mp4::be(0xffffff)), Contains("stsc says 16777215 entries"));
  CHECK_THAT(with(place("stsz") + 16, drawn_mp4::be(0xffffffff)), Contains("stsz is cut"));
  CHECK_THAT(with(place("stsz") + 12, drawn_mp4::be(1) + drawn_mp4::be(0xffffffff)), Contains("at most 4194304"));
  CHECK_THAT(with(place("stsc") + 24, drawn_mp4::be(2)), Contains("coded in several ways"));
  CHECK_THAT(with(place("stco") + 16, drawn_mp4::be(0xfffffff0)), Contains("at byte 4294967280: sample 0"));
  CHECK_THAT(with(place("stss") + 16, drawn_mp4::be(0)), Contains("stss has sample 0"));
  CHECK_THAT(with(place("mdhd") + 20, drawn_mp4::be(0)), Contains("a second of 0 ticks"));
  CHECK_THAT(with(place("stbl"), drawn_mp4::be(0xffff)), Contains("a box says 65535 bytes"));
  CHECK_THAT(with(place("moov"), drawn_mp4::be(0xf0000000)), Contains("at most 128 MiB"));
  CHECK_THAT(with(place("elst") + 24, drawn_mp4::be(0x20000)), Contains("another speed"));
  CHECK_THAT(failure_of([&] { index_of(whole, {.seconds = 0.1, .stride = 1e-12}); }), Contains("it: too many"));
  CHECK_THAT(failure_of([] { video_shards({.seconds = 0}); }), Contains("are positive"));

  const auto scanner = video_shards({.seconds = 1000})->scanner("a.mp4", shard("s3://films/a.mp4"), nullptr);
  scanner->begin(whole, whole.size(), 1 << 20);
  scanner->add(bytes::copy(whole));
  CHECK(scanner->finish(whole.size(), "").samples() == 0);
  CHECK_THAT(scanner->warning(false), Contains("it has no clip"));
}
