// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <millrace/base/units.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI::tar {

/// One member of an archive.
///
/// All offsets count bytes of the archive itself: of the object for a plain tar, of the decompressed stream for a
/// compressed one.
struct entry {
  entry() noexcept = default;

  /// The member's path exactly as the archive has it: raw bytes, no conversion, no normalisation.
  std::string name;
  /// The whole body of a regular file: a slice of the memory fed to the reader, or, if the body was spread over two
  /// or more pieces, memory of its own. Empty for every other type.
  bytes body;
  /// The first block that belongs to this member alone, including its pax and long-name headers. A new reader that
  /// starts there returns this member first.
  std::uint64_t header_offset = 0;
  /// The first byte of the body.
  std::uint64_t data_offset = 0;
  /// Bytes of body that the archive stores for this member: body.size() for a regular file; for other types the bytes
  /// skipped (0 for types that have no body, whatever their header says).
  std::uint64_t size = 0;
  /// The typeflag: '0' and '7' regular file, '1' hard link, '2' symbolic link, '3' and '4' devices, '5' directory,
  /// '6' FIFO, else what the archive says. Old archives'
  /// NUL is given as '0', or as '5' when the name ends in a slash.
  char type = '0';

  /// True for members with a body to use. The others are reported so that nothing is skipped unseen.
  bool is_regular() const noexcept { return type == '0' || type == '7'; }
};

/// Limits and policies of a tar::reader. Exceeding a limit is an archive_error that names the limit.
struct reader_options {
  /// Longest body of a regular file, in bytes. Checked before memory is allocated.
  std::uint64_t max_member_bytes = GiB;
  /// The memory budget of the run, set by untar() and untar_plain(): no body may be longer either. 0: none.
  std::uint64_t budget_bytes = 0;
  /// Size of the object, when known: a member that claims to reach beyond it is then refused at its header, before
  /// anything is fetched or allocated for it. 0: unknown.
  std::uint64_t object_bytes = 0;
  /// Offset in the object of the first byte that will be fed: 0, or a member's header_offset to resume there.
  std::uint64_t start = 0;
  /// Continue after an end-of-archive block (`cat a.tar b.tar`) instead of ignoring the rest.
  bool concatenated = false;
  /// Bodies are skipped, and entries have none: for walking the headers alone, see reader::skip().
  bool headers_only = false;
};

namespace detail {
/// Longest member name or link target, and largest pax header.
inline constexpr std::size_t most_name_bytes = 4096;
inline constexpr std::size_t most_pax_bytes = MiB;
inline constexpr const char* long_name = "a name is longer than 4096 bytes";
}  // namespace detail

/// Limits and policies of an archive_reader. Exceeding a limit is an archive_error that names the limit.
struct archive_options {
  /// For the members, in whatever format. `object_bytes` and `start` are about the object and have a meaning for a
  /// plain tar only; a compressed archive cannot be entered in the middle.
  reader_options members = reader_options();
  /// Most bytes that one compressed byte may become, over the whole object so far: more is a bomb. gzip reaches 1032
  /// on zeros, the others much more. Objects that become no more than 64 MiB are not judged. 0: no limit.
  std::uint64_t max_ratio = 1100;
  /// Most bytes that a compressed object may become; 0: no limit.
  std::uint64_t max_output_bytes = 0;
  /// Largest window of a zstd frame, or dictionary of xz and lzma: memory that unpacking an object takes. The option
  /// `--long` of zstd makes larger ones, 2 GiB by `--long=31`. Every frame and block is looked at. 0: no limit of ours.
  /// The memory budget of a run bounds it in any case, also those of all objects that a stage unpacks side by side: the
  /// next one waits until there is room. One that grows within its object, and has no room then, is an error.
  std::uint64_t max_window_bytes = 128 * MiB;
};

}  // namespace millrace::tar
