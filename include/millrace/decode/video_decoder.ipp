// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

extern "C" {
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
}

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/decode/detail/video_file.hpp>
#include <millrace/decode/image_decoder.hpp>
#include <millrace/decode/video_decoder.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// A frame of a clip: the frame of the video that is there.
class clip_frame {
 public:
  std::size_t frame = 0;
  std::size_t clip = 0;
  std::size_t place = 0;  // in its clip
};

/// The frame that is shown at that time. Timestamps are rounded to ticks, so that one holds from half a tick before.
inline std::size_t frame_at(const video_file& file, double ticks) noexcept {
  std::size_t from = 0;
  std::size_t count = file.frames();
  while (count > 0) {  // the first that is shown later
    const std::size_t half = count / 2;
    if (static_cast<double>(file.ticks(from + half)) <= ticks + 0.5) {
      from += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return from == 0 ? 0 : from - 1;
}

/// The frames that clips are taken of: [first, past), shown from `begin` to `end`, in ticks.
class counted_frames {
 public:
  counted_frames(const video_file& file, const std::optional<video_span>& part)
      : past(file.frames()),
        begin(static_cast<double>(file.ticks(0))),
        end(static_cast<double>(file.end())) {
    if (!part) return;
    begin = std::max(begin, part->begin / file.tick());
    end = std::min(end, part->end / file.tick());
    if (!(part->begin < part->end) || end - begin < 0.5) {  // also where one is no number
      throw decode_error("the " + std::string(file.name()) + " shows nothing from " + std::to_string(part->begin) +
                         " to " + std::to_string(part->end) + " s");
    }
    first = frame_at(file, begin);
    past = std::max(first, frame_at(file, end - 1)) + 1;
  }

  std::size_t first = 0;
  std::size_t past;
  double begin, end;
};

[[noreturn]] inline void too_short(const video_file& file, const counted_frames& of, const video_options& o) {
  const double seconds = (of.end - of.begin) * file.tick();
  const std::string all = o.clips == 1 ? "a clip" : std::to_string(o.clips) + " clips";
  throw decode_error("the " + std::string(file.name()) + " has " + std::to_string(of.past - of.first) + " frames in " +
                     std::to_string(seconds) + " s, too few for " + all + " (.fill repeats the last one)");
}

/// Chooses the frames of all clips, and says how many of each are the video's own.
inline std::vector<clip_frame> choose_frames(const video_file& file, const counted_frames& of, const video_options& o,
                                             sample_rng& numbers, std::vector<decoded_clip>& made) {
  const auto clips = static_cast<std::size_t>(o.clips);
  const auto frames = static_cast<std::size_t>(o.frames);
  const bool timed = o.rate > 0;
  // Beginnings and lengths are in frames or, at a rate, in ticks, from where those that count begin.
  const double step = timed ? 1 / (o.rate * file.tick()) : o.stride;
  const double whole = timed ? of.end - of.begin : static_cast<double>(of.past - of.first);
  const double room = whole - static_cast<double>(frames - 1) * step;  // for beginnings, whose end is excluded
  std::vector<double> begins(clips);
  for (std::size_t i = 0; i < clips; ++i) {
    double& begin = begins[i];
    const auto n = static_cast<double>(i);
    if (o.start == clip_start::first) {
      begin = n * static_cast<double>(frames) * step;
    } else if (room > 0) {
      const double even = (2 * n + 1) / (2 * static_cast<double>(clips));
      begin = room * (o.start == clip_start::random ? numbers.uniform() : even);
      if (!timed) begin = std::min(std::floor(begin), room - 1);
    }
  }
  std::sort(begins.begin(), begins.end());

  std::vector<clip_frame> all;
  all.reserve(clips * frames);
  const double beyond = timed ? whole - 0.5 : whole;
  for (std::size_t i = 0; i < clips; ++i) {
    for (std::size_t k = 0; k < frames; ++k) {
      const double at = begins[i] + static_cast<double>(k) * step;
      clip_frame f;
      f.clip = i;
      f.place = k;
      if (at >= beyond) {
        if (!o.fill) too_short(file, of, o);
        f.frame = of.past - 1;
      } else {
        f.frame = timed ? frame_at(file, of.begin + at) : of.first + static_cast<std::size_t>(at);
        f.frame = std::min(f.frame, of.past - 1);
        ++made[i].length;
      }
      all.push_back(f);
    }
  }
  return all;
}

/// The options of frames, as those of images.
inline image_options image_options_of(const video_options& o) {
  image_options i;
  i.height = o.height;
  i.width = o.width;
  i.crop = o.crop;
  i.flip = o.flip;
  i.filter = o.filter;
  i.layout = o.layout;
  i.type = o.type;
  i.mean = o.mean;
  i.std = o.std;
  return i;
}

class free_sws_context {
 public:
  void operator()(SwsContext* c) const noexcept { ::sws_freeContext(c); }
};

}  // namespace detail

struct video_decoder::workspace {
  /// The frames that a converter is for.
  class conversion {
   public:
    int width = 0, height = 0, format = 0, colours = 0, range = 0;
    friend bool operator==(const conversion&, const conversion&) noexcept = default;
  };

  std::unique_ptr<SwsContext, detail::free_sws_context> converter;
  conversion prepared;
  std::vector<std::uint8_t> colours;      // of a frame, three bytes a pixel
  std::vector<std::uint8_t> turned;       // the same, four bytes a pixel
  std::vector<std::uint8_t> line;         // a row of it
  std::vector<detail::resizer> resizers;  // one for each clip, as each has a geometry of its own
  std::uint8_t* first = nullptr;          // of the colours
  std::size_t pitch = 0;                  // bytes from one of their rows to the next
  int width = 0, height = 0;              // of the frame, upright
  bool is_turned = false;
  std::unique_ptr<workspace> next;

  /// Chooses how libswscale makes colours of frames, as FFmpeg's program does.
  void prepare(const conversion& c) {
    const auto format = static_cast<AVPixelFormat>(c.format);
    converter.reset(::sws_getContext(c.width, c.height, format, c.width, c.height, AV_PIX_FMT_RGB24, SWS_BICUBIC,
                                     nullptr, nullptr, nullptr));
    if (converter == nullptr) {
      const char* const name = ::av_get_pix_fmt_name(format);
      throw decode_error("frames of " + std::string(name == nullptr ? "an unknown format" : name) + " and " +
                         std::to_string(c.width) + " x " + std::to_string(c.height) +
                         " pixels are not converted by libswscale");
    }
    prepared = c;
    int *inverse = nullptr, *table = nullptr;
    int full = 0, out_full = 0, brightness = 0, contrast = 0, saturation = 0;
    if (::sws_getColorspaceDetails(converter.get(), &inverse, &full, &table, &out_full, &brightness, &contrast,
                                   &saturation) < 0) {
      return;  // of a format that is RGB
    }
    if (c.range != AVCOL_RANGE_UNSPECIFIED) full = c.range == AVCOL_RANGE_JPEG;
    static_cast<void>(::sws_setColorspaceDetails(converter.get(), ::sws_getCoefficients(c.colours), full, table,
                                                 out_full, brightness, contrast, saturation));
  }

  /// Converts a frame to colours, and turns it upright: resize() reads it.
  void convert(const AVFrame& f, const detail::frame_turn& turn) {
    const conversion wanted{f.width, f.height, f.format, f.colorspace, f.color_range};
    if (converter == nullptr || !(wanted == prepared)) prepare(wanted);
    constexpr std::size_t vector_bytes = 64;  // it may write as many beyond a row's end
    const auto columns = static_cast<std::size_t>(f.width);
    const auto rows = static_cast<std::size_t>(f.height);
    pitch = (columns * 3 / vector_bytes + 2) * vector_bytes;
    colours.resize(pitch * rows + vector_bytes);
    const std::size_t beside = reinterpret_cast<std::uintptr_t>(colours.data()) % vector_bytes;
    first = colours.data() + (beside == 0 ? 0 : vector_bytes - beside);
    std::uint8_t* const planes[4] = {first, nullptr, nullptr, nullptr};
    const int pitches[4] = {static_cast<int>(pitch), 0, 0, 0};
    if (::sws_scale(converter.get(), f.data, f.linesize, 0, f.height, planes, pitches) < 0) {
      throw decode_error("libswscale cannot convert a frame");
    }
    width = turn.transposed ? f.height : f.width;
    height = turn.transposed ? f.width : f.height;
    is_turned = turn.any();
    if (!is_turned) return;
    const auto out_columns = static_cast<std::size_t>(width);
    const auto out_rows = static_cast<std::size_t>(height);
    turned.resize(out_columns * out_rows * 4);
    for (std::size_t y = 0; y < out_rows; ++y) {
      const std::size_t v = turn.mirrored_y ? out_rows - 1 - y : y;
      std::uint8_t* out = turned.data() + y * out_columns * 4;
      for (std::size_t x = 0; x < out_columns; ++x, out += 4) {
        const std::size_t u = turn.mirrored_x ? out_columns - 1 - x : x;
        std::memcpy(out, first + (turn.transposed ? u * pitch + v * 3 : v * pitch + u * 3), 4);
      }
    }
  }

  /// A row of the frame from `left` on, four bytes a pixel.
  const std::uint8_t* row(int y, int left, int right) {
    const auto from = static_cast<std::size_t>(left);
    if (is_turned) return turned.data() + (static_cast<std::size_t>(y) * static_cast<std::size_t>(width) + from) * 4;
    const auto count = static_cast<std::size_t>(right - left);
    line.resize(count * 4);
    const std::uint8_t* const in = first + static_cast<std::size_t>(y) * pitch + from * 3;
    for (std::size_t x = 0; x < count; ++x) std::memcpy(line.data() + x * 4, in + x * 3, 4);
    return line.data();
  }

  /// Resizes a frame into its place in the tensor.
  void resize(detail::resizer& r, const image_geometry& g, const video_options& o, const detail::pixel_writer& writer,
              void* tensor) {
    // The part that is read: with pixels beside it, as far as the widest filter reaches, where they count.
    const auto reach = [&o](double size, int out) {
      return o.crop.reaches_out() ? static_cast<int>(std::ceil(3 * std::max(1.0, size / out))) : 0;
    };
    const image_box& box = g.taken;
    const int beside_x = reach(box.width(), o.width);
    const int beside_y = reach(box.height(), o.height);
    const int left = std::max(0, static_cast<int>(std::floor(box.left)) - beside_x);
    const int right = std::min(g.width, static_cast<int>(std::ceil(box.right)) + beside_x);
    const int top = std::max(0, static_cast<int>(std::floor(box.top)) - beside_y);
    const int bottom = std::min(g.height, static_cast<int>(std::ceil(box.bottom)) + beside_y);
    detail::resize_geometry geometry;
    geometry.columns = right - left;
    geometry.rows = bottom - top;
    geometry.box = image_box(box.left - left, box.top - top, box.right - left, box.bottom - top);
    geometry.width = o.width;
    geometry.height = o.height;
    geometry.filter = o.filter;
    r.begin(geometry);
    for (int y = top; y < bottom; ++y) r.put_row(row(y, left, right));
    const auto out_width = static_cast<std::size_t>(o.width);
    const auto out_height = static_cast<std::size_t>(o.height);
    for (std::size_t y = 0; y < out_height; ++y) {
      const std::uint8_t* const channels[3] = {r.row(0, y), r.row(1, y), r.row(2, y)};
      writer.write(tensor, out_width, out_height, y, channels, g.flipped);
    }
  }

  /// Frees memory that a video of unusual size needed.
  void shrink() noexcept {
    constexpr std::size_t kept = std::size_t(64) << 20;
    if (colours.capacity() > kept) std::vector<std::uint8_t>().swap(colours);
    if (turned.capacity() > kept) std::vector<std::uint8_t>().swap(turned);
    if (resizers.size() > 16) std::vector<detail::resizer>().swap(resizers);
  }
};

struct video_decoder::shared {
  explicit shared(const video_options& o) : writer(detail::image_options_of(o)) {}

  detail::pixel_writer writer;
  std::mutex mutex;
  std::unique_ptr<workspace> idle;
};

MILLRACE_INLINE video_decoder::video_decoder(const video_options& options)
    : options_(options), shared_(std::make_shared<shared>(options)) {
  constexpr int most = 65535;
  if (options.height < 1 || options.width < 1 || options.height > most || options.width > most) {
    throw configuration_error("a video's .height and .width are numbers from 1 to 65535");
  }
  if (options.frames < 1 || options.frames > most) {
    throw configuration_error("a video's .frames, of a clip, are a number from 1 to 65535");
  }
  if (options.clips < 1 || options.clips > most) {
    throw configuration_error("a video's .clips are a number from 1 to 65535");
  }
  if (options.stride < 1) throw configuration_error("a video's .stride is a number from 1 on");
  if (!(options.rate >= 0 && options.rate <= 1e6)) {
    throw configuration_error("a video's .rate is a number from 0 to 1000000");
  }
  if (options.rate > 0 && options.stride != 1) {
    throw configuration_error("a video's frames are taken by .rate or by .stride");
  }
  if (!(options.flip >= 0 && options.flip <= 1)) throw configuration_error("a video's .flip is a probability");
  detail::quiet_av_log();
  if (options.max_pixels < 1 || options.max_frames < 1) {
    throw configuration_error("a video's .max_pixels and .max_frames are numbers from 1 on");
  }
}

MILLRACE_INLINE shape video_decoder::dims() const {
  const video_options& o = options_;
  const bool chw = o.layout == image_layout::chw;
  shape dims;
  if (o.clips != 1) dims.push_back(o.clips);
  dims.push_back(o.frames);
  if (chw) dims.push_back(3);
  dims.push_back(o.height);
  dims.push_back(o.width);
  if (!chw) dims.push_back(3);
  return dims;
}

MILLRACE_INLINE std::vector<decoded_clip> video_decoder::into(const tensor_view& place, const bytes& file,
                                                              sample_rng& numbers, const where& at,
                                                              std::optional<video_span> part) const {
  if (place.type() != options_.type || place.dims() != dims()) {
    throw configuration_error("clips become " + std::string(name_of(options_.type)) + " " + dims().text() +
                              ", and the place for them is " + name_of(place.type()) + " " + place.dims().text());
  }
  std::unique_ptr<workspace> w = take();
  std::vector<decoded_clip> made;
  try {
    made = decode(*w, place.data(), file, numbers, at, part);
  } catch (error& e) {
    e.add_place(at);
    give_back(std::move(w));
    throw;
  }
  give_back(std::move(w));
  return made;
}

MILLRACE_INLINE std::vector<decoded_clip> video_decoder::decode(workspace& w, void* tensor, const bytes& file,
                                                                sample_rng& numbers, const where& at,
                                                                const std::optional<video_span>& part) const {
  const video_options& o = options_;
  std::vector<decoded_clip> made(static_cast<std::size_t>(o.clips));
  detail::video_file video(file.view(), o);
  std::vector<detail::clip_frame> frames =
      detail::choose_frames(video, detail::counted_frames(video, part), o, numbers, made);
  for (const detail::clip_frame& f : frames) {
    video.want(f.frame);
    made[f.clip].times.push_back(video.seconds(f.frame));
  }
  std::stable_sort(frames.begin(), frames.end(),
                   [](const detail::clip_frame& a, const detail::clip_frame& b) { return a.frame < b.frame; });

  detail::frame_turn turn;
  if (o.upright) {
    bool odd = false;
    turn = video.turn(odd);
    if (odd) {
      detail::say_first("turned video", "a video is turned, and by no quarters of a circle: it is left as it is", at);
    }
  }
  const std::size_t size = static_cast<std::size_t>(o.height) * static_cast<std::size_t>(o.width) * 3 * size_of(o.type);
  const auto place_of = [&](const detail::clip_frame& f) {
    return static_cast<std::uint8_t*>(tensor) + (f.clip * static_cast<std::size_t>(o.frames) + f.place) * size;
  };
  if (w.resizers.size() < made.size()) w.resizers.resize(made.size());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const detail::clip_frame& f = frames[i];
    if (i == 0 || frames[i - 1].frame != f.frame) {
      w.convert(video.decoded(f.frame), turn);
      for (decoded_clip& c : made) {
        image_geometry& g = c.geometry;
        if (i == 0) {
          g.width = w.width;
          g.height = w.height;
          g.out_width = o.width;
          g.out_height = o.height;
          g.taken = o.crop.box(w.width, w.height, o.width, o.height, numbers);
          g.flipped = o.flip > 0 && numbers.uniform() < o.flip;
        } else if (g.width != w.width || g.height != w.height) {
          throw decode_error("the " + std::string(video.name()) + " has frames of " + std::to_string(g.width) + " x " +
                             std::to_string(g.height) + " and of " + std::to_string(w.width) + " x " +
                             std::to_string(w.height) + " pixels");
        }
      }
    } else if (frames[i - 1].clip == f.clip) {
      std::memcpy(place_of(f), place_of(frames[i - 1]), size);
      continue;
    }
    w.resize(w.resizers[f.clip], made[f.clip].geometry, o, shared_->writer, place_of(f));
  }
  return made;
}

MILLRACE_INLINE std::unique_ptr<video_decoder::workspace> video_decoder::take() const {
  {
    std::lock_guard lock(shared_->mutex);
    if (shared_->idle) {
      std::unique_ptr<workspace> w = std::move(shared_->idle);
      shared_->idle = std::move(w->next);
      return w;
    }
  }
  return std::make_unique<workspace>();
}

MILLRACE_INLINE void video_decoder::give_back(std::unique_ptr<workspace> w) const noexcept {
  w->shrink();
  std::lock_guard lock(shared_->mutex);
  w->next = std::move(shared_->idle);
  shared_->idle = std::move(w);
}

}  // namespace millrace::inline MILLRACE_ABI
