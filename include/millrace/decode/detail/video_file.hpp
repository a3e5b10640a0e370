// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
}

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/decode/video.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

template <auto Free>
class av_free_by_address {
 public:
  template <class T>
  void operator()(T* p) const noexcept {
    Free(&p);
  }
};
using av_packet_handle = std::unique_ptr<AVPacket, av_free_by_address<&::av_packet_free>>;
using av_frame_handle = std::unique_ptr<AVFrame, av_free_by_address<&::av_frame_free>>;
using av_decoder_handle = std::unique_ptr<AVCodecContext, av_free_by_address<&::avcodec_free_context>>;
using av_demuxer_handle = std::unique_ptr<AVFormatContext, av_free_by_address<&::avformat_close_input>>;

class close_av_parser {
 public:
  void operator()(AVCodecParserContext* p) const noexcept { ::av_parser_close(p); }
};
using av_parser_handle = std::unique_ptr<AVCodecParserContext, close_av_parser>;

class free_av_parameters {
 public:
  void operator()(AVCodecParameters* p) const noexcept { ::avcodec_parameters_free(&p); }
};

/// How stored frames become upright ones: transposed first.
class frame_turn {
 public:
  bool transposed = false, mirrored_x = false, mirrored_y = false;
  bool any() const noexcept { return transposed || mirrored_x || mirrored_y; }
};

/// FFmpeg's words for a code.
std::string words_of_av(int code);
/// Sets the level of FFmpeg's log, one for the process, from the default to quiet.
void quiet_av_log() noexcept;

inline constexpr const char* video_codecs = "h264,hevc,vp8,vp9,libdav1d,libaom-av1,av1,mpeg4,ffv1";

/// A decoder of a track, with one thread, if it is in the list `codecs`; `what`, as "MP4 has a video", is for errors,
/// `checks` are AV_EF_ flags.
av_decoder_handle open_av_decoder(const AVCodecParameters& track, AVRational base, const char* codecs,
                                  const std::string& what, std::uint64_t max_pixels, int checks = 0);

/// The bytes of a video as the file that libavformat reads.
class video_bytes {
 public:
  explicit video_bytes(std::string_view all) : all_(all) {
    constexpr int block = 1 << 15;
    auto* const buffer = static_cast<unsigned char*>(::av_malloc(block));
    if (buffer == nullptr) throw std::bad_alloc();
    io_ = ::avio_alloc_context(buffer, block, 0, this, &video_bytes::read, nullptr, &video_bytes::seek);
    if (io_ == nullptr) {
      ::av_free(buffer);
      throw std::bad_alloc();
    }
  }
  video_bytes(const video_bytes&) = delete;
  video_bytes& operator=(const video_bytes&) = delete;
  ~video_bytes() {
    ::av_freep(&io_->buffer);
    ::avio_context_free(&io_);
  }

  AVIOContext* io() const noexcept { return io_; }

 private:
  static int read(void* self, std::uint8_t* to, int most) noexcept {
    auto& b = *static_cast<video_bytes*>(self);
    if (b.at_ >= b.all_.size()) return AVERROR_EOF;
    const std::size_t n = b.all_.copy(reinterpret_cast<char*>(to), static_cast<std::size_t>(most), b.at_);
    b.at_ += n;
    return static_cast<int>(n);
  }
  static std::int64_t seek(void* self, std::int64_t offset, int from) noexcept {
    auto& b = *static_cast<video_bytes*>(self);
    const auto size = static_cast<std::int64_t>(b.all_.size());
    if (from == AVSEEK_SIZE) return size;
    const std::int64_t base = from == SEEK_CUR ? static_cast<std::int64_t>(b.at_) : from == SEEK_END ? size : 0;
    std::int64_t to = 0;
    if (__builtin_add_overflow(base, offset, &to) || to < 0) return AVERROR(EINVAL);
    b.at_ = static_cast<std::size_t>(to);
    return to;
  }

  std::string_view all_;
  std::size_t at_ = 0;
  AVIOContext* io_ = nullptr;
};

/// An MP4, QuickTime or Matroska file in memory, opened by libavformat, which knows its tracks. Data and options must
/// outlive it. Throws decode_error and std::bad_alloc.
class video_container {
 public:
  /// `codecs`: the decoders that may be tried to know the tracks, with commas between them.
  video_container(std::string_view data, const video_options& o, const char* codecs);

  bool is_mp4() const noexcept { return is_mp4_; }
  const char* name() const noexcept { return is_mp4_ ? "MP4" : "Matroska file"; }
  AVFormatContext& demuxer() const noexcept { return *demuxer_; }
  /// Reads the next packet; false at the end. `came`: how many of its track there were before.
  bool read(AVPacket& packet, std::size_t came) const;
  /// After the last one: an error where the track has had fewer packets than its MP4 says, whose bytes are missing.
  void check_packets(const AVStream& stream, std::size_t came) const;
  void refuse_if_large(const AVCodecParameters& track) const;
  [[noreturn]] void fail(const std::string& what, int code) const;

 private:
  void check_boxes() const;
  void check_segment() const;
  void cut_short(const std::string& how) const;
  void open(const char* codecs);

  const std::string_view data_;
  const video_options& options_;
  bool is_mp4_ = false;
  video_bytes source_;
  av_demuxer_handle demuxer_;  // closed before its source
};

/// A video in memory, whose packets have been found. The data must outlive it. One thread at a time. Throws
/// decode_error and std::bad_alloc.
class video_file {
 public:
  video_file(std::string_view data, const video_options& o);

  const char* name() const noexcept { return is_mp4_ ? "MP4" : "Matroska file"; }
  /// How many frames are shown.
  std::size_t frames() const noexcept { return shown_.size(); }
  /// The time at which a frame is shown first, in ticks of which each is tick() seconds, in ascending order.
  std::int64_t ticks(std::size_t frame) const noexcept { return packets_[shown_[frame]].pts; }
  double seconds(std::size_t frame) const noexcept { return in_seconds(ticks(frame)); }
  double tick() const noexcept { return static_cast<double>(base_.num) / base_.den; }
  /// The time at which the last frame ends, in ticks.
  std::int64_t end() const noexcept { return end_; }
  /// The angle of the display matrix by quarters; `odd`: it is another one, and the frames are left as they are.
  frame_turn turn(bool& odd) const noexcept;

  /// Says that decoded() will be called for the frame. Of the others those that none refers to are not decoded.
  void want(std::size_t frame) noexcept {
    const std::size_t at = shown_[frame];
    packets_[at].wanted = true;
    // A packet after it that is not shown may have the frame's second field.
    if (at + 1 < packets_.size() && (packets_[at + 1].flags & AV_PKT_FLAG_DISCARD) != 0) packets_[at + 1].wanted = true;
  }
  /// The decoded frame, a wanted one, valid until the next call. Cheap in ascending order.
  const AVFrame& decoded(std::size_t frame);

 private:
  class packet {
   public:
    std::int64_t pts = 0;
    std::uint64_t place = 0;  // of its first byte in the file; of a held one its index
    int size = 0;
    int flags = 0;
    bool held = false;
    bool wanted = false;
  };

  void open(const video_container& from);
  void find_packets(const video_container& from, const AVStream& stream);
  void take_packet(AVPacket& p);
  bool ends_a_frame(const AVPacket& p);
  void begin(std::size_t key);
  bool next_frame();
  void feed();
  std::size_t key_before(std::size_t at, std::int64_t pts) const noexcept;
  double in_seconds(std::int64_t pts) const noexcept { return static_cast<double>(pts) * base_.num / base_.den; }
  [[noreturn]] void damaged(const packet& p, const std::string& why) const;

  std::string_view data_;
  const video_options& options_;
  bool is_mp4_ = false;
  AVRational base_ = {0, 1};
  std::int32_t matrix_[9] = {};
  bool has_matrix_ = false;
  std::int64_t end_ = 0;
  std::vector<packet> packets_;         // in the order of decoding
  std::vector<std::uint32_t> shown_;    // those with a frame that is shown, in the order of showing
  std::vector<av_packet_handle> held_;  // packets that are not bytes of the file, or more than those
  std::unique_ptr<AVCodecParameters, free_av_parameters> parameters_;
  av_parser_handle parser_;    // of H.264
  av_decoder_handle parsing_;  // its context
  bool half_ = false;          // the last packet was the first field of a frame
  av_decoder_handle decoder_;
  av_packet_handle packet_;
  av_frame_handle frame_;  // the last one that came
  av_frame_handle coming_;
  // Decoding: it began at packet key_, next_ is fed next, last_ is the time of the last frame that came.
  std::size_t key_ = 0;
  std::size_t next_ = 0;
  std::int64_t last_ = 0;
  bool drained_ = false;
};

}  // namespace millrace::inline MILLRACE_ABI::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/detail/video_file.ipp>
#endif
