// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include <millrace/base/compiler.hpp>
#include <millrace/formats/shard_format.hpp>

namespace millrace::inline MILLRACE_ABI {

struct video_shards_options {
  double seconds = 2;  ///< length of a clip
  double stride = 0;   ///< seconds from the beginning of a clip to that of the next one; 0: their length
  /// Clips of so many frames, as they are shown, in the place of .seconds and .stride. 0: clips have a length in time.
  /// Not of Matroska, whose Cues are of key frames.
  std::uint32_t frames = 0;
  std::uint32_t frame_stride = 0;  ///< frames from the beginning of a clip to that of the next one; 0: .frames
  bool partial = false;            ///< the end of a file that is shorter than a clip is one, too
  bool audio = false;              ///< a clip has the sound of its groups, too, where the file has a track of it
};

/// Shards are MP4 or QuickTime files, plain or fragmented, or Matroska or WebM files with Cues, and samples are clips
/// of them. A clip is read by the bytes of its groups of pictures: from the key frame at or before its begin to the end
/// of the group that has its end. No library of codecs is needed: what is read is the table of frames, not the frames.
///
///     const mill::dataset train(s3, "s3://corpus/films/", {.index = "films.index",
///                                                          .format = mill::video_shards({.seconds = 2})});
///
/// A sample has three fields. "video" is a little file of the same container, of MP4 one of a fragment: the groups'
/// frames, with the times that they have in the whole file, its edit list included. "begin" and "end" are f64, in
/// seconds of the whole file: the clip is the frames that are shown at begin <= t < end, and the one that is still
/// shown at begin. The little file may have more of them at both ends; of those before `begin` a decoder may have some
/// that refer to frames before the first key frame, and are damaged. The key is the file's name, `#` and the clip's
/// number.
///
/// A clip is one request, or several where other tracks lie between its frames: at most 1.5 times the bytes of its
/// samples are read, as long as 64 requests do. It is made of them on the pool, in memory of its own. The index reads
/// by ranges: `moov`, at either end of the object, and each `moof`, or Matroska's Cues and the first blocks of each
/// group that they name; twice over a network, and no frames. So it has no checksums of them. In the index a frame
/// takes 3 to 7 bytes, a key frame of Matroska about 40, a clip 60.
///
/// The objects are those of the listing whose names end in .mp4, .m4v, .mov, .mkv or .webm; if none does, all.
///
/// Errors: archive_error for damaged files, decode_error for what is not read (encrypted tracks, edit lists of several
/// pieces, frames in other files, Matroska without Cues or with .frames), both when the index is made, with the byte of
/// the object. configuration_error for a length that is not positive.
std::shared_ptr<const shard_format> video_shards(video_shards_options options = {});

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/formats/video_shards.ipp>
#endif
