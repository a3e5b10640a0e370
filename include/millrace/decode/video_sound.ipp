// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/samplefmt.h>
}

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/video_file.hpp>
#include <millrace/decode/video_sound.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

inline constexpr const char* sound_codecs =
    "aac,mp3float,mp3,ac3,eac3,flac,opus,libopus,vorbis,libvorbis,alac,pcm_u8,pcm_s8,pcm_s16le,pcm_s16be,pcm_s24le,"
    "pcm_s24be,pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be,pcm_f64le,pcm_f64be,pcm_alaw,pcm_mulaw";

/// Stores values [first, first + count) of a decoded frame, of each channel, as f32 in the way of libswresample.
template <class T, class Convert>
void interleave(const AVFrame& f, std::size_t first, std::size_t count, float* to, Convert convert) noexcept {
  const bool planar = ::av_sample_fmt_is_planar(static_cast<AVSampleFormat>(f.format)) != 0;
  const auto channels = static_cast<std::size_t>(f.ch_layout.nb_channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const std::size_t step = planar ? 1 : channels;
    const T* const from = reinterpret_cast<const T*>(f.extended_data[planar ? c : 0]) + (planar ? 0 : c);
    for (std::size_t i = 0; i < count; ++i) to[i * channels + c] = convert(from[(first + i) * step]);
  }
}

/// The sound track of a video in memory, which is read once.
class sound_track {
 public:
  sound_track(std::string_view data, const video_sound_options& o, const std::optional<video_span>& part)
      : limits_(limits_of(o)),
        part_(part),
        most_values_(std::min<std::uint64_t>(o.max_values, (std::uint64_t(1) << 30) - 16)),  // of a WAV
        // The video's codecs are for the tracks' beginnings.
        from_(data, limits_, (std::string(video_codecs) + "," + sound_codecs).c_str()) {
    AVFormatContext& demuxer = from_.demuxer();
    int found = -1;
    bool enabled = false;
    for (unsigned i = 0; i < demuxer.nb_streams; ++i) {
      const AVStream& s = *demuxer.streams[i];
      const bool on = (s.disposition & AV_DISPOSITION_DEFAULT) != 0;
      const bool sound = s.codecpar->codec_type == AVMEDIA_TYPE_AUDIO;
      if (sound && (found < 0 || (on && !enabled))) {
        found = static_cast<int>(i);
        enabled = on;
      }
      if (s.codecpar->codec_type == AVMEDIA_TYPE_VIDEO && !origin_ && s.start_time != AV_NOPTS_VALUE) {
        origin_ = static_cast<double>(s.start_time) * ::av_q2d(s.time_base);
      }
    }
    if (found < 0) throw decode_error("the " + std::string(from_.name()) + " has no sound");
    for (unsigned i = 0; i < demuxer.nb_streams; ++i) {
      if (i != static_cast<unsigned>(found)) demuxer.streams[i]->discard = AVDISCARD_ALL;
    }
    if (part_) {
      if (!(part_->begin < part_->end)) nothing();  // also where one is no number
      origin_ = part_->begin;
    }
    track_ = demuxer.streams[found];
    tick_ = ::av_q2d(track_->time_base);
    packet_.reset(::av_packet_alloc());
    frame_.reset(::av_frame_alloc());
    if (packet_ == nullptr || frame_ == nullptr) throw std::bad_alloc();
    decoder_ =
        open_av_decoder(*track_->codecpar, track_->time_base, sound_codecs, std::string(from_.name()) + " has sound",
                        limits_.max_pixels, o.tolerate_corruption ? 0 : AV_EF_CRCCHECK | AV_EF_EXPLODE);
  }

  /// Decodes it. Then rate(), channels() and values() are known.
  void read() {
    std::size_t came = 0;
    while (!done_ && from_.read(*packet_, came)) {
      if (packet_->stream_index == track_->index) {
        ++came;
        constexpr double lead = 0.5;  // seconds that a decoder has to begin with
        const double end = (static_cast<double>(packet_->pts) + static_cast<double>(packet_->duration)) * tick_;
        const bool early = part_ && packet_->pts != AV_NOPTS_VALUE && end < part_->begin - lead;
        if (!early) decode(packet_.get());
      }
      ::av_packet_unref(packet_.get());
    }
    if (!done_) {
      from_.check_packets(*track_, came);
      decode(nullptr);
    }
    if (values_.empty()) nothing();
  }
  int rate() const noexcept { return rate_; }
  std::size_t channels() const noexcept { return channels_; }
  const std::vector<float>& values() const noexcept { return values_; }

 private:
  static video_options limits_of(const video_sound_options& o) {
    video_options limits;
    limits.tolerate_corruption = o.tolerate_corruption;
    limits.max_frames = o.max_packets;
    return limits;
  }
  [[noreturn]] void nothing() const {
    throw decode_error("the " + std::string(from_.name()) + " has no sound" +
                       (part_ ? " from " + std::to_string(part_->begin) + " to " + std::to_string(part_->end) + " s"
                              : std::string(": its track is empty")));
  }

  /// Null: that was all.
  void decode(const AVPacket* p) {
    if (p != nullptr) {
      place_ = p->pos;
      if (p->pts != AV_NOPTS_VALUE) seconds_ = static_cast<double>(p->pts) * tick_;
      if ((p->flags & AV_PKT_FLAG_CORRUPT) != 0) damaged("not all of it is there");
    }
    int code = ::avcodec_send_packet(decoder_.get(), p);
    for (;;) {
      if (code == AVERROR(ENOMEM)) throw std::bad_alloc();  // no damage, which may be tolerated
      if (code < 0) return damaged(words_of_av(code));
      code = ::avcodec_receive_frame(decoder_.get(), frame_.get());
      if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return;
      if (code < 0) continue;
      if (frame_->decode_error_flags != 0) damaged(words_of_av(AVERROR_INVALIDDATA));
      take(*frame_);
    }
  }

  /// Packets before the part only prepare the decoder.
  void damaged(const std::string& why) const {
    if (limits_.tolerate_corruption || (part_ && seconds_ < part_->begin)) return;
    char time[48];
    std::snprintf(time, sizeof time, "%.6f", seconds_);
    const std::string place = place_ < 0 ? std::string() : " at byte " + std::to_string(place_);
    throw decode_error("the " + std::string(from_.name()) + " is damaged" + place + ", in the sound of " + time +
                       " s: " + why);
  }

  /// Puts a decoded frame where its timestamp says.
  void take(const AVFrame& f) {
    const bool first = rate_ == 0;
    if (first) {
      rate_ = f.sample_rate;
      channels_ = static_cast<std::size_t>(std::max(f.ch_layout.nb_channels, 0));
      constexpr int highest_rate = 1'000'000;
      if (rate_ < 1 || rate_ > highest_rate || channels_ < 1 || channels_ > 1024) {
        throw decode_error("the " + std::string(from_.name()) + " has sound of " + std::to_string(channels_) +
                           " channels of " + std::to_string(f.sample_rate) + " values a second");
      }
      if (part_) end_ = std::llround(std::min((part_->end - part_->begin) * rate_, 1e15));
    } else if (rate_ != f.sample_rate || static_cast<int>(channels_) != f.ch_layout.nb_channels) {
      throw decode_error("the " + std::string(from_.name()) + " has sound of " + std::to_string(channels_) +
                         " channels of " + std::to_string(rate_) + " values a second, and then of " +
                         std::to_string(f.ch_layout.nb_channels) + " of " + std::to_string(f.sample_rate));
    }
    if (f.best_effort_timestamp != AV_NOPTS_VALUE) {
      const double time = static_cast<double>(f.best_effort_timestamp) * tick_;
      if (!origin_) origin_ = time;
      const double said = (time - *origin_) * rate_;
      // If ticks are longer than values, the first value may be a tick beside the beginning.
      const double slack = !first ? rate_ / 50.0 : tick_ * rate_ < 2 ? 0 : tick_ * rate_ + 1;
      if (!(std::abs(said) < 1e15)) return damaged("its timestamp is no time");
      if (std::abs(said - static_cast<double>(next_)) > slack) next_ = std::llround(said);
    }
    const std::int64_t begin = std::max<std::int64_t>(next_, 0);
    const std::int64_t end = std::min(next_ + f.nb_samples, end_);
    const std::int64_t skipped = begin - next_;
    done_ = next_ >= end_;
    next_ += f.nb_samples;
    if (begin >= end) return;
    if (static_cast<std::uint64_t>(end) > most_values_ / channels_) {
      throw decode_error("the " + std::string(from_.name()) + " has more sound than is allowed: " +
                         std::to_string(end) + " values of " + std::to_string(channels_) + " channels");
    }
    const auto at = static_cast<std::size_t>(begin) * channels_;
    values_.resize(std::max(values_.size(), static_cast<std::size_t>(end) * channels_));
    store(f, static_cast<std::size_t>(skipped), static_cast<std::size_t>(end - begin), values_.data() + at);
  }

  void store(const AVFrame& f, std::size_t first, std::size_t count, float* to) const {
    switch (::av_get_packed_sample_fmt(static_cast<AVSampleFormat>(f.format))) {
      case AV_SAMPLE_FMT_U8:
        return interleave<std::uint8_t>(f, first, count, to, [](int v) { return static_cast<float>(v - 128) / 128; });
      case AV_SAMPLE_FMT_S16:
        return interleave<std::int16_t>(f, first, count, to, [](int v) { return static_cast<float>(v) / 32768; });
      case AV_SAMPLE_FMT_S32:
        return interleave<std::int32_t>(f, first, count, to,
                                        [](std::int32_t v) { return static_cast<float>(v) / 2147483648.0F; });
      case AV_SAMPLE_FMT_FLT:
        return interleave<float>(f, first, count, to, [](float v) { return v; });
      case AV_SAMPLE_FMT_DBL:
        return interleave<double>(f, first, count, to, [](double v) { return static_cast<float>(v); });
      default:
        throw decode_error("the " + std::string(from_.name()) + " has sound of values that are not read");
    }
  }

  const video_options limits_;
  const std::optional<video_span> part_;
  const std::uint64_t most_values_;
  const video_container from_;
  const AVStream* track_ = nullptr;
  double tick_ = 0;               // seconds
  std::optional<double> origin_;  // when the first value is heard, in seconds
  av_packet_handle packet_;
  av_frame_handle frame_;
  av_decoder_handle decoder_;
  std::int64_t place_ = -1;  // of the last packet
  double seconds_ = 0;       // and its time
  int rate_ = 0;
  std::size_t channels_ = 0;
  std::int64_t next_ = 0;         // where the next frame goes
  std::int64_t end_ = INT64_MAX;  // of the part
  bool done_ = false;
  std::vector<float> values_;
};

}  // namespace detail

MILLRACE_INLINE bytes video_sound(const bytes& file, const video_sound_options& options, const where& at,
                                  std::optional<video_span> part) {
  try {
    detail::quiet_av_log();
    detail::sound_track track(file.view(), options, part);
    track.read();
    constexpr std::size_t head = 44;
    const std::size_t size = track.values().size() * sizeof(float);
    writable_bytes out = writable_bytes::allocate(head + size);
    char* to = out.data();
    const auto name = [&to](std::string_view text) { to += text.copy(to, text.size()); };
    const auto number = [&to](std::size_t value, int width) {  // little-endian
      for (; width > 0; --width, value >>= 8) *to++ = static_cast<char>(static_cast<unsigned char>(value));
    };
    const auto rate = static_cast<std::size_t>(track.rate());
    name("RIFF");
    number(head - 8 + size, 4);
    name("WAVEfmt ");
    number(16, 4);
    number(3, 2);  // IEEE float
    number(track.channels(), 2);
    number(rate, 4);
    number(rate * track.channels() * sizeof(float), 4);
    number(track.channels() * sizeof(float), 2);
    number(32, 2);
    name("data");
    number(size, 4);
    std::memcpy(to, track.values().data(), size);
    return out.share(0, head + size);
  } catch (error& e) {
    e.add_place(at);
    throw;
  }
}

MILLRACE_INLINE bytes video_sound(const sample& s, const video_sound_options& options) {
  return video_sound(s.fields[detail::video_field_of(s, options.field, "video_sound_options")].data, options,
                     s.from.at(s.key), detail::video_part_of(s, options.begin, options.end));
}

MILLRACE_INLINE sample video_sound_reader::operator()(sample s) const {
  field& video = s.fields[detail::video_field_of(s, options_.field, "video_sound_options")];
  video = field("sound.wav", video_sound(s, options_));
  return s;
}

}  // namespace millrace::inline MILLRACE_ABI
