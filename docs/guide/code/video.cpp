// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The programs of docs/guide/video.md, over small data sets of their own.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <millrace/decode/decode_video.hpp>
#include <millrace/decode/video_sound.hpp>
#include <millrace/formats/video_shards.hpp>
#include <millrace/millrace.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/train.hpp>
#if defined(MILLRACE_WITH_AUDIO)
#include <millrace/decode/decode_audio.hpp>
#endif

#include "examples/common/encode_video.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/s3_server.hpp"
#include "tests/support/temporary_folder.hpp"

namespace mill = millrace;

namespace {

auto video_samples(const std::string& folder, std::uint64_t epoch) {
  return mill::glob(folder + "/*.tar") | mill::shuffle_shards({.seed = 7, .epoch = epoch}) |
         mill::fetch(mill::files()) | mill::untar() | mill::group_samples();
}

// begin training
auto training(const std::string& folder, std::uint64_t epoch) {
  const mill::video_options clips{.frames = 8,
                                  .height = 112,
                                  .width = 112,
                                  .rate = 10,
                                  .crop = mill::crop::random_resized{},
                                  .flip = 0.5,
                                  .layout = mill::image_layout::chw,
                                  .type = mill::dtype::f16,
                                  .mean = {0.43f, 0.39f, 0.38f},
                                  .std = {0.23f, 0.22f, 0.22f},
                                  .label = "cls"};
  return video_samples(folder, epoch) | mill::decode_video(clips) | mill::batch(4) |
         mill::to_device(mill::host_device());
}
// end training

// begin evaluation
/// Ten clips of each video, its middle, whatever its length.
auto evaluation(const std::string& folder) {
  const mill::video_options clips{.frames = 8,
                                  .height = 112,
                                  .width = 112,
                                  .clips = 10,
                                  .start = mill::clip_start::even,
                                  .stride = 4,
                                  .fill = true,
                                  .crop = mill::crop::center{},
                                  .label = "cls"};
  return video_samples(folder, 0) | mill::decode_video(clips) |
         mill::batch(2, {.failures = {.then = mill::on_failure::skip}}) | mill::to_device(mill::host_device());
}
// end evaluation

// begin films
/// Films in a store, clip by clip: of each second its bytes alone are fetched, and of these 8 frames become a row.
auto training_on_films(const mill::s3::client& s3, const std::string& index, mill::rank mine, std::string saved) {
  const mill::dataset films(s3, "s3://corpus/films/", {.index = index, .format = mill::video_shards({.seconds = 1})});
  const mill::video_options frames{.frames = 8, .height = 32, .width = 32, .rate = 10, .flip = 0.5};
  return mill::epochs(films, {.seed = 7, .epochs = 2, .batch = 2, .rank = mine}, std::move(saved)) |
         mill::decode_video(frames) | mill::batch() | mill::to_device(mill::host_device());
}
// end films

#if defined(MILLRACE_WITH_AUDIO)
// begin sound
/// What is heard in films, of each second alone.
auto training_on_sound(const mill::s3::client& s3, const std::string& index, mill::rank mine) {
  const mill::dataset films(s3, "s3://corpus/films/",
                            {.index = index, .format = mill::video_shards({.seconds = 1, .audio = true})});
  return mill::epochs(films, {.seed = 7, .epochs = 1, .batch = 2, .rank = mine}) | mill::sound_of_videos() |
         mill::decode_audio({.rate = 16000, .channels = 1, .seconds = 1}) | mill::batch() |
         mill::to_device(mill::host_device());
}
// end sound

// begin both
/// A clip, and what is heard meanwhile.
class seen_and_heard {
 public:
  void operator()(const mill::sample& s, const mill::batch_row& row) const {
    frames_(s, row);
    const mill::audio sound = sound_(mill::video_sound(s), 0, s.from.at(s.key));
    std::memcpy(row.field("audio").data(), sound.data(), sound.values.size());
  }
  mill::batch_layout layout(std::size_t samples) const {
    std::vector<mill::batch_field> fields = frames_.layout(samples).fields();
    fields.emplace_back("audio", mill::dtype::f32, mill::shape{16000});
    return mill::batch_layout(samples, std::move(fields));
  }

 private:
  mill::video_row_writer frames_{{.frames = 8, .height = 32, .width = 32, .start = mill::clip_start::first, .rate = 8}};
  mill::audio_decoder sound_{{.rate = 16000, .channels = 1, .seconds = 1}};
};

auto training_on_both(const mill::s3::client& s3, const std::string& index, mill::rank mine) {
  const mill::dataset films(s3, "s3://corpus/films/",
                            {.index = index, .format = mill::video_shards({.seconds = 1, .audio = true})});
  const seen_and_heard write;
  return mill::epochs(films, {.seed = 7, .epochs = 1, .batch = 2, .rank = mine}) |
         mill::fill_batches(mill::batch_pool(write.layout(2)), write) | mill::to_device(mill::host_device());
}
// end both
#endif

}  // namespace

TEST_CASE("the guide's programs for videos see every one", "[guide]") {
  std::string tar;
  mill::tar::writer w(tar);
  for (int i = 0; i < 6; ++i) {
    w.add(std::to_string(i) + ".mp4", examples::encode_video({.codec = "mpeg4", .frames = 25 + i, .seed = i}));
    w.add(std::to_string(i) + ".cls", std::to_string(i));
  }
  w.finish();
  const mill::test::temporary_folder folder;
  std::ofstream(folder.file("0.tar"), std::ios::binary) << tar;
  mill::runtime rt;
  std::size_t seen = 0;
  for (const mill::device_batch& b : rt.run(training(folder.path(), 0))) {
    CHECK(b.field("video").dims() == mill::shape{static_cast<std::int64_t>(b.size()), 8, 3, 112, 112});
    CHECK(b.field("video_times").dims() == mill::shape{static_cast<std::int64_t>(b.size()), 8});
    seen += b.size();
  }
  CHECK(seen == 6);
  std::int64_t frames = 0;
  for (const mill::device_batch& b : rt.run(evaluation(folder.path()))) {
    CHECK(b.field("video").dims() == mill::shape{2, 10, 8, 112, 112, 3});
    for (const std::int64_t n : b.field("video_lengths").values<std::int64_t>()) frames += n;
  }
  CHECK(frames == 10 * (4 * 7 + 2 * 8));
}

TEST_CASE("the guide's training on films takes each second once, on two ranks that go on after a stop", "[guide]") {
  mill::s3_server::background server;
  for (int n = 0; n < 3; ++n) {
    const int frames = 25 * (n + 2);  // a second has 25, and a group 12
    const bool mp4 = n != 1;
    server.put(
        "corpus", "films/" + std::to_string(n) + (mp4 ? ".mp4" : ".mkv"),
        examples::encode_video({.container = mp4 ? "mp4" : "matroska", .frames = frames, .seed = n, .between = n}));
  }
  const std::string endpoint = server.endpoint();
  mill::s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  const mill::s3::client s3(mill::s3::config(o), mill::s3::credentials("test-key", "test-secret"));
  const mill::test::temporary_folder at;
  mill::runtime rt;
  using rows = std::map<std::string, std::string>;  // pixels and times by the keys, with the epoch
  const auto trained = [&](mill::rank mine, std::size_t steps, std::string saved) {
    std::pair<rows, std::string> made;
    auto run = rt.run(training_on_films(s3, at.file("films.index"), mine, std::move(saved)));
    for (const mill::device_batch& b : run) {
      const auto pixels = b.field("video").values<std::uint8_t>();
      const auto times = b.field("video_times").values<double>();
      const std::size_t size = pixels.size() / b.size();
      for (std::size_t i = 0; i < b.size(); ++i) {
        if (b.weights()[i] == 0) continue;
        const double second = std::stod(std::string(b.keys()[i].substr(b.keys()[i].find('#') + 1)));
        for (std::size_t k = 0; k < 8; ++k) {
          CHECK(times[i * 8 + k] > second - 0.041);
          CHECK(times[i * 8 + k] < second + 0.9999);
        }
        const std::string key = std::to_string(mark_of(b).epoch) + ' ' + std::string(b.keys()[i]);
        CHECK(made.first
                  .emplace(key, std::string(pixels.begin() + static_cast<std::ptrdiff_t>(i * size),
                                            pixels.begin() + static_cast<std::ptrdiff_t>((i + 1) * size)))
                  .second);
      }
      if (--steps == 0) break;
    }
    made.second = run.state();
    return made;
  };
  const rows all = trained({}, SIZE_MAX, {}).first;
  CHECK(all.size() == 2 * (2 + 3 + 4));
  rows together;
  for (std::uint32_t r = 0; r < 2; ++r) {
    const mill::rank mine{.index = r, .world_size = 2};
    auto [first, state] = trained(mine, 2, {});
    together.merge(first);
    together.merge(trained(mine, SIZE_MAX, state).first);
  }
  CHECK(together == all);
}

#if defined(MILLRACE_WITH_AUDIO)
TEST_CASE("the guide's trainings on sound hear each second of the films", "[guide]") {
  mill::s3_server::background server;
  for (int n = 0; n < 2; ++n) {
    examples::video_form form{.codec = "mpeg4", .frames = 25 * (n + 2), .seed = n};
    form.sound = "aac";
    form.rate = 16000;
    form.channels = 1;
    server.put("corpus", "films/" + std::to_string(n) + ".mp4", examples::encode_video(form));
  }
  const std::string endpoint = server.endpoint();
  mill::s3::config_options o;
  o.endpoint = endpoint;
  o.region = "us-east-1";
  const mill::s3::client s3(mill::s3::config(o), mill::s3::credentials("test-key", "test-secret"));
  const mill::test::temporary_folder at;
  mill::runtime rt;
  std::size_t seen = 0;
  const auto check = [&seen](const mill::device_batch& b) {
    const auto values = b.field("audio").values<float>();
    REQUIRE(values.size() == b.size() * 16000);
    for (std::size_t i = 0; i < b.size(); ++i) {
      if (b.weights()[i] == 0) continue;
      ++seen;
      const long second = std::stol(std::string(b.keys()[i].substr(b.keys()[i].find('#') + 1)));
      double sum = 0;
      for (long k = 0; k < 15000; ++k) {  // the sine of this second
        const double drawn = examples::sound_at(0, second * 16000 + k, 16000);
        sum += std::pow(values[i * 16000 + static_cast<std::size_t>(k)] - drawn, 2);
      }
      CHECK(std::sqrt(sum / 15000) < 0.02);
    }
  };
  for (const mill::device_batch& b : rt.run(training_on_sound(s3, at.file("films.index"), {}))) check(b);
  CHECK(seen == 5);
  for (const mill::device_batch& b : rt.run(training_on_both(s3, at.file("films.index"), {}))) {
    check(b);
    CHECK(b.field("video").dims() == mill::shape{static_cast<std::int64_t>(b.size()), 8, 32, 32, 3});
  }
  CHECK(seen == 10);
}
#endif
