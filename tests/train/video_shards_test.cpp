// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Clips of videos that ffmpeg has made: decoded by ffmpeg, their frames and times are those of the whole files. What
// trainings on them fetch.

#include <millrace/formats/video_shards.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/train/dataset.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/drawn_mp4.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/train/record_epochs.hpp"

using namespace millrace;
using test::drawn_mp4;

namespace {

/// What a shell command prints. It must succeed.
std::string printed(const std::string& command) {
  std::string out;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  INFO(command);
  REQUIRE(::pclose(pipe) == 0);
  return out;
}

bool has_ffmpeg() {
  const bool there = std::system("ffmpeg -version > /dev/null 2>&1") == 0;
  if (!there) WARN("skipped: there is no ffmpeg");
  return there;
}

/// Frames or packets as `-f framemd5` prints them: by the time in seconds when they are shown, their MD5.
std::map<double, std::string> frames_of(const std::string& file, const std::string& map = "0:v:0") {
  const std::string text =
      printed("ffmpeg -nostdin -v fatal -threads 1 -copyts -i " + file + " -map " + map +
              " -fps_mode passthrough -enc_time_base -1 " + (map == "0:a:0" ? "-c copy " : "") + "-f framemd5 -");
  std::map<double, std::string> all;
  std::istringstream lines(text);
  double tick = 0;
  for (std::string line; std::getline(lines, line);) {
    double numerator = 0;
    double denominator = 0;
    if (std::sscanf(line.c_str(), "#tb 0: %lf/%lf", &numerator, &denominator) == 2) tick = numerator / denominator;
    if (line.empty() || line[0] == '#') continue;
    long long shown = 0;
    char hash[64];
    REQUIRE(std::sscanf(line.c_str(), "%*d, %*d, %lld, %*d, %*d, %63s", &shown, hash) == 2);
    all[static_cast<double>(shown) * tick] = hash;
  }
  return all;
}

double number(const bytes& field) {
  REQUIRE(field.size() == 8);
  double value = 0;
  std::memcpy(&value, field.data(), 8);
  return value;
}

/// The frames that are shown in [begin, end).
std::map<double, std::string> within(const std::map<double, std::string>& all, double begin, double end) {
  return {all.lower_bound(begin - 1e-6), all.lower_bound(end - 1e-6)};
}

/// All clips of a folder's files, by their keys.
std::map<std::string, sample> clips_of(runtime& rt, const std::string& folder, const video_shards_options& options) {
  std::map<std::string, sample> all;
  const dataset data(
      files(), folder + "/",
      {.index = folder + "/clips-" + std::to_string(options.frames) + ".index", .format = video_shards(options)});
  for (sample& s : rt.run(epochs(data, {.seed = 1, .batch = 1}))) {
    const std::string key = s.key;
    CHECK(all.emplace(key, std::move(s)).second);
  }
  return all;
}

}  // namespace

TEST_CASE("the frames of a clip and their times are those of the whole file", "[video][outside]") {
  if (!has_ffmpeg()) return;
  const char* const ways[][2] = {
      {"B frames, moov last", "-c:v libx264 -bf 3 -g 20"},
      {"moov first", "-c:v libx264 -bf 3 -b_strategy 0 -g 17 -movflags +faststart"},
      {"open groups", "-c:v libx264 -x264-params open-gop=1:bframes=3:b-adapt=0:keyint=15:b-pyramid=2"},
      {"open groups of HEVC", "-c:v libx265 -x265-params log-level=none:open-gop=1:bframes=3:keyint=15 -tag:v hvc1"},
      {"key frames alone", "-c:v mjpeg -f mov"},
      {"negative shifts", "-c:v libx264 -bf 2 -g 20 -movflags +negative_cts_offsets"},
      {"a rate that varies", "-vf select='not(mod(n\\,3))+not(mod(n\\,7))' -fps_mode vfr -c:v libx264 -bf 2 -g 9"},
      {"a fragment a group", "-c:v libx264 -bf 2 -g 20 -movflags +frag_keyframe+empty_moov+default_base_moof"},
      {"fragments without default-base-is-moof", "-an -c:v libx264 -bf 2 -g 20 -movflags +frag_keyframe+empty_moov"},
      {"fragments inside of groups, and a moov with frames",
       "-c:v libx264 -bf 2 -g 20 -movflags "
       "+frag_keyframe+default_base_moof -frag_duration 300000"},
      {"sidx", "-c:v libx264 -bf 2 -g 20 -movflags +dash+frag_keyframe+default_base_moof+global_sidx"},
      {"VP9", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 20"},
  };
  const test::temporary_folder at;
  std::map<std::string, std::string> called;
  for (std::size_t i = 0; i < std::size(ways); ++i) {
    const std::string file = "v" + std::to_string(10 + i) + ".mp4";
    called[file] = ways[i][0];
    printed("ffmpeg -nostdin -v fatal -f lavfi -i testsrc2=s=64x48:r=25:d=4 -f lavfi -i sine=d=4 -c:a aac -threads 1 " +
            std::string(ways[i][1]) + ' ' + at.file(file));
  }
  // A start inside of a group leaves an edit list that hides frames; a delay one that begins with nothing.
  printed("ffmpeg -nostdin -v fatal -ss 0.48 -i " + at.file("v10.mp4") + " -c copy " + at.file("v30.mp4"));
  called["v30.mp4"] = "hidden frames";
  printed("ffmpeg -nostdin -v fatal -itsoffset 0.7 -i " + at.file("v10.mp4") + " -c copy " + at.file("v31.mp4"));
  called["v31.mp4"] = "a delay";

  std::map<std::string, std::map<double, std::string>> whole;
  for (const auto& [file, way] : called) whole[file] = frames_of(at.file(file));
  std::map<std::string, std::map<double, std::string>> sounds;
  for (const char* file : {"v10.mp4", "v17.mp4"}) sounds[file] = frames_of(at.file(file), "0:a:0");
  runtime rt;
  for (const video_shards_options& options : {video_shards_options{.seconds = 1.3, .partial = true, .audio = true},
                                              video_shards_options{.frames = 24, .frame_stride = 37}}) {
    std::map<std::string, std::map<double, std::string>> together;
    for (const auto& [key, s] : clips_of(rt, at.path(), options)) {
      const std::string name = key.substr(0, 7);
      INFO(called[name] << ", " << key);
      const double begin = number(s["begin"]);
      const double end = number(s["end"]);
      const std::map<double, std::string> wanted = within(whole[name], begin, end);
      const std::string little = at.file("clip", std::string(s["video"].view()));
      const std::map<double, std::string> got = within(frames_of(little), begin, end);
      CHECK(got.size() == wanted.size());
      auto g = got.begin();
      for (const auto& [time, hash] : wanted) {
        if (g == got.end()) break;
        CHECK(std::abs(g->first - time) < 1e-6);
        CHECK(g->second == hash);
        ++g;
      }
      if (options.frames != 0) CHECK(got.size() == 24);
      if (options.audio && (name == "v10.mp4" || name == "v17.mp4")) {
        CHECK(within(frames_of(little, "0:a:0"), begin, end) == within(sounds[name], begin, end));
      }
      together[name].insert(wanted.begin(), wanted.end());
    }
    // With .partial the clips have all frames.
    for (const auto& [file, frames] : whole) {
      INFO(called[file]);
      if (options.partial) CHECK(together[file] == frames);
    }
  }
}

TEST_CASE("an index of films reads moov alone, and a training the groups of its clips", "[video]") {
  rng random(3);
  s3_server::background server;
  std::uint64_t films = 0;
  std::uint64_t tables = 0;
  std::map<std::string, std::uint64_t> bytes_of;  // of the frames, by the key of a clip
  for (int n = 0; n < 3; ++n) {
    drawn_mp4 drawn = drawn_mp4::draw(random, 60, 20'000, true);
    drawn.moov_first = n == 0;
    const std::string file = n == 2 ? drawn.fragmented() : drawn.plain();
    films += file.size();
    std::uint64_t frames = 0;
    for (const test::drawn_track& t : drawn.tracks) {
      for (const test::drawn_track::frame& f : t.frames) frames += f.content.size();
    }
    tables += file.size() - frames;
    server.put("b", "films/" + std::to_string(n) + ".mp4", file);
  }
  server.put("b", "films/notes.txt", std::string("beside them"));
  const std::string endpoint = server.endpoint();
  s3::config_options how;
  how.endpoint = endpoint;
  how.region = "us-east-1";
  const s3::client client(s3::config(how), s3::credentials("test-key", "test-secret"));
  const test::temporary_folder at;
  const dataset data(client, "s3://b/films/",
                     {.index = at.file("films.index"), .format = video_shards({.seconds = 0.5})});
  runtime rt;
  epochs_options o{.seed = 5, .batch = 2};

  const std::unique_ptr<event_loop> loop = make_event_loop();
  for (const char* name : {"0.mp4", "1.mp4", "2.mp4"}) {
    const shard_index made =
        block_on(*loop, index_shard(s3::as_storage(client), shard("s3://b/films/" + std::string(name)), name,
                                    video_shards({.seconds = 0.5})));
    CHECK(made.samples() > 10);
  }
  INFO(films << " bytes of films, " << tables << " of their tables, " << server.stats().bytes_sent << " for the index");
  CHECK(server.stats().bytes_sent < films / 4);

  const test::part_of_training all = test::trained(rt, data, o);  // it makes the index
  const std::uint64_t before = server.stats().bytes_sent;
  CHECK(test::trained(rt, data, o).samples == all.samples);
  const std::uint64_t fetched = server.stats().bytes_sent - before;
  std::uint64_t wanted = 0;
  for (const auto& [position, clip] : all.samples) wanted += clip.size();
  CHECK(all.samples.size() > 20);
  INFO(fetched << " bytes fetched for clips of " << wanted);
  CHECK(fetched < wanted + wanted / 2);

  // Two ranks, stopped and resumed: each clip once.
  test::seen_samples together;
  for (std::uint32_t r = 0; r < 2; ++r) {
    o.rank = {.index = r, .world_size = 2};
    const test::part_of_training first = test::trained(rt, data, o, {}, 3);
    const test::part_of_training rest = test::trained(rt, data, o, first.state);
    CHECK(first.steps == 3);
    together.insert(first.samples.begin(), first.samples.end());
    together.insert(rest.samples.begin(), rest.samples.end());
  }
  CHECK(together == all.samples);
}
