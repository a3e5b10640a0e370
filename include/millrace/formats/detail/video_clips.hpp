// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/formats/detail/matroska_file.hpp>
#include <millrace/formats/detail/mp4_file.hpp>
#include <millrace/formats/shard_format.hpp>
#include <millrace/index/shard_index.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI {
struct video_shards_options;
}  // namespace millrace::inline MILLRACE_ABI

namespace millrace::inline MILLRACE_ABI::detail {

/// The clips of a video file, as they stand in the description of its index: 3 to 7 bytes a frame of MP4, about 40 a
/// key frame of Matroska. A clip is made of it and of the bytes of its groups of pictures.
///
/// The text, all numbers little-endian: 4 bytes each 1 for MP4 or 2 for Matroska, the bytes of the init segment, ticks
/// in a second, clips C, groups G, tracks T; of each track its number, the unit of its times (4 bytes each) and its
/// delay (8); the init segment; of each clip its begin and end in ticks (8 each), its first group and the one after its
/// last (4 each); T G + 1 times 4 bytes, where the samples of a track in a group begin in what follows; sound begins
/// before its group, with samples that the group before may have, too. Those are: their number; the time of the first
/// one's decoding; runs of durations; 0 and the shift from decoding to showing of all, or 1 and each shift; sizes; runs
/// of samples that follow each other in the object, each with its distance from the end of the one before it. Numbers
/// there are of 7 bits a byte, the least significant first.
///
/// A key frame of Matroska is two groups of one sample each, the blocks up to matroska_file::group::lead and those
/// after them: clips end between them. The time of the first one's decoding is there that of its cluster, and the
/// second track has no samples, but a number.
class video_clips {
 public:
  /// Bytes of the little file that a clip becomes, and the first byte of the object that it needs.
  class place {
   public:
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
  };
  /// Makes the text. `end` is the object's name and size, `places` those of each clip. decode_error for a clip of 2 GiB
  /// or more, and for more than 2^22 clips, or as many as the object has bytes; of Matroska for clips of .frames, too.
  static std::string write(const mp4_file& file, const video_shards_options& options, const where& end,
                           std::vector<place>& places);
  static std::string write(const matroska_file& file, const video_shards_options& options, const where& end,
                           std::vector<place>& places);

  /// `index` must outlive it. index_error if its description is no such text.
  explicit video_clips(const shard_index& index);

  /// The ranges of the object that clip `c` needs: one, or more where what lies between its samples would be more than
  /// half of their bytes. None is longer than 16 MiB.
  std::vector<object_range> ranges(std::size_t c) const;
  /// The little file of clip `c`, made of these ranges of the object of this name. archive_error if these are damaged.
  bytes file(std::size_t c, const std::vector<bytes>& parts, const std::string& object) const;
  /// In seconds of the whole file.
  double begin(std::size_t c) const { return seconds(c, 0); }
  double end(std::size_t c) const { return seconds(c, 8); }

 private:
  static constexpr std::size_t head_bytes = 24;
  static constexpr std::size_t track_bytes = 16;
  static constexpr std::size_t clip_bytes = 24;
  class reading;
  class source;

  static std::string write(const source& from, const video_shards_options& options, const where& end,
                           std::vector<place>& places);
  [[noreturn]] void broken() const;
  double seconds(std::size_t c, std::size_t at) const;
  /// The samples of a clip of track `t`.
  std::vector<mp4_sample> samples(std::size_t c, std::size_t t) const;
  std::vector<object_range> ranges_of(const std::vector<std::vector<mp4_sample>>& all) const;
  std::vector<std::vector<mp4_sample>> samples(std::size_t c) const;
  /// Writes the samples, one after the other.
  void copy(const std::vector<std::vector<mp4_sample>>& all, const std::vector<object_range>& ranges,
            const std::vector<bytes>& parts, char* to) const;

  const shard_index& index_;
  std::string_view text_;
  std::string_view init_;
  std::string_view clips_;
  std::string_view groups_;
  std::string_view samples_;
  bool matroska_ = false;
  std::uint64_t timescale_ = 1;
  std::size_t tracks_ = 0;
  std::size_t group_count_ = 0;
};

}  // namespace millrace::inline MILLRACE_ABI::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/detail/video_clips.ipp>
#endif
