// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/formats/detail/matroska_file.hpp>
#include <millrace/formats/detail/mp4_file.hpp>
#include <millrace/formats/detail/video_clips.hpp>
#include <millrace/formats/video_shards.hpp>
#include <millrace/index/sample_index_builder.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// Goes from box to box of an MP4 file, and reads `moov` and each `moof`.
class mp4_parser final : public video_parser {
 public:
  /// `head`: the first bytes of the object.
  mp4_parser(const std::string& object, bool sound, std::optional<std::uint64_t> size, std::string_view head)
      : object_(object), size_(size), file_(object, sound) {
    if (head.size() >= 8) require_mp4(head);
  }
  void look(std::string_view window, std::uint64_t at) override {
    while (!done() && wanted_ - at <= window.size() && take(window.substr(static_cast<std::size_t>(wanted_ - at)))) {
    }
  }
  bool done() const noexcept override { return file_.has_movie() && !file_.fragmented(); }
  const mp4_file& finish(std::uint64_t size) {
    if (wanted_ < size && !done()) {
      throw archive_error(
          "the object ends in the middle of a box: " + std::to_string(size - wanted_) + " bytes of it are there",
          where{object_, wanted_, {}});
    }
    if (!file_.has_movie()) {
      throw archive_error("there is no moov: this is no MP4 file, or one that was cut before its end",
                          where{object_, size, {}});
    }
    file_.finish(size);
    return file_;
  }

 private:
  void require_mp4(std::string_view head) const {
    for (const char* type : {"ftyp", "moov", "mdat", "free", "skip", "wide", "pnot", "styp", "sidx", "moof", "uuid"}) {
      if (head.substr(4, 4) == type) return;
    }
    throw archive_error(
        "this is no MP4 file: its first box is none that such a file begins with, and it is no Matroska file",
        where{object_, 4, {}});
  }
  /// Takes the box that begins at wanted_ and at the front of `rest`. False if more bytes must come before.
  bool take(std::string_view rest) {
    wanted_bytes_ = 16;
    if (rest.size() < 8) return false;
    std::uint64_t size = read_be(rest, 0, 4);
    const std::string_view type = rest.substr(4, 4);
    std::size_t head = 8;
    if (size == 1) {
      if (rest.size() < 16) return false;
      size = read_be(rest, 8, 8);
      head = 16;
    } else if (size == 0) {
      size = size_ ? *size_ - wanted_ : UINT64_MAX - wanted_;
    }
    if (size < head || size > UINT64_MAX - wanted_ || (size_ && size > *size_ - wanted_)) {
      const bool media = type == "mdat";
      throw archive_error("the box " + std::string(type) + " says " + std::to_string(size) + " bytes, and the object " +
                              (size_ ? "has " + std::to_string(*size_) : "is shorter") + (media ? ": it is cut" : ""),
                          where{object_, wanted_, {}});
    }
    const bool read = type == "moov" || type == "moof" || type == "ftyp";
    if (read && size > mp4_file::longest_box) {
      throw decode_error(
          "the box " + std::string(type) + " has " + std::to_string(size) + " bytes: at most 128 MiB are read",
          where{object_, wanted_, {}});
    }
    wanted_bytes_ = size;
    if (read && rest.size() < size) return false;
    if (type == "moov") file_.movie(rest.substr(0, static_cast<std::size_t>(size)), wanted_);
    if (type == "moof") {
      if (!file_.has_movie()) throw archive_error("a moof comes before the moov", where{object_, wanted_, {}});
      file_.fragment(rest.substr(0, static_cast<std::size_t>(size)), wanted_);
    }
    if (type == "ftyp" && size >= head + 4) file_.file_type(rest.substr(head, 4));
    wanted_ += size;
    wanted_bytes_ = 16;
    return true;
  }

  const std::string object_;
  const std::optional<std::uint64_t> size_;
  mp4_file file_;
};

/// Reads what the parser of the object's container asks for, and makes the index of it.
class video_scanner final : public shard_scanner {
 public:
  video_scanner(const shard_format& format, std::string name, const shard& object, const video_shards_options& options)
      : object_(object.shown()), size_(object.size), options_(options), builder_(format, std::move(name)) {}

  void begin(std::string_view head, std::optional<std::uint64_t> total, std::size_t part) override {
    if (total) size_ = total;
    by_ranges_ = total.has_value();
    part_ = std::max(part, hop_bytes);
    if (matroska_file::is_one(head)) {
      parser_ = &matroska_.emplace(object_, options_.audio, size_);
    } else {
      parser_ = &mp4_.emplace(object_, options_.audio, size_, head);
    }
  }
  void add(const bytes& piece) override {
    std::string_view its = piece.view();
    if (parser_->wanted() > came_) {  // the rest of what is not read
      its.remove_prefix(static_cast<std::size_t>(std::min<std::uint64_t>(parser_->wanted() - came_, its.size())));
    }
    came_ += piece.size();
    if (window_.empty()) window_at_ = came_ - its.size();
    if (parser_->done() || its.empty()) return;
    window_ += its;
    parser_->look(window_, window_at_);
    const std::uint64_t wanted = parser_->wanted();
    if (wanted < window_at_ && !by_ranges_ && !parser_->done()) {
      throw decode_error("its Cues come after its clusters, and the store serves no ranges of the object",
                         where{object_, wanted, {}});
    }
    const bool inside = wanted >= window_at_ && wanted - window_at_ < window_.size();
    window_.erase(0, inside ? static_cast<std::size_t>(wanted - window_at_) : std::string::npos);
    window_at_ = wanted;
  }
  std::size_t hop() const noexcept override {
    if (!by_ranges_) return 0;
    const std::uint64_t missing =
        parser_->wanted_bytes() - std::min<std::uint64_t>(parser_->wanted_bytes(), window_.size());
    return static_cast<std::size_t>(std::clamp<std::uint64_t>(missing, hop_bytes, part_));
  }
  std::uint64_t next(std::uint64_t at) override { return by_ranges_ ? came_ = parser_->wanted() + window_.size() : at; }
  bool done() const noexcept override { return parser_->done(); }
  shard_index finish(std::uint64_t size, std::string etag) override {
    const where end{object_, size, {}};
    std::vector<video_clips::place> places;
    if (matroska_) {
      matroska_->finish(size);
      builder_.describe(video_clips::write(*matroska_, options_, end, places));
    } else {
      builder_.describe(video_clips::write(mp4_->finish(size), options_, end, places));
    }
    std::uint64_t text = 0;
    std::uint64_t group = 0;
    for (const video_clips::place& p : places) {
      // Clips may share groups of pictures, and the index's numbers grow and end below the size.
      group = std::max(group + 1, std::min(p.begin, size - places.size() + clips_++));
      builder_.begin_group(group);
      builder_.add(text, p.bytes);
      text += p.bytes;
    }
    return clips_ == 0 ? builder_.finish(size, std::move(etag), false)
                       : builder_.finish(size, std::move(etag), false, size);
  }
  std::string warning(bool once) const override {
    return once || clips_ != 0 ? std::string() : "it has no clip: it is shorter than one (video_shards: .partial)";
  }

 private:
  static constexpr std::size_t hop_bytes = 16 * KiB;

  const std::string object_;
  std::optional<std::uint64_t> size_;
  const video_shards_options options_;
  sample_index_builder builder_;
  std::optional<mp4_parser> mp4_;
  std::optional<matroska_file> matroska_;
  video_parser* parser_ = nullptr;  // one of both
  bool by_ranges_ = false;
  std::size_t part_ = 0;
  std::string window_;           // what has come of what is wanted
  std::uint64_t window_at_ = 0;  // where it begins
  std::uint64_t came_ = 0;       // where the next bytes will be from
  std::size_t clips_ = 0;
};

/// A clip, with its fields.
class video_clip final : public sample_group {
 public:
  video_clip(bytes file, bytes times) noexcept : file_(std::move(file)), times_(std::move(times)) {}
  void fill(sample& s, std::size_t /*number*/) const override {
    s.fields.emplace_back("video", file_);
    s.fields.emplace_back("begin", times_.slice(0, 8));
    s.fields.emplace_back("end", times_.slice(8, 8));
  }

 private:
  const bytes file_;
  const bytes times_;
};

/// Reads the clips of one file.
class video_reader final : public shard_reader {
 public:
  explicit video_reader(const shard_index& index) : clips_(index) {}
  std::vector<object_range> ranges(const shard_index& /*index*/, std::size_t g) const override {
    return clips_.ranges(g);
  }
  unpacked_group unpack(const shard& object, std::size_t g, const std::vector<bytes>& parts) const override {
    const double times[2] = {clips_.begin(g), clips_.end(g)};
    char text[sizeof times];
    std::memcpy(text, times, sizeof times);
    return unpacked_group(std::make_shared<const video_clip>(clips_.file(g, parts, object.shown()),
                                                             bytes::copy(std::string_view(text, sizeof text))));
  }

 private:
  const video_clips clips_;
};

/// See video_shards().
class video_format final : public shard_format {
 public:
  explicit video_format(const video_shards_options& options) : options_(options) {}
  std::string_view name() const noexcept override { return "video"; }
  std::string settings() const override {
    char text[160];
    if (options_.frames != 0) {
      std::snprintf(text, sizeof text, "%u frames every %u", options_.frames,
                    options_.frame_stride != 0 ? options_.frame_stride : options_.frames);
    } else {
      std::snprintf(text, sizeof text, "%.17g s every %.17g s", options_.seconds,
                    options_.stride != 0 ? options_.stride : options_.seconds);
    }
    return std::string(text) + (options_.partial ? ", partial" : "") + (options_.audio ? ", audio" : "");
  }
  std::vector<shard> choose(std::vector<shard> listed) const override {
    const auto other = [](const shard& s) {
      const std::string name = s.shown();
      const std::string ending = text::to_lower(std::string_view(name).substr(name.rfind('.') + 1));
      return ending != "mp4" && ending != "m4v" && ending != "mov" && ending != "mkv" && ending != "webm";
    };
    if (!std::all_of(listed.begin(), listed.end(), other)) std::erase_if(listed, other);
    return listed;
  }
  std::unique_ptr<shard_scanner> scanner(std::string its_name, const shard& object,
                                         std::shared_ptr<const void> /*metadata*/) const override {
    return std::make_unique<video_scanner>(*this, std::move(its_name), object, options_);
  }
  std::size_t head_bytes() const noexcept override { return 64 * KiB; }
  std::shared_ptr<const shard_reader> reader(const shard_index& index) const override {
    return std::make_shared<const video_reader>(index);
  }
  std::vector<shard_field> fields(const shard_index& /*index*/) const override {
    return {shard_field("video", "file"), shard_field("begin", "f64"), shard_field("end", "f64")};
  }

 private:
  const video_shards_options options_;
};

}  // namespace detail

MILLRACE_INLINE std::shared_ptr<const shard_format> video_shards(video_shards_options options) {
  const auto length = [](double seconds) { return std::isfinite(seconds) && seconds > 0 && seconds < 1e9; };
  if (!length(options.seconds) || (options.stride != 0 && !length(options.stride))) {
    throw configuration_error("video_shards: .seconds and .stride are positive");
  }
  return std::make_shared<const detail::video_format>(options);
}

}  // namespace millrace::inline MILLRACE_ABI
