// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::test {

/// Frames of a video as FFmpeg's libraries decode them from the first one on, without millrace.
class bare_video {
 public:
  int width = 0, height = 0;
  std::vector<double> times;        // seconds
  std::vector<std::string> frames;  // RGB, rows without padding

  /// `most`: stops after so many frames.
  static bare_video decode(std::string_view file, std::size_t most = SIZE_MAX) {
    ::av_log_set_level(AV_LOG_QUIET);
    bare_video made;
    struct source {
      std::string_view all;
      std::size_t at = 0;
    } from{file};
    AVFormatContext* demuxer = ::avformat_alloc_context();
    demuxer->pb = ::avio_alloc_context(
        static_cast<unsigned char*>(::av_malloc(4096)), 4096, 0, &from,
        [](void* self, std::uint8_t* to, int size) {
          auto& s = *static_cast<source*>(self);
          if (s.at >= s.all.size()) return AVERROR_EOF;
          const std::size_t n = s.all.copy(reinterpret_cast<char*>(to), static_cast<std::size_t>(size), s.at);
          s.at += n;
          return static_cast<int>(n);
        },
        nullptr,
        [](void* self, std::int64_t offset, int whence) {
          auto& s = *static_cast<source*>(self);
          const auto size = static_cast<std::int64_t>(s.all.size());
          if (whence == AVSEEK_SIZE) return size;
          const auto now = static_cast<std::int64_t>(s.at);
          const std::int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_END ? size : now;
          s.at = static_cast<std::size_t>(base + offset);
          return base + offset;
        });
    AVIOContext* const io = demuxer->pb;
    if (::avformat_open_input(&demuxer, "", nullptr, nullptr) < 0) throw std::runtime_error("bare_video: the header");
    ::avformat_find_stream_info(demuxer, nullptr);
    const int stream = ::av_find_best_stream(demuxer, AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
    const AVStream& video = *demuxer->streams[stream];
    const AVCodec* const codec = ::avcodec_find_decoder(video.codecpar->codec_id);
    AVCodecContext* decoder = ::avcodec_alloc_context3(codec);
    ::avcodec_parameters_to_context(decoder, video.codecpar);
    decoder->pkt_timebase = video.time_base;
    decoder->thread_count = 1;
    ::avcodec_open2(decoder, codec, nullptr);
    AVPacket* packet = ::av_packet_alloc();
    AVFrame* frame = ::av_frame_alloc();
    SwsContext* converter = nullptr;
    std::vector<std::uint8_t> rgb;
    bool more = true;
    while (more && made.frames.size() < most) {
      more = ::av_read_frame(demuxer, packet) >= 0;
      if (more && packet->stream_index != stream) {
        ::av_packet_unref(packet);
        continue;
      }
      ::avcodec_send_packet(decoder, more ? packet : nullptr);
      ::av_packet_unref(packet);
      while (made.frames.size() < most && ::avcodec_receive_frame(decoder, frame) >= 0) {
        converter = ::sws_getCachedContext(converter, frame->width, frame->height,
                                           static_cast<AVPixelFormat>(frame->format), frame->width, frame->height,
                                           AV_PIX_FMT_RGB24, SWS_BICUBIC, nullptr, nullptr, nullptr);
        int *inverse = nullptr, *table = nullptr;
        int full = 0, out_full = 0, brightness = 0, contrast = 0, saturation = 0;
        ::sws_getColorspaceDetails(converter, &inverse, &full, &table, &out_full, &brightness, &contrast, &saturation);
        if (frame->color_range != AVCOL_RANGE_UNSPECIFIED) full = frame->color_range == AVCOL_RANGE_JPEG;
        ::sws_setColorspaceDetails(converter, ::sws_getCoefficients(frame->colorspace), full, table, out_full,
                                   brightness, contrast, saturation);
        const auto row = static_cast<std::size_t>(frame->width) * 3;
        const std::size_t pitch = (row / 64 + 2) * 64;
        rgb.resize(pitch * static_cast<std::size_t>(frame->height) + 64);
        std::uint8_t* const planes[4] = {rgb.data(), nullptr, nullptr, nullptr};
        const int pitches[4] = {static_cast<int>(pitch), 0, 0, 0};
        ::sws_scale(converter, frame->data, frame->linesize, 0, frame->height, planes, pitches);
        std::string pixels;
        for (std::size_t y = 0; y < static_cast<std::size_t>(frame->height); ++y) {
          pixels.append(reinterpret_cast<const char*>(rgb.data() + y * pitch), row);
        }
        made.width = frame->width;
        made.height = frame->height;
        made.times.push_back(static_cast<double>(frame->best_effort_timestamp) * video.time_base.num /
                             video.time_base.den);
        made.frames.push_back(std::move(pixels));
      }
    }
    ::sws_freeContext(converter);
    ::av_frame_free(&frame);
    ::av_packet_free(&packet);
    ::avcodec_free_context(&decoder);
    ::avformat_close_input(&demuxer);
    ::av_freep(&io->buffer);
    AVIOContext* done = io;
    ::avio_context_free(&done);
    return made;
  }
};

}  // namespace millrace::test
