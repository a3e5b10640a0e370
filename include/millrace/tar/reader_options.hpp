// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <millrace/base/units.hpp>

namespace millrace::tar {

/// Limits and policies of a tar::reader. Exceeding a limit is an archive_error that names the limit.
struct reader_options {
  /// Longest body of a regular file, in bytes. Checked before memory is allocated.
  std::uint64_t max_member_bytes = GiB;
  /// Longest member name or link target, in bytes.
  std::size_t max_name_bytes = 4096;
  /// Largest pax header, in bytes.
  std::size_t max_pax_bytes = MiB;
  /// Size of the object, when known: a member that claims to reach beyond it is then refused at its header, before
  /// anything is fetched or allocated for it. 0: unknown.
  std::uint64_t object_bytes = 0;
  /// Offset in the object of the first byte that will be fed: 0, or a member's header_offset to resume there.
  std::uint64_t start = 0;
  /// Read on behind an end-of-archive block (`cat a.tar b.tar`) instead of ignoring what follows.
  bool concatenated = false;
  /// Accept an input of no bytes at all as an archive without members. For objects known to be empty.
  bool allow_empty = false;
  /// Refuse an archive without an end-of-archive block, which may have been cut between two members.
  bool require_end_block = false;
  /// Report sparse members as type 'S' without a body instead of refusing the archive.
  bool report_sparse = false;
  /// Bodies are passed over, and entries have none: for walking the headers alone, see reader::skip().
  bool headers_only = false;
  /// For the stages that read archives by themselves, untar() and untar_plain(): say in the log what warning()
  /// says. A reader never does.
  bool report = true;
};

}  // namespace millrace::tar
