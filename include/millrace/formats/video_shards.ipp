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
#include <millrace/formats/detail/mp4_clips.hpp>
#include <millrace/formats/detail/mp4_file.hpp>
#include <millrace/formats/video_shards.hpp>
#include <millrace/index/sample_index_builder.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// Goes from box to box of an MP4 file, and reads `moov` and each `moof`.
class mp4_scanner final : public shard_scanner {
 public:
  mp4_scanner(const shard_format& format, std::string name, const shard& object, const video_shards_options& options)
      : object_(object.shown()),
        size_(object.size),
        options_(options),
        builder_(format, std::move(name)),
        file_(object_, options.audio) {}

  void begin(std::string_view head, std::optional<std::uint64_t> total, std::size_t part) override {
    if (head.size() >= 8) require_mp4(head);
    if (total) size_ = total;
    by_ranges_ = total.has_value();
    part_ = std::max(part, hop_bytes);
  }
  void add(const bytes& piece) override {
    std::string_view its = piece.view();
    if (came_ < box_at_) {  // the rest of a box that is not read
      its.remove_prefix(static_cast<std::size_t>(std::min<std::uint64_t>(box_at_ - came_, its.size())));
    }
    came_ += piece.size();
    if (done()) return;
    box_ += its;
    std::size_t used = 0;
    while (take(std::string_view(box_).substr(used), used)) {
    }
    box_.erase(0, used);
  }
  std::size_t hop() const noexcept override {
    return by_ranges_ ? static_cast<std::size_t>(std::clamp<std::uint64_t>(wanted_, hop_bytes, part_)) : 0;
  }
  std::uint64_t next(std::uint64_t at) override { return by_ranges_ ? came_ = std::max(at, box_at_) : at; }
  bool done() const noexcept override { return file_.has_movie() && !file_.fragmented(); }
  shard_index finish(std::uint64_t size, std::string etag) override {
    if (!box_.empty() && !done()) {
      throw archive_error(
          "the object ends in the middle of a box: " + std::to_string(box_.size()) + " bytes of it are there",
          where{object_, box_at_, {}});
    }
    if (!file_.has_movie()) {
      throw archive_error("there is no moov: this is no MP4 file, or one that was cut before its end",
                          where{object_, size, {}});
    }
    file_.finish(size);
    std::vector<mp4_clips::place> places;
    builder_.describe(mp4_clips::write(file_, options_, where{object_, size, {}}, places));
    std::uint64_t text = 0;
    std::uint64_t group = 0;
    for (const mp4_clips::place& p : places) {
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

  void require_mp4(std::string_view head) const {
    for (const char* type : {"ftyp", "moov", "mdat", "free", "skip", "wide", "pnot", "styp", "sidx", "moof", "uuid"}) {
      if (head.substr(4, 4) == type) return;
    }
    throw archive_error("this is no MP4 file: its first box is none that such a file begins with",
                        where{object_, 4, {}});
  }
  /// Takes a box from the front of `rest`. False if more bytes must come before.
  bool take(std::string_view rest, std::size_t& used) {
    wanted_ = 16;
    if (rest.size() < 8) return false;
    std::uint64_t size = read_be(rest, 0, 4);
    const std::string_view type = rest.substr(4, 4);
    std::size_t head = 8;
    if (size == 1) {
      if (rest.size() < 16) return false;
      size = read_be(rest, 8, 8);
      head = 16;
    } else if (size == 0) {
      size = size_ ? *size_ - box_at_ : UINT64_MAX - box_at_;
    }
    if (size < head || size > UINT64_MAX - box_at_ || (size_ && size > *size_ - box_at_)) {
      const bool media = type == "mdat";
      throw archive_error("the box " + std::string(type) + " says " + std::to_string(size) + " bytes, and the object " +
                              (size_ ? "has " + std::to_string(*size_) : "is shorter") + (media ? ": it is cut" : ""),
                          where{object_, box_at_, {}});
    }
    const bool read = type == "moov" || type == "moof" || type == "ftyp";
    if (read && size > mp4_file::longest_box) {
      throw decode_error("the box " + std::string(type) + " has " + std::to_string(size) +
                             " bytes: at most 128 MiB are "
                             "read",
                         where{object_, box_at_, {}});
    }
    if (read && rest.size() < size) {
      wanted_ = size - rest.size();
      return false;
    }
    if (type == "moov") file_.movie(rest.substr(0, static_cast<std::size_t>(size)), box_at_);
    if (type == "moof") {
      if (!file_.has_movie()) throw archive_error("a moof comes before the moov", where{object_, box_at_, {}});
      file_.fragment(rest.substr(0, static_cast<std::size_t>(size)), box_at_);
    }
    if (type == "ftyp" && size >= head + 4) file_.file_type(rest.substr(head, 4));
    box_at_ += size;
    used += static_cast<std::size_t>(std::min<std::uint64_t>(size, rest.size()));
    if (size > rest.size() || done()) {
      used = box_.size();
      return false;
    }
    return true;
  }

  const std::string object_;
  std::optional<std::uint64_t> size_;
  const video_shards_options options_;
  sample_index_builder builder_;
  mp4_file file_;
  bool by_ranges_ = false;
  std::size_t part_ = 0;
  std::string box_;           // what has come of it
  std::uint64_t box_at_ = 0;  // where it begins
  std::uint64_t came_ = 0;    // where the next bytes will be from
  std::uint64_t wanted_ = 0;  // bytes that a request should have
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
  unpacked_group unpack(const shard& /*object*/, std::size_t g, const std::vector<bytes>& parts) const override {
    const double times[2] = {clips_.begin(g), clips_.end(g)};
    char text[sizeof times];
    std::memcpy(text, times, sizeof times);
    return unpacked_group(
        std::make_shared<const video_clip>(clips_.file(g, parts), bytes::copy(std::string_view(text, sizeof text))));
  }

 private:
  const mp4_clips clips_;
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
      return ending != "mp4" && ending != "m4v" && ending != "mov";
    };
    if (!std::all_of(listed.begin(), listed.end(), other)) std::erase_if(listed, other);
    return listed;
  }
  std::unique_ptr<shard_scanner> scanner(std::string its_name, const shard& object,
                                         std::shared_ptr<const void> /*metadata*/) const override {
    return std::make_unique<mp4_scanner>(*this, std::move(its_name), object, options_);
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
