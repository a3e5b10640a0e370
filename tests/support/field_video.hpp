// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "examples/common/encode_video.hpp"

namespace millrace::test {

/// A video of H.264's field pictures (ITU-T H.264, 7.4.3, field_pic_flag), which libx264 does not make: 16 x 32 pixels,
/// 25 frames a second, of one macroblock of plain values (I_PCM) a field. No frame may refer to every second one.
class field_video {
 public:
  /// A file with one packet a field, or a frame.
  static std::string made(const char* container, int frames, bool packet_per_field) {
    using examples::detail::checked;
    ::av_log_set_level(AV_LOG_QUIET);
    AVFormatContext* muxer_made = nullptr;
    checked(::avformat_alloc_output_context2(&muxer_made, nullptr, container, nullptr), "no such container");
    const std::unique_ptr<AVFormatContext, examples::detail::free_av> muxer(muxer_made);
    checked(::avio_open_dyn_buf(&muxer->pb), "no memory");
    AVStream* const stream = ::avformat_new_stream(muxer.get(), nullptr);
    const std::string header = configuration();
    AVCodecParameters& about = *stream->codecpar;
    about.codec_type = AVMEDIA_TYPE_VIDEO;
    about.codec_id = AV_CODEC_ID_H264;
    about.width = 16;
    about.height = 32;
    about.extradata = static_cast<std::uint8_t*>(::av_mallocz(header.size() + AV_INPUT_BUFFER_PADDING_SIZE));
    about.extradata_size = static_cast<int>(header.size());
    std::memcpy(about.extradata, header.data(), header.size());
    const AVRational field{1, 50};
    stream->time_base = field;
    stream->avg_frame_rate = {25, 1};
    checked(::avformat_write_header(muxer.get(), nullptr), "the header");
    const std::unique_ptr<AVPacket, examples::detail::free_av> packet(::av_packet_alloc());
    const auto write = [&](const std::string& data, int at, int length) {
      checked(::av_new_packet(packet.get(), static_cast<int>(data.size())), "a packet");
      std::memcpy(packet->data, data.data(), data.size());
      packet->pts = packet->dts = at;
      packet->duration = length;
      packet->flags = at == 0 ? AV_PKT_FLAG_KEY : 0;
      ::av_packet_rescale_ts(packet.get(), field, stream->time_base);
      checked(::av_write_frame(muxer.get(), packet.get()), "writing");
      ::av_packet_unref(packet.get());
    };
    for (int i = 0; i < frames; ++i) {
      const std::string top = picture(i, false);
      const std::string bottom = picture(i, true);
      write(packet_per_field ? top : top + bottom, 2 * i, packet_per_field ? 1 : 2);
      if (packet_per_field) write(bottom, 2 * i + 1, 1);
    }
    checked(::av_write_trailer(muxer.get()), "the trailer");
    std::uint8_t* all = nullptr;
    const int size = ::avio_close_dyn_buf(muxer->pb, &all);
    muxer->pb = nullptr;
    std::string file(reinterpret_cast<const char*>(all), static_cast<std::size_t>(size));
    ::av_free(all);
    return file;
  }

 private:
  /// Bits of a NAL unit, and its codes of Exp-Golomb (9.1).
  class bits {
   public:
    void put(unsigned value, int count) {
      while (count-- > 0) add((value >> count & 1) != 0);
    }
    void ue(unsigned value) {
      int more = 0;
      while ((value + 1) >> (more + 1) != 0) ++more;
      put(0, more);
      put(value + 1, more + 1);
    }
    void align() {
      while (count_ % 8 != 0) add(false);
    }
    /// The unit, with its last bit and without what would look like a start code (7.4.1).
    std::string unit(char head) {
      add(true);
      align();
      std::string out(1, head);
      int zeros = 0;
      for (const char c : text_) {
        if (zeros == 2 && static_cast<unsigned char>(c) <= 3) {
          out += '\3';
          zeros = 0;
        }
        out += c;
        zeros = c == 0 ? zeros + 1 : 0;
      }
      return out;
    }

   private:
    void add(bool bit) {
      if (count_ % 8 == 0) text_ += '\0';
      if (bit) text_.back() = static_cast<char>(static_cast<unsigned char>(text_.back()) | 0x80U >> count_ % 8);
      ++count_;
    }
    std::string text_;
    std::size_t count_ = 0;
  };

  static std::string with_size(const std::string& unit, int bytes) {
    std::string out;
    for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(unit.size() >> 8 * i & 0xff);
    return out + unit;
  }

  /// `avcC`: the two parameter sets (7.3.2.1.1, 7.3.2.2).
  static std::string configuration() {
    bits s;
    s.put(77, 8);  // Main
    s.put(0, 8);
    s.put(30, 8);
    s.ue(0);
    s.ue(0);  // frame numbers of 4 bits
    s.ue(2);  // frames are shown as they are decoded
    s.ue(1);  // one reference
    s.put(0, 1);
    s.ue(0);      // 16 pixels wide
    s.ue(0);      // two macroblocks high
    s.put(0, 1);  // frame_mbs_only_flag
    s.put(0, 1);
    s.put(1, 1);  // direct_8x8_inference_flag
    s.put(0, 2);
    const std::string sequence = s.unit(0x67);
    bits p;
    p.ue(0);
    p.ue(0);
    p.put(0, 2);
    p.ue(0);
    p.ue(0);
    p.ue(0);
    p.put(0, 3);
    p.ue(0);
    p.ue(0);
    p.ue(0);
    p.put(1, 1);  // deblocking is said in slices
    p.put(0, 2);
    return std::string("\1\x4d\0\x1e\xff\xe1", 6) + with_size(sequence, 2) + "\1" + with_size(p.unit(0x68), 2);
  }

  /// A field: an I slice (7.3.3) of one macroblock (7.3.5).
  static std::string picture(int frame, bool bottom) {
    const bool idr = frame == 0 && !bottom;
    const bool reference = frame % 2 == 0;
    bits b;
    b.ue(0);
    b.ue(7);
    b.ue(0);
    b.put(static_cast<unsigned>(frame + 1) / 2 % 16, 4);
    b.put(1, 1);  // field_pic_flag
    b.put(bottom ? 1 : 0, 1);
    if (idr) b.ue(0);
    if (reference) b.put(0, idr ? 2 : 1);  // references as they come
    b.ue(0);
    b.ue(1);   // no deblocking
    b.ue(25);  // I_PCM
    b.align();
    for (unsigned i = 0; i < 256; ++i) b.put(static_cast<unsigned>(20 + frame * 5 + (bottom ? 2 : 0)) + i / 16, 8);
    for (unsigned i = 0; i < 128; ++i) b.put(128, 8);
    return with_size(b.unit(idr ? 0x65 : reference ? 0x61 : 0x01), 4);
  }
};

}  // namespace millrace::test
