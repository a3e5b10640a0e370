// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Clips of MP4 and Matroska files that the tests have drawn: the frames of the little file, byte for byte and tick for
// tick, beside those that were put into the whole one. What is damaged, hostile or not read.

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
#include "tests/support/drawn_matroska.hpp"
#include "tests/support/drawn_mp4.hpp"
#include "tests/support/failure_of.hpp"
#include "tests/support/scanned.hpp"

using namespace millrace;
using Catch::Matchers::Contains;
using test::drawn_matroska;
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

TEST_CASE("clips of drawn Matroska files have the frames of their groups, and read little else", "[video]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    rng random(seed);
    const bool sound = random.below(2) == 0;
    drawn_matroska drawn = drawn_matroska::draw(random, 1 + random.below(20), 400, sound);
    const std::string file = drawn.file();
    video_shards_options options;
    options.audio = random.below(2) == 0;
    options.partial = random.below(2) == 0;
    options.seconds = 0.1 * static_cast<double>(1 + random.below(9));
    options.stride = 0.1 * static_cast<double>(random.below(9));
    const shard_index index = index_of(file, options);
    const std::shared_ptr<const shard_format> format = video_shards(options);
    const shard object("s3://films/a.mp4");
    std::size_t requests = 0;
    CHECK(test::scanned_by_ranges(std::move(*format->scanner("a.mp4", object, nullptr)), file, 1 + random.below(2000),
                                  &requests) == index);
    CHECK(requests <= 4 + file.size() / (16 * KiB));
    const std::size_t piece = 1 + random.below(3000);
    if (drawn.cues_first) {
      CHECK(index_of(file, options, piece) == index);
    } else if (file.size() > 8000) {
      CHECK_THAT(failure_of([&] { index_of(file, options, piece); }), Contains("serves no ranges"));
    }
    std::vector<const drawn_matroska::block*> pictures;
    for (const drawn_matroska::block& b : drawn.blocks) {
      if (b.track == 1) pictures.push_back(&b);
    }
    const std::shared_ptr<const shard_reader> reader = format->reader(index);
    std::size_t shown_in_all = 0;
    for (std::size_t c = 0; c < index.samples(); ++c) {
      INFO("clip " << c);
      const cut_clip made = clip_of(*reader, index, file, c);
      const std::string_view little = made.fields["video"].view();
      CHECK(little.size() <= index.end(c) - index.offset(c));
      const double begin = number(made.fields["begin"]) * 1000;
      const double end = number(made.fields["end"]) * 1000;
      CHECK(begin < end);
      std::vector<drawn_matroska::block> frames;
      std::vector<drawn_matroska::block> heard;
      for (const drawn_matroska::block& b : drawn_matroska::read(little)) {
        REQUIRE((b.track == 1 || (b.track == 2 && sound && options.audio)));
        (b.track == 1 ? frames : heard).push_back(b);
      }
      REQUIRE(!frames.empty());
      // A run of the pictures, from a key frame on, which is shown at the begin or before.
      std::size_t first = 0;
      while (first < pictures.size() && pictures[first]->content != frames[0].content) ++first;
      REQUIRE(first + frames.size() <= pictures.size());
      CHECK(pictures[first]->key);
      CHECK((first == 0 || static_cast<double>(pictures[first]->time) <= begin + 1e-6));
      bool same = true;
      for (std::size_t i = 0; i < frames.size(); ++i) {
        same = same && frames[i].content == pictures[first + i]->content && frames[i].time == pictures[first + i]->time;
      }
      CHECK(same);
      const std::size_t last = first + frames.size();
      std::uint64_t group = pictures[first]->group;
      for (std::size_t i = 0; i < pictures.size(); ++i) {
        const double at = static_cast<double>(pictures[i]->time);
        if (at >= end - 1e-6) continue;
        if (at >= begin - 1e-6) ++shown_in_all;
        if (at >= begin - 1e-6 && i >= last) FAIL("frame " << i << " is not in clip " << c);
        if (i >= first) group = std::max(group, pictures[i]->group);
      }
      if (drawn.all_cues && !options.audio) CHECK(pictures[last - 1]->group <= group);
      for (const drawn_matroska::block& b : drawn.blocks) {
        if (b.track != 2 || !options.audio || b.begin < pictures[first]->begin) continue;
        const double at = static_cast<double>(b.time);
        const bool there = std::any_of(heard.begin(), heard.end(), [&](const drawn_matroska::block& h) {
          return h.time == b.time && h.content == b.content;
        });
        if (at >= begin - 1e-6 && at < end - 1e-6 && !there) FAIL("the sound at " << at << " is not in clip " << c);
      }
      const std::uint64_t others = pictures[last - 1]->end - pictures[first]->begin;
      CHECK(made.read >= others);
      // The first cluster is read from its first element on, which has 9 bytes.
      const std::uint64_t head = first == 0 ? 9 : 0;
      if (!options.audio && last < pictures.size()) {
        CHECK(made.read <= head + pictures[last]->begin - pictures[first]->begin);
      }
      if (last == pictures.size() && !drawn.cues_first) {
        CHECK(made.read == head + drawn.blocks.back().end - pictures[first]->begin);
      }
    }
    if (options.partial && options.stride == 0) CHECK(shown_in_all == pictures.size());
  }
}

TEST_CASE("the index of a Matroska film asks for little more than its cues", "[video]") {
  rng random(4);
  for (const bool reordered : {false, true}) {
    drawn_matroska drawn = drawn_matroska::draw(random, 12, 40'000, false);
    while ((drawn.codec != "V_VP9") != reordered) drawn = drawn_matroska::draw(random, 12, 40'000, false);
    drawn.cues_first = drawn.seek_last = false;
    drawn.all_cues = drawn.sizes = true;
    drawn.cluster = 0;
    const std::string file = drawn.file();
    const auto scanner = video_shards({.seconds = 0.5})->scanner("a.mkv", shard("s3://films/a.mkv"), nullptr);
    std::size_t requests = 0;
    const shard_index index = test::scanned_by_ranges(std::move(*scanner), file, 64 * KiB, &requests);
    CHECK(index.samples() > 3);
    CHECK(index.file_bytes() < 12 * 50 + 100 * index.samples() + 1000);
    // The cues, and of each group its key frame's block and, where frames may be shown before it, the next ones.
    CHECK(requests <= (reordered ? 1 + 12 * 5 : 1 + 12));
  }
  // Cues that name a cluster alone, several of them the same one: its first key frame is taken.
  drawn_matroska together = drawn_matroska::draw(random, 8, 200, false);
  together.places = false;
  together.all_cues = true;
  together.cluster = 1000;
  CHECK(index_of(together.file(), {.seconds = 0.1}).samples() > 3);
  // Sound that has ended is not looked for until the next key frame.
  drawn_matroska drawn;
  drawn.duration = 8000;
  for (int i = 0; i < 200; ++i) {
    drawn_matroska::block b;
    b.time = 40 * i;
    b.key = i % 100 == 0;
    b.content = std::string(20'000, 'x');
    drawn.blocks.push_back(b);
  }
  drawn.cluster = 0;
  const auto scanner = video_shards({.audio = true})->scanner("a.mkv", shard("s3://films/a.mkv"), nullptr);
  std::size_t requests = 0;
  CHECK(test::scanned_by_ranges(std::move(*scanner), drawn.file(), 600, &requests).samples() == 4);
  CHECK(requests <= 1 + 2 * 30);
}

TEST_CASE("what is damaged or hostile in Matroska files, or is not read, is an error with the byte", "[video]") {
  rng random(2);
  drawn_matroska drawn = drawn_matroska::draw(random, 8, 200, false);
  drawn.cues_first = drawn.seek_last = drawn.groups = false;
  drawn.places = drawn.all_cues = drawn.sizes = true;
  drawn.cluster = 3;
  const std::string whole = drawn.file();
  const auto id = [](std::uint64_t its, int bytes) { return drawn_matroska::be(its, bytes); };
  const auto failing = [&](const std::string& file, const video_shards_options& options = {.seconds = 0.1}) {
    std::string text = failure_of([&] {
      const auto scanner = video_shards(options)->scanner("a.mkv", shard("s3://films/a.mkv"), nullptr);
      test::scanned_by_ranges(std::move(*scanner), file, 600);
    });
    CHECK_THAT(text, Contains("s3://films/a.mkv") && Contains(" at byte "));
    return text;
  };
  const auto with = [&](std::size_t at, const std::string& text) {
    REQUIRE(at < whole.size());
    std::string file = whole;
    file.replace(at, text.size(), text);
    return failing(file);
  };
  const std::size_t info = whole.find(id(0x1549a966, 4));
  const std::size_t tracks = whole.find(id(0x1654ae6b, 4));
  const std::size_t seek_head = whole.find(id(0x114d9b74, 4));
  const std::size_t cues = whole.rfind(id(0x1c53bb6b, 4));
  const std::size_t cluster = whole.find(id(0x1f43b675, 4));
  CHECK(index_of(whole, {.seconds = 0.1}).samples() > 3);

  CHECK_THAT(failing(whole, {.frames = 8}), Contains("give .seconds"));
  CHECK_THAT(failing(whole.substr(0, whole.size() / 2)), Contains("Segment says") && Contains("it is cut"));
  CHECK_THAT(failing(whole.substr(0, 3) + "\xa3"), Contains("at byte 0: "));
  // Sizes of 2^56 bytes, of all ones, and of the file's own.
  CHECK_THAT(with(info + 4, id(0x01ffffffffffff00, 8)), Contains("Info says 72057594037927680 bytes"));
  CHECK_THAT(with(tracks + 4, id(0x1fffffff, 4)), Contains("Tracks has no size"));
  CHECK_THAT(with(cluster + 4, id(0x1ffffff0, 4)), Contains("Cluster says 268435440 bytes"));
  CHECK_THAT(with(static_cast<std::size_t>(drawn.blocks[0].begin) + 1, id(0x1ffffff0, 4)),
             Contains("element a3 says 268435440 bytes"));
  // SeekHeads that name a place after the end, another element, themselves.
  CHECK_THAT(with(seek_head + 30, id(UINT64_MAX, 8)), Contains("after the segment's end"));
  CHECK_THAT(with(seek_head + 30, id(0, 8)), Contains("that Cues begins here, and it is SeekHead"));
  CHECK_THAT(with(seek_head + 20, id(0x114d9b74, 4)), Contains("SeekHead begins here, and it is Cues"));
  std::string cycle = whole;
  cycle.replace(seek_head + 20, 4, id(0x114d9b74, 4)).replace(seek_head + 30, 8, id(0, 8));
  CHECK_THAT(failing(cycle), Contains("more than 8 SeekHeads"));
  // Cues of other tracks, outside, backwards inside of blocks, at no cluster and no block.
  const std::size_t first = cues + 8 + 5 + 9 + 5;  // after the heads of a point, its time and its positions
  CHECK(whole.substr(first, 1) == "\xf7");
  std::string other = whole;
  for (std::size_t at = first; (at = other.find(id(0xf7100000, 4), at)) != std::string::npos; ++at) other[at + 8] = 9;
  CHECK_THAT(failing(other), Contains("name no frame of the track of pictures") && Contains("ffmpeg"));
  CHECK_THAT(with(first + 9 + 5, id(UINT64_MAX - 7, 8)), Contains("a cue is of a place after the segment's end"));
  CHECK_THAT(with(first + 9 + 13 + 5, id(UINT64_MAX, 8)), Contains("after the segment's end"));
  CHECK_THAT(with(first + 9 + 13 + 5, id(1 << 20, 8)), Contains("after the segment's end"));
  CHECK_THAT(with(first + 9 + 5, id(0, 8)), Contains("no cluster begins there"));
  CHECK_THAT(with(first + 9 + 13 + 5, id(9, 8)), Contains("no block begins there"));
  CHECK_THAT(with(first + 9 + 13 + 5, id(1, 8)), Contains("before its cluster's blocks"));
  // Info and tracks.
  CHECK_THAT(with(whole.find(id(0x4489, 2)), id(0x4488, 2)), Contains("no Duration"));
  CHECK_THAT(with(whole.find(id(0x2ad7b1, 3)) + 7, id(0, 4)), Contains("units of 0 ns"));
  CHECK_THAT(with(whole.find(id(0x4489, 2)) + 6, id(0x7fefffffffffffff, 8)), Contains("31 years"));
  CHECK_THAT(with(whole.find(id(0x8310000004, 5)) + 8, id(3, 1)), Contains("no track of pictures"));
  CHECK_THAT(failing(whole, {.seconds = 0.1, .stride = 1e-9}), Contains("too many"));
  drawn.track_extra = drawn_matroska::element(
      0x6d80, drawn_matroska::element(0x6240, drawn_matroska::uint(0x5033, 1) + drawn_matroska::element(0x5035, "")));
  CHECK_THAT(failing(drawn.file()), Contains("encrypted"));
  drawn.track_extra = drawn_matroska::element(0x23314f, drawn_matroska::be(0x40000000, 4));
  CHECK_THAT(failing(drawn.file()), Contains("a scale of their own"));
  drawn.track_extra = drawn_matroska::element(0x63a2, std::string(MiB, 'x'));
  CHECK_THAT(failing(drawn.file()), Contains("more than 1 MiB"));
  drawn.track_extra.clear();
  drawn.info_extra = drawn_matroska::element(0x2ad7b1, std::string(9, '\1'));
  CHECK_THAT(failing(drawn.file()), Contains("a number of more than 8 bytes"));
  drawn.info_extra.clear();
  CHECK(drawn.file() == whole);
  CHECK_THAT(with(whole.find(id(0xd710000004, 5)) + 8, id(0, 1)), Contains("a track has no number"));
  CHECK_THAT(failing(drawn_matroska::element(0x1a45dfa3, std::string(100'000, '\0'))),
             Contains("at most 65536 are read"));
  // Clusters: timestamps and blocks, key frames without the flag, and backwards.
  const auto block = static_cast<std::size_t>(drawn.blocks[0].begin);
  const std::size_t length = whole.find(id(0x1f43b675, 4), cluster + 4) - (cluster + 13);
  CHECK_THAT(with(cluster + 8, id(0xec, 1)), Contains("before its cluster's timestamp"));
  CHECK_THAT(with(cluster + 8, id(0xec, 1) + id(0x10000000 | length, 4)), Contains("names has no timestamp"));
  CHECK_THAT(with(cluster + 8, id(0xe710000009, 5)), Contains("a timestamp has more than 8 bytes"));
  CHECK_THAT(with(cluster + 8, id(0xe710000008, 5) + id(UINT64_MAX, 8)), Contains("31 years"));
  CHECK_THAT(with(block + 1, id(0x10000002, 4)), Contains("a block is too short"));
  CHECK_THAT(with(block + 5, "\x83"), Contains("a block of another track"));
  std::string no_keys = whole;
  for (const drawn_matroska::block& b : drawn.blocks) no_keys[static_cast<std::size_t>(b.begin) + 8] = 0;
  CHECK_THAT(failing(no_keys), Contains("none of its Cues names a key frame"));
  drawn_matroska no_key = drawn;
  no_key.groups = true;
  std::erase_if(no_key.blocks, [](const drawn_matroska::block& b) { return b.track != 1 || b.group != 0; });
  std::string its = no_key.file();
  its.replace(its.size() - 8, 8, id(18 + no_key.blocks[0].end - no_key.blocks[0].begin, 8));
  CHECK_THAT(failing(its), Contains("none of its Cues names a key frame"));
  drawn_matroska backwards = drawn;
  for (drawn_matroska::block& b : backwards.blocks) b.time = b.track == 1 && b.key && b.group == 7 ? 0 : b.time;
  CHECK_THAT(failing(backwards.file()), Contains("shown before the one that comes before it"));
  // What comes in order, without a size.
  drawn_matroska streamed = drawn;
  streamed.cues_first = true;
  const std::string cut = streamed.file().substr(0, whole.size() - 10);
  CHECK_THAT(failure_of([&] { index_of(cut, {.seconds = 0.1}); }), Contains("in the middle of the segment: it is cut"));
  // A file without Cues, as a stream leaves it.
  std::string live = whole;
  live.replace(cues, 4, id(0x1254c367, 4)).replace(seek_head + 20, 4, id(0x1254c367, 4));
  CHECK_THAT(failing(live), Contains("it has no Cues, or no SeekHead") && Contains("mkvmerge"));

  // A group that is damaged where no index looks.
  const shard_index index = index_of(whole, {.seconds = 100, .partial = true});
  std::string damaged = whole;
  const drawn_matroska::block& last = drawn.blocks.back();
  damaged.replace(static_cast<std::size_t>(last.begin), 1, std::string(1, '\0'));
  const auto reader = video_shards({.seconds = 100, .partial = true})->reader(index);
  CHECK_THAT(failure_of([&] { clip_of(*reader, index, damaged, 0); }),
             Contains("s3://films/a.mp4 at byte " + std::to_string(last.begin) + ": the clusters are damaged"));
}

TEST_CASE("cues by the million take a bounded number of requests", "[video]") {
  drawn_matroska drawn;
  drawn.duration = 1000;
  for (int i = 0; i < 3; ++i) {
    drawn_matroska::block b;
    b.time = 40 * i;
    b.content = std::string(100'000, 'x');
    drawn.blocks.push_back(b);
  }
  // Each of them names the same cluster, and a place in its frames.
  const std::string one = drawn.file();
  const std::size_t cues = one.rfind(drawn_matroska::be(0x1c53bb6b, 4));
  const std::string point = one.substr(cues + 8, (one.size() - cues - 8) / 3);
  std::string points = one.substr(cues + 8);
  for (int i = 0; i < 100'000; ++i) {
    points += point;
    points.replace(points.size() - 8, 8, drawn_matroska::be(1000 + static_cast<unsigned>(i), 8));
  }
  const auto failing = [&](const std::string& all) {
    std::string file =
        one.substr(0, cues) + drawn_matroska::be(0x1c53bb6b, 4) + drawn_matroska::be(0x10000000 | all.size(), 4) + all;
    const std::size_t segment = file.find(drawn_matroska::be(0x18538067, 4));
    file.replace(segment + 4, 8, drawn_matroska::be(0x0100000000000000 | (file.size() - segment - 12), 8));
    const auto scanner = video_shards({.seconds = 0.1})->scanner("a.mkv", shard("s3://films/a.mkv"), nullptr);
    std::size_t requests = 0;
    std::string text = failure_of([&] { test::scanned_by_ranges(std::move(*scanner), file, 600, &requests); });
    CHECK(requests < 50);
    return text;
  };
  CHECK_THAT(failing(points), Contains("a cue is of a place inside of another cue's block") && Contains("at byte"));
  std::string many;
  for (int i = 0; i <= 1 << 21; ++i) many.append("\xbb\x88\xb7\x86\xf7\x81\x01\xf1\x81\x00", 10);
  CHECK_THAT(failing(many), Contains("at byte") && Contains("more than 2097152 cues"));
}
