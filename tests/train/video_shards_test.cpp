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
#include <set>
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
#include "tests/support/failure_of.hpp"
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
      {.index = folder + "/clips-" + std::to_string(options.seconds) + ".index", .format = video_shards(options)});
  for (sample& s : rt.run(epochs(data, {.seed = 1, .batch = 1}))) {
    const std::string key = s.key;
    CHECK(all.emplace(key, std::move(s)).second);
  }
  return all;
}

/// Films of a folder, as ffmpeg decodes them whole.
class films {
 public:
  /// `called`: by the names of files. Of those in `heard` the sound is compared, too.
  films(const test::temporary_folder& at, std::map<std::string, std::string> called, const std::set<std::string>& heard)
      : at_(at), called_(std::move(called)) {
    for (const auto& [file, way] : called_) whole_[file] = frames_of(at.file(file));
    for (const std::string& file : heard) sounds_[file] = frames_of(at.file(file), "0:a:0");
  }
  /// Decodes their clips.
  void check(const video_shards_options& options) {
    std::map<std::string, std::map<double, std::string>> together;
    for (const auto& [key, s] : clips_of(rt_, at_.path(), options)) {
      const std::string name = key.substr(0, key.find('#'));
      INFO(called_[name] << ", " << key);
      const double begin = number(s["begin"]);
      const double end = number(s["end"]);
      const std::map<double, std::string> wanted = within(whole_[name], begin, end);
      const std::string little = at_.file("clip", std::string(s["video"].view()));
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
      if (options.audio && sounds_.count(name) != 0) {
        CHECK(within(frames_of(little, "0:a:0"), begin, end) == within(sounds_[name], begin, end));
      }
      together[name].insert(wanted.begin(), wanted.end());
    }
    // With .partial the clips have all frames.
    for (const auto& [file, frames] : whole_) {
      INFO(called_[file]);
      CHECK(together.count(file) == 1);
      if (options.partial) CHECK(together[file] == frames);
    }
  }

 private:
  const test::temporary_folder& at_;
  std::map<std::string, std::string> called_;
  std::map<std::string, std::map<double, std::string>> whole_;
  std::map<std::string, std::map<double, std::string>> sounds_;
  runtime rt_;
};

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

  films made(at, called, {"v10.mp4", "v17.mp4"});
  made.check({.seconds = 1.3, .partial = true, .audio = true});
  made.check({.frames = 24, .frame_stride = 37});
}

TEST_CASE("the frames of a clip of Matroska or WebM and their times are those of the whole file", "[video][outside]") {
  if (!has_ffmpeg()) return;
  const char* const ways[][3] = {
      {"v10.mkv", "B frames", "-c:v libx264 -bf 3 -g 20 -c:a aac"},
      {"v11.mkv", "cues at the front", "-c:v libx264 -bf 3 -b_strategy 0 -g 17 -c:a aac -cues_to_front 1"},
      {"v12.mkv", "open groups",
       "-c:v libx264 -x264-params open-gop=1:bframes=3:b-adapt=0:keyint=15:b-pyramid=2 -c:a libopus"},
      {"v13.mkv", "open groups of HEVC",
       "-c:v libx265 -x265-params log-level=none:open-gop=1:bframes=3:keyint=15 -c:a aac"},
      {"v14.mkv", "key frames alone", "-c:v mjpeg -c:a aac"},
      {"v15.mkv", "groups inside of clusters", "-c:v libx264 -bf 2 -g 8 -s 16x16 -c:a aac -cluster_size_limit 100000"},
      {"v16.mkv", "clusters inside of groups", "-c:v libx264 -bf 2 -g 30 -c:a aac -cluster_time_limit 150"},
      {"v17.mkv", "a rate that varies",
       "-vf select='not(mod(n\\,3))+not(mod(n\\,7))' -fps_mode vfr -c:v libx264 -bf 2 -g 9 -c:a aac"},
      {"v20.webm", "VP9", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 20 -c:a libopus"},
      {"v21.webm", "VP9 with hidden frames", "-c:v libvpx-vp9 -deadline good -cpu-used 5 -lag-in-frames 12 -g 30"},
      {"v22.webm", "VP8", "-c:v libvpx -g 20 -c:a libvorbis"},
  };
  const test::temporary_folder at;
  std::map<std::string, std::string> called;
  for (const auto& [file, name, how] : ways) {
    called[file] = name;
    printed("ffmpeg -nostdin -v fatal -f lavfi -i testsrc2=s=64x48:r=25:d=4 -f lavfi -i sine=d=4 -threads 1 " +
            std::string(how) + ' ' + at.file(file));
  }
  films made(at, called, {"v10.mkv", "v12.mkv", "v16.mkv", "v20.webm", "v22.webm"});
  made.check({.seconds = 1.3, .partial = true, .audio = true});
  made.check({.seconds = 0.7, .stride = 0.45});

  // A stream has no Cues.
  printed("ffmpeg -nostdin -v fatal -i " + at.file("v20.webm") + " -c copy -f webm - > " + at.file("live.webm"));
  runtime rt;
  CHECK_THAT(test::failure_of([&] { clips_of(rt, at.path(), {}); }),
             Catch::Matchers::Contains("live.webm at byte ") && Catch::Matchers::Contains("ffmpeg -i old.mkv -c copy"));
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

  // Tars, where no format is given: the error says what reads them.
  const dataset tars(client, "s3://b/films/0.", {.index = at.file("tars.index")});
  CHECK_THAT(test::failure_of([&] { test::trained(rt, tars, o); }), Catch::Matchers::Contains("mill::video_shards()"));

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
