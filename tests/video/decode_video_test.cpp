// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/decode/decode_video.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/testing/virtual_loop.hpp>

#include "examples/common/encode_video.hpp"
#include "tests/support/captured_stderr.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/failure_of.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

/// Samples with videos of 20 to 24 frames, of one shard.
std::vector<sample> videos(int n) {
  shard from("s3://b/a.tar");
  from.seed = 7;
  const auto shared = std::make_shared<const shard>(from);
  std::vector<sample> made;
  for (int i = 0; i < n; ++i) {
    const auto number = static_cast<std::uint64_t>(i);
    sample s("k" + std::to_string(i), origin(shared, 512 * number, number));
    s.fields.emplace_back("txt", bytes::copy("words"));
    const std::string file = examples::encode_video({.frames = 20 + i % 5, .seed = i, .between = 2});
    s.fields.emplace_back("mp4", bytes::copy(file));
    s.fields.emplace_back("cls", bytes::copy(std::to_string(i)));
    made.push_back(std::move(s));
  }
  return made;
}

video_options small() {
  video_options o;
  o.frames = 4;
  o.height = 24;
  o.width = 32;
  o.rate = 10;
  o.crop = crop::random_resized{};
  o.flip = 0.5;
  o.layout = image_layout::chw;
  o.type = dtype::f16;
  o.label = "cls";
  return o;
}

std::vector<device_batch> batches_of(const std::vector<sample>& samples, const video_options& o, unsigned threads,
                                     batch_options how = {}) {
  testing::virtual_loop loop;
  cpu_pool cores(threads);
  const host_device device;
  how.on = &cores;
  auto all = from_range(samples) | decode_video(o) | batch(4, how) | to_device(device);
  return block_on(loop, collect(std::move(all)));
}

std::string contents(const std::vector<device_batch>& all) {
  std::string text;
  for (const device_batch& b : all) {
    const tensor_view v = b.field("video");
    text.append(static_cast<const char*>(v.data()), v.elements() * size_of(v.type()));
    const auto times = b.field("video_times").values<double>();
    text.append(reinterpret_cast<const char*>(times.data()), times.size_bytes());
  }
  return text;
}

}  // namespace

TEST_CASE("samples with videos become batches of clips, times, lengths, labels and keys") {
  const std::vector<sample> samples = videos(6);
  const std::vector<device_batch> all = batches_of(samples, small(), 2);
  REQUIRE(all.size() == 2);
  CHECK(all[0].field("video").dims() == shape{4, 4, 3, 24, 32});
  CHECK(all[0].field("video").type() == dtype::f16);
  CHECK(all[0].field("video_times").dims() == shape{4, 4});
  CHECK(all[0].field("video_lengths").dims() == shape{4});
  CHECK(all[0].field("video_lengths").values<std::int64_t>()[3] == 4);
  CHECK(all[1].field("label").values<std::int64_t>()[1] == 5);
  CHECK(all[1].keys()[1] == "k5");
  CHECK(all[1].tags<origin>()[1].ordinal == 5);
  const auto times = all[1].field("video_times").values<double>();
  CHECK(times[7] - times[4] > 0.25);
  CHECK(times[7] - times[4] < 0.35);

  video_options several = small();
  several.clips = 2;
  several.label = "";
  const batch_layout layout = video_row_writer(several).layout(3);
  CHECK(layout.fields()[0].dims() == shape{2, 4, 3, 24, 32});
  CHECK(layout.fields()[1].dims() == shape{2, 4});
  CHECK(layout.fields()[2].dims() == shape{2});
  CHECK(layout.fields().size() == 3);
  CHECK(batches_of(samples, several, 1)[0].field("video_times").values<double>().size() == 32);
}

TEST_CASE("clips are each sample's own: the same for any number of threads, whatever came before it") {
  const std::vector<sample> samples = videos(8);
  const std::string once = contents(batches_of(samples, small(), 1));
  CHECK((contents(batches_of(samples, small(), 3)) == once));
  const std::vector<sample> later(samples.begin() + 4, samples.end());
  const std::string second = contents(batches_of(later, small(), 1));
  CHECK((once.substr(once.size() - second.size()) == second));
}

TEST_CASE("of several videos the first is taken, and one line says so") {
  const sample plain = videos(1).front();
  sample s = plain;
  s.fields.emplace_back("b.mkv", bytes::copy(examples::encode_video({.container = "matroska", .frames = 20})));
  test::captured_stderr said(test::captured_stderr::into::pipe);
  const std::string first = contents(batches_of({s}, small(), 1));
  CHECK((contents(batches_of({plain}, small(), 1)) == first));
  video_options named = small();
  named.field = "b.mkv";
  CHECK((contents(batches_of({s}, named, 1)) != first));
  const std::string text = said.text();
  CHECK_THAT(text, Contains("several fields of the sample are videos (mp4, b.mkv): the first in the archive, mp4, is "
                            "taken here and in samples alike; video_options::field names another"));
  CHECK(text.find("several fields") == text.rfind("several fields"));
}

TEST_CASE("errors name the object, its byte, the sample and the reason; such samples can be left out") {
  std::vector<sample> samples = videos(3);
  for (field& f : samples[1].fields) {
    if (f.extension == "mp4") f.data = f.data.slice(0, f.data.size() - 100);
  }
  CHECK_THAT(test::failure_of([&] { batches_of(samples, small(), 2); }),
             Contains("s3://b/a.tar at byte 512, k1: the MP4 is cut short: its box moov at byte "));
  CHECK(batches_of(samples, small(), 2, {.failures = {.then = on_failure::skip, .limit = 1, .report = false}})[0]
            .size() == 2);
  samples[1].fields.erase(samples[1].fields.begin() + 1);
  CHECK_THAT(test::failure_of([&] { batches_of(samples, small(), 2); }),
             Contains("k1: no field of the sample is an MP4, QuickTime or Matroska file (it has: txt, cls)"));
  video_options o = small();
  o.label = "txt";
  CHECK_THAT(test::failure_of([&] { batches_of({samples[0]}, o, 1); }), Contains("k0") && Contains("words"));
}
