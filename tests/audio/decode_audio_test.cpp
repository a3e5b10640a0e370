// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/decode_audio.hpp>

#include <sndfile.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "examples/common/encode_audio.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

/// Samples with recordings of mixed lengths, 0.25 to 0.65 s, of one shard.
std::vector<sample> recordings(int n, std::uint64_t seed = 7, std::uint64_t epoch = 0) {
  shard from("s3://b/a.tar");
  from.seed = seed;
  from.epoch = epoch;
  const auto shared = std::make_shared<const shard>(from);
  std::vector<sample> made;
  for (int i = 0; i < n; ++i) {
    std::vector<float> values(static_cast<std::size_t>(2000 + 800 * (i % 5)));
    for (std::size_t t = 0; t < values.size(); ++t) values[t] = static_cast<float>(t % 331) / 400;
    const auto number = static_cast<std::uint64_t>(i);
    sample s("k" + std::to_string(i), origin(shared, 512 * number, number));
    s.fields.emplace_back("txt", bytes::copy("words"));
    const std::string flac = examples::encode_audio(values, 1, 8000, SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
    s.fields.emplace_back("flac", bytes::copy(flac));
    s.fields.emplace_back("cls", bytes::copy(std::to_string(i)));
    made.push_back(std::move(s));
  }
  return made;
}

const audio_options parts{.rate = 8000, .channels = 1, .seconds = 0.1, .crop = audio_crop::random, .label = "cls"};

std::vector<audio_sample> decoded(const std::vector<sample>& samples, const audio_options& o, unsigned threads) {
  testing::virtual_loop loop;
  cpu_pool cores(threads);
  auto all = from_range(samples) | decode_audio(o, {.on = cores});
  return block_on(loop, collect(std::move(all)));
}

std::vector<std::string> contents(const std::vector<audio_sample>& all) {
  std::vector<std::string> each;
  for (const audio_sample& a : all) each.emplace_back(static_cast<const char*>(a.sound.data()), a.sound.values.size());
  return each;
}

}  // namespace

TEST_CASE("samples with recordings become batches of values, lengths, labels and keys") {
  testing::virtual_loop loop;
  cpu_pool cores(2);
  const host_device device;
  auto batches = from_range(recordings(10)) | decode_audio(parts, {.on = cores}) | batch(4) | to_device(device);
  std::vector<device_batch> all = block_on(loop, collect(std::move(batches)));
  REQUIRE(all.size() == 3);
  CHECK(all[0].field("audio").dims() == shape{4, 800});
  CHECK(all[0].field("audio").type() == dtype::f32);
  CHECK(all[1].keys()[3] == "k7");
  CHECK(all[1].field("label").values<std::int64_t>()[3] == 7);
  CHECK(all[1].field("audio_lengths").values<std::int64_t>()[3] == 800);
  CHECK(all[1].tags<origin>()[3].ordinal == 7);
  CHECK(std::string((from_range(recordings(1)) | decode_audio(parts)).bounds().back().name) == "decode_audio");
}

TEST_CASE("of several recordings the first is taken, and one line says so") {
  sample s = recordings(1).front();
  const field first =
      *std::find_if(s.fields.begin(), s.fields.end(), [](const field& f) { return f.data.size() > 99; });
  s.fields.emplace_back("105.wav", first.data);
  test::captured_stderr said(test::captured_stderr::into::pipe);
  audio_options named = parts;
  named.field = "105.wav";
  CHECK(audio_reader(named)(s).of.fields.size() == s.fields.size() - 1);
  CHECK(audio_reader(parts)(s).sound.frames == 800);
  CHECK(audio_reader(parts)(s).sound.frames == 800);
  const std::string text = said.text();
  CHECK_THAT(text, Contains("several fields of the sample are recordings (" + first.extension +
                            ", 105.wav): the first in "
                            "the archive, " +
                            first.extension + ", is taken here and in samples alike"));
  CHECK(text.find("several fields") == text.rfind("several fields"));
}

TEST_CASE("channels have an extent unless there is one by the options") {
  const std::vector<audio_sample> all = decoded(recordings(1), {.channels = 2, .seconds = 0.25, .type = dtype::i16}, 1);
  const batch_layout layout = layout_of(all[0], 3);
  CHECK(layout.fields()[0].dims() == shape{2000, 2});
  CHECK(layout.fields()[0].type() == dtype::i16);
  const std::vector<audio_sample> as_is = decoded(recordings(1), {.seconds = 0.25}, 1);
  CHECK(layout_of(as_is[0], 3).fields()[0].dims() == shape{2000, 1});
}

TEST_CASE("recordings of mixed lengths are padded to the longest of their batch, with their lengths") {
  testing::virtual_loop loop;
  cpu_pool cores(2);
  const host_device device;
  for (const bool limited : {false, true}) {
    audio_options o{.channels = 1, .pad = {.multiple = 1000, .mask = true}};
    if (limited) {
      o.seconds = 0.5;  // 4000 frames
      o.fill = false;
    }
    auto batches = from_range(recordings(5)) | decode_audio(o, {.on = cores}) | batch(3) | to_device(device);
    const std::vector<device_batch> all = block_on(loop, collect(std::move(batches)));
    REQUIRE(all.size() == 2);
    CHECK(all[0].field("audio").dims() == shape{3, 4000});
    CHECK(all[1].field("audio").dims() == shape{2, limited ? 4000 : 6000});
    const auto lengths = all[0].field("audio_lengths").values<std::int64_t>();
    CHECK(std::vector<std::int64_t>(lengths.begin(), lengths.end()) == std::vector<std::int64_t>{2000, 2800, 3600});
    const auto values = all[0].field("audio").values<float>();
    CHECK(values[4000 + 331 + 200] == 0.5F);
    CHECK(values[4000 + 2799] == Approx((2799 % 331) / 400.0).margin(1e-4));
    CHECK(values[4000 + 2800] == 0);
    CHECK(all[0].field("audio_mask").values<std::uint8_t>()[4000 + 2799] == 1);
    CHECK(all[0].field("audio_mask").values<std::uint8_t>()[4000 + 2800] == 0);
  }
}

TEST_CASE("the sample keeps its other fields, and lets the recording go") {
  const std::vector<audio_sample> all = decoded(recordings(1), parts, 1);
  CHECK(all[0].of["txt"].view() == "words");
  CHECK(all[0].of.find("flac") == nullptr);
  CHECK(byte_size(all[0]) == 2 + 5 + 1 + 3200);
}

TEST_CASE("random parts are each sample's own: the same for any number of threads, whatever came before it") {
  const std::vector<sample> samples = recordings(24);
  const std::vector<std::string> once = contents(decoded(samples, parts, 1));
  CHECK(contents(decoded(samples, parts, 3)) == once);
  CHECK(contents(decoded({samples[13]}, parts, 1))[0] == once[13]);
  const std::vector<std::string> next = contents(decoded(recordings(24, 7, 1), parts, 1));
  int changed = 0;
  for (std::size_t i = 0; i < 24; ++i) changed += next[i] != once[i];
  CHECK(changed > 20);
  CHECK(contents(decoded(recordings(24, 8), parts, 1)) != once);
}

TEST_CASE("an error of a recording names shard, byte and sample") {
  std::vector<sample> samples = recordings(3);
  samples[2].fields[1].data = samples[2].fields[1].data.slice(0, 900);
  CHECK_THROWS_WITH(decoded(samples, parts, 1), Contains("s3://b/a.tar at byte 1024, k2: ") && Contains("FLAC"));
  samples[2].fields.erase(samples[2].fields.begin() + 1);
  CHECK_THROWS_WITH(decoded(samples, parts, 1),
                    "s3://b/a.tar at byte 1024, k2: no field of the sample is a WAV, FLAC, Ogg, MP3, AIFF, AU, CAF or "
                    "W64 (it has: txt, cls)");
  audio_options named = parts;
  named.field = "wav";
  CHECK_THROWS_WITH(decoded(recordings(1), named, 1), Contains("wav"));
  named.field = "flac";
  CHECK(contents(decoded(recordings(1), named, 1)) == contents(decoded(recordings(1), parts, 1)));
}

TEST_CASE("what only fills up an epoch's last batch is not decoded") {
  std::vector<sample> samples = recordings(1);
  sample padding;
  padding.mark.padding = true;
  samples.push_back(padding);
  const std::vector<audio_sample> all = decoded(samples, parts, 1);
  REQUIRE(all.size() == 2);
  CHECK(all[1].sound.rows() == 0);
  CHECK(mark_of(all[1]).padding);
}

TEST_CASE("of a training, a recording that cannot be had is a row of zeros in its place") {
  testing::virtual_loop loop;
  cpu_pool cores(2);
  const host_device device;
  for (const bool placed : {false, true}) {
    std::vector<sample> samples = recordings(8);
    for (std::size_t i = 0; placed && i < samples.size(); ++i) {
      samples[i].mark.known = true;
      samples[i].mark.position = i;
      samples[i].mark.next = i + 1;
    }
    samples[1].fields[1].data = samples[1].fields[1].data.slice(0, 900);
    samples[7].fields[2].data = bytes::copy("no number");
    const failure_policy bear{.then = on_failure::skip, .report = false};
    auto batches = from_range(samples) | decode_audio(parts, {.on = cores, .failures = bear}) | batch(4) |
                   to_device(device);
    const std::vector<device_batch> all = block_on(loop, collect(std::move(batches)));
    REQUIRE(all.size() == 2);
    CHECK(all[1].size() == (placed ? 4 : 2));
    const std::vector<std::string> keys(all[0].keys().begin(), all[0].keys().end());
    if (!placed) {
      CHECK(keys == std::vector<std::string>{"k0", "k2", "k3", "k4"});
      continue;
    }
    CHECK(keys == std::vector<std::string>{"k0", "", "k2", "k3"});
    const auto weights = all[0].weights();
    CHECK(std::vector<float>(weights.begin(), weights.end()) == std::vector<float>{1, 0, 1, 1});
    const auto values = all[0].field("audio").values<float>();
    CHECK(std::all_of(values.begin() + 800, values.begin() + 1600, [](float v) { return v == 0; }));
    CHECK(all[1].weights()[3] == 0);
    CHECK(all[1].mark().position == 7);
    CHECK(all[1].mark().next == 8);
  }
}

TEST_CASE("a budget of failures holds for recordings whose places are kept") {
  testing::virtual_loop loop;
  cpu_pool cores(1);
  std::vector<sample> samples = recordings(3);
  for (sample& s : samples) {
    s.mark.known = s.mark.counted = true;
    s.fields[1].data = s.fields[1].data.slice(0, 900);
  }
  for (const std::uint64_t limit : {2U, 3U}) {
    const failure_policy bear{.then = on_failure::skip, .limit = limit, .report = false};
    auto all = from_range(samples) | decode_audio(parts, {.on = cores, .failures = bear});
    if (limit == 2) {
      CHECK_THROWS_AS(block_on(loop, collect(std::move(all))), too_many_failures);
    } else {
      CHECK(block_on(loop, collect(std::move(all))).size() == 3);
    }
  }
}

TEST_CASE("a recording of more than the budget of its run is refused before it is decoded") {
  const auto one = [](std::string wav) -> async_generator<sample> {
    sample s("k", origin(std::make_shared<const shard>("x.tar"), 512, 0));
    s.fields.emplace_back("wav", bytes::copy(wav));
    co_yield give(s);
  };
  const std::string wav =
      examples::encode_audio(std::vector<float>(500'000), 1, 8000, SF_FORMAT_WAV | SF_FORMAT_PCM_16);
  const auto decoded = [&](std::size_t budget) {
    auto r = run(one(wav) | decode_audio({}, {.limit = 1, .bytes = MiB / 2}),
                 {.prefetch_bytes = MiB / 4, .budget = budget});
    return r.next()->sound.frames;
  };
  CHECK_THROWS_WITH(decoded(3 * MiB / 2), Contains("500000 frames of 1 channels, more than are allowed"));
  CHECK(decoded(16 * MiB) == 500'000);
  CHECK(decoded(0) == 500'000);
}
