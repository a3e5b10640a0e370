// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/units.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The most text of a frame whose lines can be indexed: reading one line unpacks its frame.
inline constexpr std::uint64_t most_frame_text = 16 * MiB;
/// Neighbouring frames with less text are one entry of an index.
inline constexpr std::uint64_t least_frame_text = 256 * KiB;
/// Records in a frame with more text are read together: each slice of it would unpack it from its beginning.
inline constexpr std::uint64_t least_group_text = MiB;
inline constexpr std::uint64_t most_group_text = 4 * GiB;

/// The bounds of a compressed object's frames in bytes of text; other ones are for tests.
class frame_bounds {
 public:
  constexpr frame_bounds() noexcept = default;
  explicit constexpr frame_bounds(std::uint64_t shortest, std::uint64_t of_groups = least_group_text,
                                  std::uint64_t longest_group = most_group_text) noexcept
      : least(shortest), grouped(of_groups), most_group(longest_group) {}
  std::uint64_t least = least_frame_text;
  std::uint64_t grouped = least_group_text;
  std::uint64_t most_group = most_group_text;
};

/// True if it begins like a stream of zlib (RFC 1950 2.2) without a preset dictionary.
constexpr bool begins_zlib(std::string_view head) noexcept {
  if (head.size() < 2) return false;
  const unsigned first = static_cast<unsigned char>(head[0]);
  const unsigned second = static_cast<unsigned char>(head[1]);
  return (first & 15) == 8 && first >> 4 <= 7 && (second & 32) == 0 && (first << 8 | second) % 31 == 0;
}
/// The name of the frames' compression in messages.
inline const char* frames_name(tar::format kind) noexcept {
  return kind == tar::format::deflate ? "zlib" : tar::format_name(kind);
}

/// Unpacks text that is compressed by frames: frames of zstd, those that are skipped too, members of gzip, or one
/// stream of zlib (tar::format::deflate).
class frame_unpacker {
 public:
  virtual ~frame_unpacker() = default;

  /// Takes bytes from the front of `in`, and returns the text that came of them, valid until the next call. To be
  /// called while there is something in `in`, or more().
  virtual std::string_view next(std::string_view& in) = 0;
  /// True if there may be text of bytes that were taken.
  virtual bool more() const noexcept = 0;
  /// True if a frame has just ended, or none has begun.
  virtual bool between_frames() const noexcept = 0;
  /// The reason why the data cannot be unpacked, after next(); empty if there is none.
  virtual const std::string& wrong() const noexcept = 0;
};

/// By the libraries of the component tar. Throws configuration_error, which names `object`, if no part of the program
/// is compiled with it.
std::unique_ptr<frame_unpacker> make_frame_unpacker(tar::format kind, const shard& object);

/// The place of some frames of an object, in it and in its text.
struct frame_range {
  std::uint64_t begin = 0;  // bytes of the object
  std::uint64_t end = 0;
  std::uint64_t text = 0;  // where their text begins

  std::size_t length() const noexcept { return static_cast<std::size_t>(end - begin); }
};

/// Bytes [begin, end) of the text of `object`, from `packed`, which holds the frames that they are in. `into` has room
/// for them. Throws archive_error, which names the frames' place, where these are damaged or have less text.
bytes unpack_frames(const shard& object, frame_range frames, const bytes& packed, std::uint64_t begin,
                    std::uint64_t end, writable_bytes into);
/// All of their text, which ends at byte `end`; the checksums of all frames are compared. Errors: as before, and where
/// there is more text.
bytes unpack_all_frames(const shard& object, frame_range frames, const bytes& packed, std::uint64_t end);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/index/detail/text_frames.ipp>
#endif
