// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/memory/bytes.hpp>

namespace millrace::tar {

/// One member of an archive.
///
/// All offsets count bytes of the archive itself: of the object for a plain tar, of the decompressed stream for a
/// compressed one.
struct entry {
  entry() noexcept = default;

  /// The member's path exactly as the archive has it: raw bytes, no conversion, no normalisation.
  std::string name;
  /// The whole body of a regular file: a slice of the memory fed to the reader, or, where the body was spread over two
  /// or more pieces, memory of its own. Empty for every other type.
  bytes body;
  /// The first block that belongs to this member alone, including its pax and long-name headers. A new reader that
  /// starts there hands out this member first.
  std::uint64_t header_offset = 0;
  /// The first byte of the body.
  std::uint64_t data_offset = 0;
  /// Bytes of body that the archive stores for this member: body.size() for a regular file; for other types what was
  /// skipped (0 for types that have no body, whatever their header says).
  std::uint64_t size = 0;
  /// The typeflag: '0' and '7' regular file, '1' hard link, '2' symbolic link, '3' and '4' devices, '5' directory,
  /// '6' FIFO, 'S' sparse file (only with reader_options::report_sparse), else what the archive says. Old archives'
  /// NUL is given as '0', or as '5' when the name ends in a slash.
  char type = '0';

  /// True for members with a body to use. The others are reported so that nothing is skipped unseen.
  bool is_regular() const noexcept { return type == '0' || type == '7'; }
};

}  // namespace millrace::tar
