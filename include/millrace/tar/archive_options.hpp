// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/units.hpp>
#include <millrace/tar/reader_options.hpp>

namespace millrace::tar {

/// Limits and policies of an archive_reader. Exceeding a limit is an archive_error that names the limit.
struct archive_options {
  /// For the members, in whatever format. `object_bytes` and `start` are about the object and have a meaning for a
  /// plain tar only; a compressed archive cannot be entered in the middle.
  reader_options members = reader_options();
  /// Most bytes that one compressed byte may become, over the whole object so far: more is a bomb. gzip reaches 1032
  /// on zeros. The first `free_bytes` are not counted.
  std::uint64_t max_ratio = 1100;
  /// Bytes of output before max_ratio is looked at.
  std::uint64_t free_bytes = 64 * MiB;
  /// Most bytes that a compressed object may become; 0: no limit.
  std::uint64_t max_output_bytes = 0;
};

}  // namespace millrace::tar
