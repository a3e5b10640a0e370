// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace millrace {

/// Options of file::open(). By default a file that exists is opened for reading.
struct file_options {
  bool write = false;     ///< open for reading and writing
  bool create = false;    ///< with write: make the file when it does not exist
  bool truncate = false;  ///< with write: empty it
  /// Goes past the page cache (O_DIRECT) for the aligned part of each transfer, where the file system allows it: for
  /// data read once and larger than memory. Buffers of a slab pool are aligned.
  bool direct = false;
  unsigned mode = 0644;  ///< permissions of a file that is created, before the umask
};

}  // namespace millrace
