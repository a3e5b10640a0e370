// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/log.h>
}

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/video_file.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::string words_of_av(int code) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  ::av_strerror(code, text, sizeof text);
  return text;
}

/// A number of `size` bytes, the highest first; 0 beyond the end.
inline std::uint64_t video_number(std::string_view file, std::size_t at, std::size_t size) noexcept {
  if (at > file.size() || size > file.size() - at) return 0;
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < size; ++i) n = n << 8 | static_cast<unsigned char>(file[at + i]);
  return n;
}

/// The boxes of an MP4 that say how much memory libavformat will take for it.
class mp4_boxes {
 public:
  explicit mp4_boxes(std::string_view file) : file_(file) { walk(0, file.size(), 0); }

  std::uint64_t samples = 0;  // packets of all tracks, as often as their edit lists may show them
  bool compressed = false;    // boxes in a box
  std::string cut;            // the first box that goes on after the end

 private:
  static bool holds_boxes(std::string_view type) noexcept {
    for (const std::string_view t : {"moov", "trak", "mdia", "minf", "stbl", "edts", "moof", "traf"}) {
      if (type == t) return true;
    }
    return false;
  }
  void walk(std::size_t at, std::size_t end, int depth) {
    while (end - at >= 8) {
      std::uint64_t size = video_number(file_, at, 4);
      const std::string_view type = file_.substr(at + 4, 4);
      std::size_t head = 8;
      if (size == 1 && end - at >= 16) {
        size = video_number(file_, at + 8, 8);
        head = 16;
      }
      if (size == 0) size = end - at;
      if (size < head) return;
      if (size > end - at) {
        if (depth == 0 && cut.empty() && (type == "mdat" || holds_boxes(type))) {
          cut = "its box " + std::string(type) + " at byte " + std::to_string(at) + " has " + std::to_string(size) +
                " bytes, and the file ends after " + std::to_string(end - at);
        }
        size = end - at;
      }
      const std::size_t next = at + static_cast<std::size_t>(size);
      const bool track = type == "trak";
      if (track) in_track_ = edits_ = 0;
      if (holds_boxes(type) && depth < 8) walk(at + head, next, depth + 1);
      if (type == "stsz" || type == "stz2") in_track_ += video_number(file_, at + head + 8, 4);
      if (type == "elst") edits_ += video_number(file_, at + head + 4, 4);
      if (type == "trun") samples += video_number(file_, at + head + 4, 4);
      if (type == "cmov") compressed = true;
      if (track) samples += in_track_ * std::max<std::uint64_t>(edits_, 1);  // both below 2^32
      at = next;
    }
  }

  std::string_view file_;
  std::uint64_t in_track_ = 0, edits_ = 0;
};

MILLRACE_INLINE void quiet_av_log() noexcept {
  if (::av_log_get_level() == AV_LOG_INFO) ::av_log_set_level(AV_LOG_QUIET);
}

MILLRACE_INLINE video_container::video_container(std::string_view data, const video_options& o, const char* codecs)
    : data_(data), options_(o), source_(data) {
  const video_kind kind = video_kind_of(data);
  if (kind == video_kind::unknown) {
    throw decode_error("not a video: it begins as no MP4, QuickTime or Matroska file does");
  }
  is_mp4_ = kind == video_kind::mp4;
  if (is_mp4_) {
    check_boxes();
  } else {
    check_segment();
  }
  open(codecs);
}

MILLRACE_INLINE void video_container::cut_short(const std::string& how) const {
  if (!options_.tolerate_corruption) throw decode_error("the " + std::string(name()) + " is cut short: " + how);
}

MILLRACE_INLINE void video_container::check_boxes() const {
  const mp4_boxes boxes(data_);
  if (!boxes.cut.empty()) cut_short(boxes.cut);
  if (boxes.samples > options_.max_frames) {
    throw decode_error("the MP4 has " + std::to_string(boxes.samples) + " packets, more than are allowed");
  }
  if (boxes.compressed) throw decode_error("the header of the MP4 is compressed, and not read");
}

MILLRACE_INLINE void video_container::check_segment() const {
  const auto length_at = [this](std::size_t& at) {  // of an element, after its id; all ones: not known
    const auto first = static_cast<unsigned char>(data_[at]);
    const auto more = static_cast<std::size_t>(first == 0 ? 8 : __builtin_clz(first) - 24);
    if (more == 8 || more >= data_.size() - at) return ~std::uint64_t(0);
    const std::uint64_t ones = (std::uint64_t(1) << (7 * (more + 1))) - 1;
    const std::uint64_t n = video_number(data_, at, more + 1) & ones;
    at += more + 1;
    return n == ones ? ~std::uint64_t(0) : n;
  };
  std::size_t at = 4;
  if (at >= data_.size()) return cut_short("it has no segment");
  const std::uint64_t head = length_at(at);
  if (head > data_.size() - at || data_.size() - at - head < 5) return cut_short("it has no segment");
  at += static_cast<std::size_t>(head);
  if (video_number(data_, at, 4) != 0x18538067) return;
  at += 4;
  const std::uint64_t segment = length_at(at);
  if (segment != ~std::uint64_t(0) && segment > data_.size() - at) {
    cut_short("its segment has " + std::to_string(segment) + " bytes, and the file ends after " +
              std::to_string(data_.size() - at));
  }
}

MILLRACE_INLINE void video_container::fail(const std::string& what, int code) const {
  throw decode_error(what + " the " + name() + ": " + words_of_av(code));
}

MILLRACE_INLINE void video_file::damaged(const packet& p, const std::string& why) const {
  char time[48];
  std::snprintf(time, sizeof time, "%.6f", in_seconds(p.pts));
  const std::string place = p.held ? std::string() : " at byte " + std::to_string(p.place);
  throw decode_error("the " + std::string(name()) + " is damaged" + place + ", in the frame of " + time + " s: " + why);
}

/// libavformat's options: no other file is opened, no other codec is tried.
class av_options {
 public:
  av_options() = default;
  av_options(const av_options&) = delete;
  av_options& operator=(const av_options&) = delete;
  ~av_options() { ::av_dict_free(&all); }
  void set(const char* name, const std::string& value) {
    if (::av_dict_set(&all, name, value.c_str(), 0) < 0) throw std::bad_alloc();
  }
  AVDictionary* all = nullptr;
};

MILLRACE_INLINE void video_container::refuse_if_large(const AVCodecParameters& track) const {
  if (track.width > 0 && track.height > 0 &&
      static_cast<std::uint64_t>(track.width) > options_.max_pixels / static_cast<std::uint64_t>(track.height)) {
    throw decode_error("the " + std::string(name()) + " has frames of " + std::to_string(track.width) + " x " +
                       std::to_string(track.height) + " pixels, more than are allowed");
  }
}

MILLRACE_INLINE void video_container::open(const char* codecs) {
  {
    av_options how;
    how.set("codec_whitelist", codecs);
    const auto* const format = ::av_find_input_format(is_mp4_ ? "mov" : "matroska");
    if (format == nullptr) throw decode_error("FFmpeg is built without what reads the " + std::string(name()));
    AVFormatContext* made = ::avformat_alloc_context();
    if (made == nullptr) throw std::bad_alloc();
    made->pb = source_.io();
    made->io_open = [](AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) { return AVERROR(EPERM); };
    // It frees the context where it fails.
    const int code = ::avformat_open_input(&made, "", format, &how.all);
    if (code < 0) fail("cannot read the header of", code);
    demuxer_.reset(made);
  }
  for (unsigned i = 0; i < demuxer_->nb_streams; ++i) refuse_if_large(*demuxer_->streams[i]->codecpar);
  av_options bounds;
  bounds.set("max_pixels", std::to_string(std::min<std::uint64_t>(options_.max_pixels, INT32_MAX)));
  // Each stream's own, freed here: what was used is taken out of them.
  std::vector<AVDictionary*> each(demuxer_->nb_streams, nullptr);
  int code = 0;
  for (AVDictionary*& d : each) {
    if (code >= 0) code = ::av_dict_copy(&d, bounds.all, 0);
  }
  if (code >= 0) code = ::avformat_find_stream_info(demuxer_.get(), each.data());
  for (AVDictionary*& d : each) ::av_dict_free(&d);
  if (code < 0) fail("cannot find the tracks of", code);
}

MILLRACE_INLINE bool video_container::read(AVPacket& packet, std::size_t came) const {
  const int code = ::av_read_frame(demuxer_.get(), &packet);
  if (code < 0 && code != AVERROR_EOF && !options_.tolerate_corruption) {
    fail("cannot read the packet after number " + std::to_string(came) + " of", code);
  }
  return code >= 0;
}

MILLRACE_INLINE void video_container::check_packets(const AVStream& stream, std::size_t came) const {
  // An MP4 has an entry for each packet, also where the bytes of the last ones are missing.
  const int said = is_mp4_ ? ::avformat_index_get_entries_count(&stream) : 0;
  if (said > 0 && static_cast<std::size_t>(said) > came) {
    cut_short("it says that it has " + std::to_string(said) + " packets, and has " + std::to_string(came));
  }
}

MILLRACE_INLINE av_decoder_handle open_av_decoder(const AVCodecParameters& track, AVRational base, const char* codecs,
                                                  const std::string& what, std::uint64_t max_pixels, int checks) {
  const AVCodec* const codec = ::avcodec_find_decoder(track.codec_id);
  const std::string list = "," + std::string(codecs) + ",";
  if (codec == nullptr || list.find("," + std::string(codec->name) + ",") == std::string::npos) {
    throw decode_error("the " + what + " of the codec " + ::avcodec_get_name(track.codec_id) +
                       ", which is not decoded");
  }
  av_decoder_handle made(::avcodec_alloc_context3(codec));
  if (made == nullptr) throw std::bad_alloc();
  int code = ::avcodec_parameters_to_context(made.get(), &track);
  made->pkt_timebase = base;
  made->thread_count = 1;
  made->max_pixels = static_cast<std::int64_t>(std::min<std::uint64_t>(max_pixels, INT32_MAX));
  made->err_recognition = checks;
  if (code >= 0) code = ::avcodec_open2(made.get(), codec, nullptr);
  if (code < 0) throw decode_error("cannot set up the decoder: the " + what + ": " + words_of_av(code));
  return made;
}

MILLRACE_INLINE video_file::video_file(std::string_view data, const video_options& o) : data_(data), options_(o) {
  const video_container from(data, o, video_codecs);
  is_mp4_ = from.is_mp4();
  open(from);
}

MILLRACE_INLINE void video_file::open(const video_container& from) {
  AVFormatContext* const demuxer = &from.demuxer();
  const int found = ::av_find_best_stream(demuxer, AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
  if (found < 0) throw decode_error("the " + std::string(name()) + " has no video");
  for (unsigned i = 0; i < demuxer->nb_streams; ++i) {
    if (i != static_cast<unsigned>(found)) demuxer->streams[i]->discard = AVDISCARD_ALL;
  }
  const AVStream& stream = *demuxer->streams[found];
  from.refuse_if_large(*stream.codecpar);
  base_ = stream.time_base;
  if (base_.num <= 0 || base_.den <= 0) {
    throw decode_error("the " + std::string(name()) + " says no unit of its timestamps");
  }
  parameters_.reset(::avcodec_parameters_alloc());
  packet_.reset(::av_packet_alloc());
  frame_.reset(::av_frame_alloc());
  coming_.reset(::av_frame_alloc());
  if (!parameters_ || !packet_ || !frame_ || !coming_) throw std::bad_alloc();
  if (const int code = ::avcodec_parameters_copy(parameters_.get(), stream.codecpar); code < 0) {
    from.fail("cannot keep the header of", code);
  }
  const void* matrix = nullptr;
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 100)
  const AVPacketSideData* const side = ::av_packet_side_data_get(
      stream.codecpar->coded_side_data, stream.codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
  if (side != nullptr && side->size >= sizeof matrix_) matrix = side->data;
#else
  std::size_t size = 0;
  matrix = ::av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, &size);
  if (size < sizeof matrix_) matrix = nullptr;
#endif
  has_matrix_ = matrix != nullptr;
  if (has_matrix_) std::memcpy(matrix_, matrix, sizeof matrix_);
  find_packets(from, stream);
}

MILLRACE_INLINE void video_file::find_packets(const video_container& from, const AVStream& stream) {
  std::int64_t last_length = 0;
  std::int64_t last_pts = INT64_MIN;
  while (from.read(*packet_, packets_.size())) {
    if (packet_->stream_index == stream.index) {
      if (packets_.size() >= options_.max_frames) {
        throw decode_error("the " + std::string(name()) + " has more frames than are allowed");
      }
      if (packet_->pts == AV_NOPTS_VALUE) {
        throw decode_error("the " + std::string(name()) + " has frames without a timestamp");
      }
      constexpr std::int64_t most_ticks = std::int64_t(1) << 60;  // sums of them are numbers, too
      if (packet_->pts < -most_ticks || packet_->pts > most_ticks || packet_->duration > most_ticks) {
        throw decode_error("the " + std::string(name()) + " has a timestamp that is no time");
      }
      const bool second = ends_a_frame(*packet_);
      if (second) {
        if (packet_->pts > last_pts) last_length = 2 * (packet_->pts - last_pts);
        packet_->flags |= AV_PKT_FLAG_DISCARD;
      } else if (packet_->pts > last_pts && (packet_->flags & AV_PKT_FLAG_DISCARD) == 0) {
        last_pts = packet_->pts;
        last_length = packet_->duration;
      }
      take_packet(*packet_);
    }
    ::av_packet_unref(packet_.get());
  }
  from.check_packets(stream, packets_.size());
  for (std::size_t i = 0; i < packets_.size(); ++i) {
    if ((packets_[i].flags & AV_PKT_FLAG_DISCARD) == 0) shown_.push_back(static_cast<std::uint32_t>(i));
  }
  if (shown_.empty()) throw decode_error("the " + std::string(name()) + " has no frame that is shown");
  std::stable_sort(shown_.begin(), shown_.end(),
                   [this](std::uint32_t a, std::uint32_t b) { return packets_[a].pts < packets_[b].pts; });
  if (last_length <= 0 && shown_.size() > 1) {
    last_length = (last_pts - ticks(0)) / static_cast<std::int64_t>(shown_.size() - 1);
  }
  end_ = last_pts + std::max<std::int64_t>(last_length, 1);
}

/// True for the second field of an interlaced H.264 whose fields are packets of their own: the frame, and its time, are
/// the first field's. FFmpeg's parser says `field_order` of a field only if it has the frame number of the one before.
MILLRACE_INLINE bool video_file::ends_a_frame(const AVPacket& p) {
  if (parameters_->codec_id != AV_CODEC_ID_H264) return false;
  if (parser_ == nullptr) {
    parser_.reset(::av_parser_init(AV_CODEC_ID_H264));
    parsing_.reset(::avcodec_alloc_context3(nullptr));
    if (parser_ == nullptr || parsing_ == nullptr) throw std::bad_alloc();
    parser_->flags |= PARSER_FLAG_COMPLETE_FRAMES;
    if (::avcodec_parameters_to_context(parsing_.get(), parameters_.get()) < 0) throw std::bad_alloc();
  }
  std::uint8_t* out = nullptr;
  int size = 0;
  ::av_parser_parse2(parser_.get(), parsing_.get(), &out, &size, p.data, p.size, p.pts, p.dts, p.pos);
  const bool field = parser_->picture_structure == AV_PICTURE_STRUCTURE_TOP_FIELD ||
                     parser_->picture_structure == AV_PICTURE_STRUCTURE_BOTTOM_FIELD;
  const bool second = half_ && field && (parser_->field_order == AV_FIELD_TT || parser_->field_order == AV_FIELD_BB);
  half_ = field && !second;
  return second;
}

/// Notes where the packet is in the file; keeps it if that is not all of it.
MILLRACE_INLINE void video_file::take_packet(AVPacket& p) {
  packet made;
  made.pts = p.pts;
  made.size = p.size;
  made.flags = p.flags & (AV_PKT_FLAG_KEY | AV_PKT_FLAG_DISCARD | AV_PKT_FLAG_CORRUPT);
  // A VP8's frame that others only refer to is a packet, and is not shown.
  if (parameters_->codec_id == AV_CODEC_ID_VP8 && p.size > 0 && (p.data[0] & 0x10) == 0) {
    made.flags |= AV_PKT_FLAG_DISCARD;
  }
  bool is_slice = false;
  constexpr std::size_t most_head = 64;  // of a block of Matroska
  if (p.pos >= 0 && p.side_data_elems == 0 && p.size > 0) {
    const auto size = static_cast<std::size_t>(p.size);
    const auto at = static_cast<std::size_t>(p.pos);
    for (std::size_t i = at; i <= at + most_head && i < data_.size() && data_.size() - i >= size && !is_slice; ++i) {
      is_slice = std::memcmp(data_.data() + i, p.data, size) == 0;
      made.place = i;
    }
  }
  if (!is_slice) {
    made.held = true;
    made.place = held_.size();
    held_.emplace_back(::av_packet_clone(&p));
    if (held_.back() == nullptr) throw std::bad_alloc();
  }
  packets_.push_back(made);
}

MILLRACE_INLINE frame_turn video_file::turn(bool& odd) const noexcept {
  frame_turn t;
  odd = false;
  if (!has_matrix_) return t;
  const auto a = matrix_[0], b = matrix_[1], c = matrix_[3], d = matrix_[4];
  if (b == 0 && c == 0 && a != 0 && d != 0) {
    t.mirrored_x = a < 0;
    t.mirrored_y = d < 0;
  } else if (a == 0 && d == 0 && b != 0 && c != 0) {
    t.transposed = true;
    t.mirrored_x = c < 0;
    t.mirrored_y = b < 0;
  } else {
    odd = true;
  }
  return t;
}

/// The last key frame that a frame can be decoded from: those after an open group's one, in the order of decoding, but
/// shown before it, need the group before.
MILLRACE_INLINE std::size_t video_file::key_before(std::size_t at, std::int64_t pts) const noexcept {
  for (std::size_t i = at + 1; i-- > 0;) {
    if ((packets_[i].flags & AV_PKT_FLAG_KEY) != 0 && packets_[i].pts <= pts) return i;
  }
  return 0;
}

MILLRACE_INLINE void video_file::begin(std::size_t key) {
  if (decoder_ == nullptr) {
    decoder_ =
        open_av_decoder(*parameters_, base_, video_codecs, std::string(name()) + " has a video", options_.max_pixels);
  } else {
    ::avcodec_flush_buffers(decoder_.get());
  }
  key_ = next_ = key;
  last_ = INT64_MIN;
  drained_ = false;
}

MILLRACE_INLINE void video_file::feed() {
  if (next_ == packets_.size()) {
    drained_ = true;
    static_cast<void>(::avcodec_send_packet(decoder_.get(), nullptr));
    return;
  }
  const packet& p = packets_[next_++];
  ::av_packet_unref(packet_.get());
  int code = 0;
  if (p.held) {
    code = ::av_packet_ref(packet_.get(), held_[static_cast<std::size_t>(p.place)].get());
  } else if ((code = ::av_new_packet(packet_.get(), p.size)) >= 0) {
    std::memcpy(packet_->data, data_.data() + p.place, static_cast<std::size_t>(p.size));
  }
  if (code < 0) throw std::bad_alloc();
  packet_->pts = p.pts;
  packet_->flags = p.flags;
  decoder_->skip_frame = p.wanted ? AVDISCARD_DEFAULT : AVDISCARD_NONREF;
  code = ::avcodec_send_packet(decoder_.get(), packet_.get());
  // Frames that are shown before the key frame may lack those that they refer to: they are not taken.
  const bool counts = !options_.tolerate_corruption && p.pts >= packets_[key_].pts;
  if (counts && code < 0) damaged(p, words_of_av(code));
  if (counts && (p.flags & AV_PKT_FLAG_CORRUPT) != 0) damaged(p, "not all of it is there");
}

/// The next frame that comes out of the decoder; false at the end.
MILLRACE_INLINE bool video_file::next_frame() {
  constexpr int most_errors = 1000;  // one after the other, of a decoder that would never end
  for (int errors = 0;;) {
    const int code = ::avcodec_receive_frame(decoder_.get(), coming_.get());
    if (code == AVERROR(EAGAIN) && !drained_) {
      feed();
      continue;
    }
    if (code == AVERROR_EOF || (code == AVERROR(EAGAIN) && drained_)) return false;
    const packet& fed = packets_[next_ == 0 ? 0 : next_ - 1];
    if (code < 0) {
      if (!options_.tolerate_corruption && fed.pts >= packets_[key_].pts) damaged(fed, words_of_av(code));
      if (drained_ || ++errors == most_errors) return false;
      continue;
    }
    frame_.swap(coming_);
    last_ = frame_->best_effort_timestamp;
    const bool broken = frame_->decode_error_flags != 0 || (frame_->flags & AV_FRAME_FLAG_CORRUPT) != 0;
    if (broken && !options_.tolerate_corruption && last_ >= packets_[key_].pts) {
      const auto at = std::lower_bound(shown_.begin(), shown_.end(), last_,
                                       [this](std::uint32_t i, std::int64_t t) { return packets_[i].pts < t; });
      damaged(at == shown_.end() ? fed : packets_[*at], words_of_av(AVERROR_INVALIDDATA));
    }
    return true;
  }
}

MILLRACE_INLINE const AVFrame& video_file::decoded(std::size_t frame) {
  const packet& wanted = packets_[shown_[frame]];
  std::size_t key = key_before(shown_[frame], wanted.pts);
  if (decoder_ == nullptr || drained_ || last_ >= wanted.pts || key > next_) begin(key);
  for (;;) {
    while (next_frame()) {
      if (last_ >= wanted.pts) break;
    }
    if (last_ == wanted.pts) return *frame_;
    // Where the frame did not come, the key frame was none: of a video that is refreshed bit by bit, for example.
    if (key_ != 0) {
      key = key_before(key_ - 1, wanted.pts);
      begin(key);
      continue;
    }
    if (options_.tolerate_corruption && frame_->width > 0) return *frame_;
    damaged(wanted, "no frame came of it");
  }
}

}  // namespace millrace::inline MILLRACE_ABI::detail
