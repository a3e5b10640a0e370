// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
}

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace examples {

/// The form of a video that encode_video() draws.
struct video_form {
  const char* codec = "libx264";  ///< of libavcodec's encoders
  const char* container = "mp4";  ///< of libavformat's formats: mp4, mov, matroska, webm
  AVPixelFormat format = AV_PIX_FMT_YUV420P;
  int width = 64;
  int height = 48;
  int frames = 30;
  int seed = 1;                          ///< of the drawing
  AVRational tick = {1, 12800};          ///< of timestamps
  std::int64_t length = 512;             ///< of a frame, in ticks
  std::vector<std::int64_t> times = {};  ///< of the frames, in ticks; empty: one every `length`
  std::int64_t hidden = 0;               ///< ticks at the beginning that the container's edit list leaves out
  int group = 12;                        ///< frames from one key frame to the next
  int between = 0;                       ///< B frames
  int quarters = 0;                      ///< turned by so many, clockwise, with the display matrix
  const char* options = "";              ///< of the encoder: name=value:name=value
  const char* layout = "";               ///< of the container's file: options of libavformat, as those
  AVColorSpace colours = AVCOL_SPC_UNSPECIFIED;
  AVColorRange range = AVCOL_RANGE_UNSPECIFIED;
  const char* sound = "";  ///< of libavcodec's encoders; empty: there is none
  int rate = 48000;        ///< of the sound: values a second
  int channels = 2;
  std::int64_t late = 0;  ///< values by which the sound begins after the pictures
};

/// The sound at value `n` of a channel, from -0.5 to 0.5: a sine that rises, and so is another one at any other time.
inline double sound_at(int channel, std::int64_t n, int rate) {
  const double t = static_cast<double>(n) / rate;
  return 0.5 * std::sin(6.283185307179586 * (300 * t + 100 * t * t) + channel);
}

namespace detail {

inline int checked(int code, const char* what) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  if (code < 0) ::av_strerror(code, text, sizeof text);
  if (code < 0) throw std::runtime_error(std::string("encode_video: ") + what + ": " + text);
  return code;
}

/// Draws frame `number`: gradients that move, a bright square, and noise in one corner.
inline void draw(AVFrame& f, const video_form& form, int number) {
  const AVPixFmtDescriptor& d = *::av_pix_fmt_desc_get(form.format);
  for (int c = 0; c < d.nb_components; ++c) {
    const bool chroma = c == 1 || c == 2;
    const int width = chroma ? -(-form.width >> d.log2_chroma_w) : form.width;
    const int height = chroma ? -(-form.height >> d.log2_chroma_h) : form.height;
    const int most = (1 << d.comp[c].depth) - 1;
    unsigned noise = static_cast<unsigned>(form.seed * 977 + number * 31 + c);
    for (int y = 0; y < height; ++y) {
      std::uint8_t* const row = f.data[d.comp[c].plane] + static_cast<std::ptrdiff_t>(y) * f.linesize[d.comp[c].plane];
      for (int x = 0; x < width; ++x) {
        int value = (x * 3 + y * (2 + c) + number * (5 + form.seed % 5) + form.seed * 13) % 220 + 16;
        const int left = (number * 2 + form.seed) % width;
        if (x >= left && x < left + 6 && y > 3 && y < 10) value = chroma ? 200 - c * 60 : 235;
        noise = noise * 1664525u + 1013904223u;
        if (x < width / 4 && y < height / 4) value = static_cast<int>(noise >> 25) + 64;
        value = value * most / 255;
        if (d.comp[c].depth > 8) {
          const auto wide = static_cast<std::uint16_t>(value);
          std::memcpy(row + x * 2, &wide, 2);
        } else {
          row[x] = static_cast<std::uint8_t>(value);
        }
      }
    }
  }
}

struct free_av {
  void operator()(AVCodecContext* c) const { ::avcodec_free_context(&c); }
  void operator()(AVFrame* f) const { ::av_frame_free(&f); }
  void operator()(AVPacket* p) const { ::av_packet_free(&p); }
  void operator()(AVFormatContext* c) const {
    if (c->pb != nullptr) {
      std::uint8_t* all = nullptr;
      ::avio_close_dyn_buf(c->pb, &all);
      ::av_free(all);
    }
    ::avformat_free_context(c);
  }
};

/// Encodes sound_at() into a stream of the container.
class sound_encoder {
 public:
  sound_encoder(const video_form& form, AVFormatContext& muxer) : form_(form), muxer_(muxer) {
    const AVCodec* const codec = ::avcodec_find_encoder_by_name(form.sound);
    if (codec == nullptr) throw std::runtime_error(std::string("encode_video: FFmpeg has no encoder ") + form.sound);
    encoder_.reset(::avcodec_alloc_context3(codec));
    encoder_->sample_fmt = format_of(form.sound);
    encoder_->sample_rate = form.rate;
    encoder_->time_base = {1, form.rate};
    encoder_->bit_rate = 128'000;
    encoder_->thread_count = 1;
    ::av_channel_layout_default(&encoder_->ch_layout, form.channels);
    if ((muxer.oformat->flags & AVFMT_GLOBALHEADER) != 0) encoder_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    checked(::avcodec_open2(encoder_.get(), codec, nullptr), "the encoder of sound");
    stream_ = ::avformat_new_stream(&muxer, nullptr);
    if (stream_ == nullptr) throw std::bad_alloc();
    checked(::avcodec_parameters_from_context(stream_->codecpar, encoder_.get()), "parameters");
    stream_->time_base = {1, form.rate};
    muxer.strict_std_compliance = FF_COMPLIANCE_EXPERIMENTAL;  // some are in MP4
  }

  /// Up to value `end`, which is the last one with `all`.
  void write(std::int64_t end, bool all) {
    const std::int64_t block = encoder_->frame_size > 0 ? encoder_->frame_size : 1024;
    while (at_ < end && (all || at_ + block <= end)) {
      ::av_frame_unref(frame_.get());
      frame_->format = encoder_->sample_fmt;
      frame_->nb_samples = static_cast<int>(std::min(block, end - at_));
      frame_->sample_rate = form_.rate;
      frame_->pts = at_ + form_.late;
      checked(::av_channel_layout_copy(&frame_->ch_layout, &encoder_->ch_layout), "a layout");
      checked(::av_frame_get_buffer(frame_.get(), 0), "a frame");
      for (int c = 0; c < form_.channels; ++c) {
        for (int i = 0; i < frame_->nb_samples; ++i) put(c, i, sound_at(c, at_ + i, form_.rate));
      }
      at_ += frame_->nb_samples;
      send(frame_.get());
    }
    if (all) send(nullptr);
  }

 private:
  static AVSampleFormat format_of(const std::string& codec) {
    if (codec == "pcm_f32le") return AV_SAMPLE_FMT_FLT;
    if (codec == "pcm_s24le") return AV_SAMPLE_FMT_S32;
    if (codec == "alac") return AV_SAMPLE_FMT_S16P;
    const bool whole = codec == "flac" || codec == "libopus" || codec == "mp2" || codec.starts_with("pcm_");
    return whole ? AV_SAMPLE_FMT_S16 : AV_SAMPLE_FMT_FLTP;
  }
  void put(int c, int i, double value) {
    const bool planar = ::av_sample_fmt_is_planar(encoder_->sample_fmt) != 0;
    std::uint8_t* const to = frame_->extended_data[planar ? c : 0];
    const auto at = static_cast<std::size_t>(planar ? i : i * form_.channels + c);
    const auto store = [&](auto v) { std::memcpy(to + at * sizeof v, &v, sizeof v); };
    switch (::av_get_packed_sample_fmt(encoder_->sample_fmt)) {
      case AV_SAMPLE_FMT_S16:
        return store(static_cast<std::int16_t>(std::lround(value * 32768)));
      case AV_SAMPLE_FMT_S32:
        return store(static_cast<std::int32_t>(std::lround(value * 2147483648.0)));
      case AV_SAMPLE_FMT_FLT:
        return store(static_cast<float>(value));
      default:
        throw std::runtime_error("encode_video: values that the encoder of sound does not take");
    }
  }
  void send(const AVFrame* frame) {
    checked(::avcodec_send_frame(encoder_.get(), frame), "a frame of sound");
    for (;;) {
      const int code = ::avcodec_receive_packet(encoder_.get(), packet_.get());
      if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return;
      checked(code, "a packet of sound");
      packet_->stream_index = stream_->index;
      ::av_packet_rescale_ts(packet_.get(), encoder_->time_base, stream_->time_base);
      checked(::av_write_frame(&muxer_, packet_.get()), "writing");
    }
  }

  const video_form& form_;
  AVFormatContext& muxer_;
  std::unique_ptr<AVCodecContext, free_av> encoder_;
  std::unique_ptr<AVFrame, free_av> frame_{::av_frame_alloc()};
  std::unique_ptr<AVPacket, free_av> packet_{::av_packet_alloc()};
  AVStream* stream_ = nullptr;
  std::int64_t at_ = 0;
};

}  // namespace detail

/// True if FFmpeg has that encoder.
inline bool has_encoder(const char* name) { return ::avcodec_find_encoder_by_name(name) != nullptr; }

/// A video that is drawn, as the bytes of a file. `sees` is called with each frame before it is encoded. Throws
/// std::runtime_error.
inline std::string encode_video(const video_form& form, const std::function<void(AVFrame&, int)>& sees = nullptr) {
  using detail::checked;
  ::av_log_set_level(AV_LOG_QUIET);  // encoders tell their settings
  const AVCodec* const codec = ::avcodec_find_encoder_by_name(form.codec);
  if (codec == nullptr) throw std::runtime_error(std::string("encode_video: FFmpeg has no encoder ") + form.codec);
  const std::unique_ptr<AVCodecContext, detail::free_av> encoder(::avcodec_alloc_context3(codec));
  const std::unique_ptr<AVFrame, detail::free_av> frame(::av_frame_alloc());
  const std::unique_ptr<AVPacket, detail::free_av> packet(::av_packet_alloc());
  AVFormatContext* muxer_made = nullptr;
  checked(::avformat_alloc_output_context2(&muxer_made, nullptr, form.container, nullptr), "no such container");
  const std::unique_ptr<AVFormatContext, detail::free_av> muxer(muxer_made);
  checked(::avio_open_dyn_buf(&muxer->pb), "no memory");

  encoder->width = form.width;
  encoder->height = form.height;
  encoder->pix_fmt = form.format;
  encoder->time_base = form.tick;
  encoder->framerate = {static_cast<int>(form.tick.den / form.length), form.tick.num};
  encoder->gop_size = form.group;
  encoder->max_b_frames = form.between;
  encoder->thread_count = 1;
  encoder->colorspace = form.colours;
  encoder->color_range = form.range;
  if ((muxer->oformat->flags & AVFMT_GLOBALHEADER) != 0) encoder->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  AVDictionary* options = nullptr;
  ::av_dict_parse_string(&options, form.options, "=", ":", 0);
  const int opened = ::avcodec_open2(encoder.get(), codec, &options);
  ::av_dict_free(&options);
  checked(opened, "the encoder");

  AVStream* const stream = ::avformat_new_stream(muxer.get(), nullptr);
  if (stream == nullptr) throw std::bad_alloc();
  checked(::avcodec_parameters_from_context(stream->codecpar, encoder.get()), "parameters");
  stream->time_base = form.tick;
  stream->avg_frame_rate = encoder->framerate;
  if (form.quarters != 0) {
    std::int32_t matrix[9];
    ::av_display_rotation_set(matrix, 90.0 * form.quarters);
    for (std::int32_t& m : matrix) m = m > -8 && m < 8 ? 0 : m;  // of rounding
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 100)
    AVPacketSideData* const side =
        ::av_packet_side_data_new(&stream->codecpar->coded_side_data, &stream->codecpar->nb_coded_side_data,
                                  AV_PKT_DATA_DISPLAYMATRIX, sizeof matrix, 0);
    if (side == nullptr) throw std::bad_alloc();
    std::memcpy(side->data, matrix, sizeof matrix);
#else
    std::uint8_t* const side = ::av_stream_new_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, sizeof matrix);
    if (side == nullptr) throw std::bad_alloc();
    std::memcpy(side, matrix, sizeof matrix);
#endif
  }
  std::unique_ptr<detail::sound_encoder> sound;
  if (form.sound[0] != '\0') sound = std::make_unique<detail::sound_encoder>(form, *muxer);
  if (form.hidden != 0) muxer->avoid_negative_ts = 0;
  ::av_dict_parse_string(&options, form.layout, "=", ":", 0);
  const int begun = ::avformat_write_header(muxer.get(), &options);
  ::av_dict_free(&options);
  checked(begun, "the header");

  frame->format = form.format;
  frame->width = form.width;
  frame->height = form.height;
  checked(::av_frame_get_buffer(frame.get(), 0), "a frame");
  const auto write_packets = [&] {
    for (;;) {
      const int code = ::avcodec_receive_packet(encoder.get(), packet.get());
      if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return;
      checked(code, "a packet");
      packet->pts -= form.hidden;
      packet->dts -= form.hidden;
      packet->duration = form.length;
      packet->stream_index = 0;
      ::av_packet_rescale_ts(packet.get(), form.tick, stream->time_base);
      checked(::av_write_frame(muxer.get(), packet.get()), "writing");
    }
  };
  const auto write_sound = [&](std::int64_t ticks, bool all) {
    ticks = std::min(ticks, form.frames * form.length);
    if (sound) sound->write(::av_rescale_q(ticks, form.tick, AVRational{1, form.rate}), all);
  };
  for (int i = 0; i < form.frames; ++i) {
    checked(::av_frame_make_writable(frame.get()), "a frame");
    detail::draw(*frame, form, i);
    frame->pts = form.times.empty() ? i * form.length : form.times[static_cast<std::size_t>(i)];
    write_sound(frame->pts, false);
    frame->color_range = form.range;
    frame->colorspace = form.colours;
    if (sees) sees(*frame, i);
    checked(::avcodec_send_frame(encoder.get(), frame.get()), "a frame");
    write_packets();
  }
  checked(::avcodec_send_frame(encoder.get(), nullptr), "the end");
  write_packets();
  write_sound(INT64_MAX, true);
  checked(::av_write_trailer(muxer.get()), "the trailer");
  std::uint8_t* all = nullptr;
  const int size = ::avio_close_dyn_buf(muxer->pb, &all);
  muxer->pb = nullptr;
  std::string made(reinterpret_cast<const char*>(all), static_cast<std::size_t>(size));
  ::av_free(all);
  return made;
}

}  // namespace examples
