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
  void want(std::size_t frame) noexcept { packets_[shown_[frame]].wanted = true; }
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

  void check_boxes() const;
  void check_segment() const;
  void cut_short(const std::string& how) const;
  void open();
  void find_packets(AVFormatContext& demuxer, const AVStream& stream);
  void take_packet(AVPacket& p);
  void begin(std::size_t key);
  bool next_frame();
  void feed();
  std::size_t key_before(std::size_t at, std::int64_t pts) const noexcept;
  double in_seconds(std::int64_t pts) const noexcept { return static_cast<double>(pts) * base_.num / base_.den; }
  [[noreturn]] void fail(const std::string& what, int code) const;
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
