// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/cache/disk_slots.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The folder of a disk cache as its owner looks at it, with or without processes that use it. It reads and removes
/// files of the cache alone, and makes none.
///
/// Concurrency: an object written meanwhile is counted as before or as after. Blocking. Errors: io_error; EPROTO for a
/// cache of another format, EBUSY for one in use.
class cache_folder {
 public:
  class data_set {
   public:
    std::string prefix;  ///< of their names: cached_name()
    std::uint64_t bytes = 0;
    std::int64_t used = 0;  ///< when a segment that holds some of it was last used, in seconds since 1970
  };
  class report {
   public:
    std::uint64_t taken = 0;     ///< slots that are taken
    std::uint64_t segments = 0;  ///< files of slots
    std::uint64_t used = 0;      ///< segments that processes use now
    std::uint64_t blocks = 0;    ///< blocks that are there
    std::uint64_t bytes = 0;     ///< of these
    std::vector<data_set> sets;  ///< by their prefixes
    /// A sentence for each block that is not as it was written.
    std::vector<std::string> damaged;
  };

  /// Reads the index and the headers of all slots, and with `contents` all that is in them.
  static report inspect(const std::string& directory, bool contents);

  /// The index alone, for disk_slots::listed_bytes(): files are neither made nor locked. The folder must have one.
  static std::shared_ptr<const disk_slots> open_index(const std::string& directory);

  using removed = disk_slots::removed;
  /// Removes the files of a cache, of any format and also one that has lost its index, from the folder; EBUSY if a
  /// process uses a segment: then nothing is removed.
  static removed drop(const std::string& directory);

 private:
  static std::shared_ptr<disk_slots> opened(const std::string& directory);
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/cache/cache_folder.ipp>
#endif
