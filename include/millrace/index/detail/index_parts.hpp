// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/index/shard_index.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The folder beside an index file in which ranks leave the indexes of shards for each other until the file is there:
/// one file for each shard, which is there as a whole or not at all, and one for each rank that reads shards, which
/// grows while it does. There are no locks, so a rank that dies holds none.
class index_parts {
 public:
  /// Makes the folder. io_error, which names the index, where nothing can be written.
  explicit index_parts(const std::string& index_file);

  /// The index of this shard, called `name`, if a rank has left one that is complete and of this version. Without an
  /// ETag that identifies the version, files of an earlier run are not used.
  std::optional<shard_index> find(const std::string& name, const shard& object) const;
  /// Leaves an index to the others. If it cannot be written, they read the shard themselves.
  void leave(const shard_index& index) const noexcept;
  /// This rank is alive and reads.
  void beat(std::uint32_t rank) const noexcept;

  /// The progress of other ranks: it differs when one has left an index, or has read further.
  class news {
   public:
    std::size_t indexes = 0;
    std::uintmax_t beats = 0;
    friend bool operator==(const news&, const news&) = default;
  };
  news look() const noexcept;
  /// True if the whole index is there.
  bool finished() const noexcept;
  /// Then: they are not needed any more.
  void remove() const noexcept;

 private:
  std::string path_of(const std::string& name) const;

  std::string file_;
  std::string folder_;
  std::filesystem::file_time_type begun_;
};

/// The name under which a file is written that becomes `path` when it is whole: another one for each process and each
/// object.
std::string unfinished(const std::string& path, const void* whose);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/index/detail/index_parts.ipp>
#endif
