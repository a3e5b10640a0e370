// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Clips per second: decode_video() beside FFmpeg's libraries on as many threads, in turns. Videos of 12 s in H.264, 340
// x 256 pixels with a key frame every two seconds, in MP4; of each 16 frames in a row from its beginning, and 16 from
// the middle of a group. The bare threads seek, and have libswscale make RGB of 112 x 112 pixels at once, where the
// filter is not as wide; decode_video() normalises them to f16, and lays out batches.
// And the bytes that clips of 2 s fetch of a film of ten minutes in a store, its index included.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/video_bench.cpp -o video_bench -lcurl -luring -lssl -lcrypto -lexpat
//   -larchive -lz -lzstd -lavformat -lavcodec -lswscale -lavutil
//
//   video_bench [videos per round, default 400]

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/coro/block_on.hpp>
#include <millrace/decode/decode_video.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/video_shards.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/testing/s3_server/background.hpp>
#include <millrace/train/dataset.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/on_threads.hpp"
#include "examples/common/encode_video.hpp"

namespace {

namespace mill = millrace;

constexpr int width = 340;
constexpr int height = 256;
constexpr int size = 112;  // of a tensor
constexpr int video_frames = 300;
constexpr int clip_frames = 16;
constexpr int middle = 142;  // the beginning of a clip that `even` takes
constexpr std::size_t different = 8;

class memory_file {
 public:
  explicit memory_file(std::string_view all) noexcept : all_(all) {}
  static int read(void* self, std::uint8_t* to, int most) noexcept {
    auto& f = *static_cast<memory_file*>(self);
    if (f.at_ >= f.all_.size()) return AVERROR_EOF;
    const std::size_t n = f.all_.copy(reinterpret_cast<char*>(to), static_cast<std::size_t>(most), f.at_);
    f.at_ += n;
    return static_cast<int>(n);
  }
  static std::int64_t seek(void* self, std::int64_t offset, int from) noexcept {
    auto& f = *static_cast<memory_file*>(self);
    const auto all = static_cast<std::int64_t>(f.all_.size());
    if (from == AVSEEK_SIZE) return all;
    f.at_ = static_cast<std::size_t>(offset + (from == SEEK_SET ? 0 : from == SEEK_CUR ? std::int64_t(f.at_) : all));
    return static_cast<std::int64_t>(f.at_);
  }

 private:
  std::string_view all_;
  std::size_t at_ = 0;
};

/// Seeks, decodes and converts one clip, with nothing of millrace.
void decode_bare(std::string_view file, int first, std::vector<std::uint8_t>& rgb) {
  memory_file source(file);
  AVFormatContext* demuxer = ::avformat_alloc_context();
  auto* const block = static_cast<unsigned char*>(::av_malloc(1 << 15));
  AVIOContext* io = ::avio_alloc_context(block, 1 << 15, 0, &source, &memory_file::read, nullptr, &memory_file::seek);
  demuxer->pb = io;
  ::avformat_open_input(&demuxer, "", nullptr, nullptr);
  ::avformat_find_stream_info(demuxer, nullptr);
  const AVStream& stream = *demuxer->streams[0];
  const AVCodec* const codec = ::avcodec_find_decoder(stream.codecpar->codec_id);
  AVCodecContext* decoder = ::avcodec_alloc_context3(codec);
  ::avcodec_parameters_to_context(decoder, stream.codecpar);
  decoder->thread_count = 1;
  ::avcodec_open2(decoder, codec, nullptr);
  AVPacket* packet = ::av_packet_alloc();
  AVFrame* frame = ::av_frame_alloc();
  SwsContext* const converter = ::sws_getContext(width, height, AV_PIX_FMT_YUV420P, size, size, AV_PIX_FMT_RGB24,
                                                 SWS_BILINEAR, nullptr, nullptr, nullptr);
  const std::int64_t length = stream.time_base.den / 25 / stream.time_base.num;
  ::av_seek_frame(demuxer, 0, first * length, AVSEEK_FLAG_BACKWARD);
  int taken = 0;
  while (taken < clip_frames) {
    const bool more = ::av_read_frame(demuxer, packet) >= 0;
    ::avcodec_send_packet(decoder, more ? packet : nullptr);
    ::av_packet_unref(packet);
    while (taken < clip_frames && ::avcodec_receive_frame(decoder, frame) >= 0) {
      if (frame->pts < first * length) continue;
      constexpr int pitch = 384;
      rgb.resize(std::size_t(pitch) * (size + 1));
      std::uint8_t* const planes[4] = {rgb.data(), nullptr, nullptr, nullptr};
      const int pitches[4] = {pitch, 0, 0, 0};
      ::sws_scale(converter, frame->data, frame->linesize, 0, height, planes, pitches);
      ++taken;
    }
    if (!more) break;
  }
  if (taken != clip_frames) std::abort();
  ::sws_freeContext(converter);
  ::av_frame_free(&frame);
  ::av_packet_free(&packet);
  ::avcodec_free_context(&decoder);
  ::avformat_close_input(&demuxer);
  ::av_freep(&io->buffer);
  ::avio_context_free(&io);
}

std::uint64_t all_bare(const std::vector<mill::sample>& samples, int count, unsigned threads, int first) {
  std::atomic<std::uint64_t> total{0};
  bench::on_threads(threads, count, [&] {
    return [&, rgb = std::vector<std::uint8_t>()](int i) mutable {
      const mill::bytes& file = samples[static_cast<std::size_t>(i) % samples.size()].fields[0].data;
      decode_bare(file.view(), first, rgb);
      total += file.size();
    };
  });
  return total;
}

auto clips(const std::vector<mill::sample>& samples, int count, mill::cpu_pool& cores, mill::clip_start start) {
  const auto pick = [&samples](int i) { return samples[static_cast<std::size_t>(i) % samples.size()]; };
  const mill::video_options o{.frames = clip_frames,
                              .height = size,
                              .width = size,
                              .start = start,
                              .type = mill::dtype::f16,
                              .mean = {0.43F, 0.39F, 0.38F},
                              .std = {0.23F, 0.22F, 0.22F}};
  mill::batch_options how;
  how.on = &cores;
  return mill::iota(count) | mill::map(pick) | mill::decode_video(o) | mill::batch(8, how);
}

/// Compares what the store sends in an epoch on clips of one film, which makes the index first, with the bytes of the
/// groups that the clips are in.
void compare_bytes() {
  examples::video_form form;
  form.width = 160;
  form.height = 128;
  form.frames = 25 * 600;
  form.group = 50;
  form.between = 2;
  form.options = "preset=veryfast";
  const std::string film = examples::encode_video(form);
  mill::s3_server::background server;
  server.put("b", "films/0.mp4", film);
  mill::s3::config_options where;
  where.endpoint = server.endpoint();
  const mill::s3::client s3(mill::s3::config(where), mill::s3::credentials("test-key", "test-secret"));
  std::string index("video_bench.");
  index += std::to_string(::getpid());
  const mill::dataset clips(s3, "s3://b/films/",
                            {.index = index, .format = mill::video_shards({.seconds = 2, .stride = 19})});
  mill::runtime rt;
  double groups = 0;
  int count = 0;
  for (const mill::sample& s : rt.run(mill::epochs(clips, {.batch = 1}), {.show = mill::progress::off})) {
    groups += static_cast<double>(s["video"].size());
    ++count;
  }
  ::unlink(index.c_str());
  const auto sent = static_cast<double>(server.stats().bytes_sent);
  std::printf("%d clips of 2 s of a film of 10 minutes: %.2f MB of %.1f sent, the index included\n", count, sent * 1e-6,
              static_cast<double>(film.size()) * 1e-6);
  bench::goal_at_most("bytes sent / bytes of the clips' groups", sent / groups, 1.5);
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 400;
  bench::print_machine();
  std::vector<mill::sample> samples;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < different; ++i) {
    examples::video_form form;
    form.width = width;
    form.height = height;
    form.frames = video_frames;
    form.seed = static_cast<int>(i);
    form.group = 50;
    form.between = 2;
    form.options = "preset=veryfast";
    mill::sample s("k" + std::to_string(i), mill::origin());
    s.fields.emplace_back("mp4", mill::bytes::copy(examples::encode_video(form)));
    bytes += s.fields[0].data.size();
    samples.push_back(std::move(s));
  }
  const double per_file = static_cast<double>(bytes) / different;
  mill::cpu_pool cores;
  const auto loop = mill::make_event_loop();
  const auto staged = [&](mill::clip_start start) {
    mill::block_on(*loop, bench::count_all(clips(samples, count, cores, start)));
    return count * per_file;
  };
  bench::contender a("FFmpeg, beginnings", [&] { return all_bare(samples, count, cores.threads(), 0); });
  bench::contender b("decode_video", [&] { return staged(mill::clip_start::first); });
  bench::contender c("FFmpeg, middles", [&] { return all_bare(samples, count, cores.threads(), middle); });
  bench::contender d("decode_video, middles", [&] { return staged(mill::clip_start::even); });
  bench::take_turns({&a, &b, &c, &d});
  std::printf("%d frames of %d x %d, %.1f KB; %u threads; GB of MP4\n", video_frames, width, height, per_file * 1e-3,
              cores.threads());
  bench::print_table({&a, &b, &c, &d});
  std::printf("  decode_video: %.0f clips/s, %.0f per CPU second; middles %.0f\n",
              b.gb_per_second.median() * 1e9 / per_file, 1e9 / per_file / b.cpu_per_gb.median(),
              d.gb_per_second.median() * 1e9 / per_file);
  bench::goal_at_least("clips/s, decode_video / bare FFmpeg", bench::ratio(b.gb_per_second, a.gb_per_second), 0.9);
  bench::goal_at_least("the same, middles", bench::ratio(d.gb_per_second, c.gb_per_second), 0.9);
  compare_bytes();
}
