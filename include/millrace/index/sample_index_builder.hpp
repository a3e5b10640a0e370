// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/index/shard_index.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Makes the index of a shard, row by row. The format's name says how its rows are laid out (row_layout): those of a
/// program's own format are records.
class sample_index_builder {
 public:
  /// `format`: has a name() and settings(), as a shard_format. `name`: as it was given to shard_format::scanner() or
  /// index().
  template <class Format>
  sample_index_builder(const Format& format, std::string name)
      : sample_index_builder(format.name(), format.settings(), std::move(name)) {}
  sample_index_builder(std::string_view format, std::string settings, std::string name);

  /// A description for shard_reader: up to 2 GiB of anything.
  void describe(std::string_view description);

  /// The next record: bytes of the object, or of its text. Throws index_error where it begins before the one before it
  /// ends, is larger than 4 GiB, or lies beyond 256 TiB; in a group it is not empty.
  void add(std::uint64_t offset, std::uint64_t size, std::uint32_t crc = 0);
  /// Begins a group, at this byte of the object. Before its first record; an index with groups has records in groups
  /// only. Groups lie in the order of their bytes, which shard_reader::ranges() may contradict: for the index it is a
  /// number that grows.
  void begin_group(std::uint64_t at);
  /// Frames that records of compressed text lie in, in the place of groups that were begun: of each where it begins in
  /// the object and where its text does, and both ends. `groups`: samples are unpacked by them.
  void frames(std::vector<std::uint64_t> places, bool groups);

  /// Begins a sample of row_layout::fields. `key`: its hash. `offset`: of its first header, a multiple of
  /// 512 below 128 PiB.
  void begin_sample(std::uint64_t key, std::uint64_t offset);
  /// Its next field. Returns the reason where it cannot be one; empty: it is.
  std::string add_field(std::string extension, std::uint64_t offset, std::uint64_t size, std::uint32_t crc);

  /// Begins a sample of row_layout::objects.
  void begin_sample();
  /// Its next object, which is the field `extension`: the path below the shard's name, and its ETag as pack_etag() gave
  /// it. Returns the reason where it cannot be one; empty: it is.
  std::string add_object(std::string extension, std::string_view path, std::string_view packed_etag,
                         std::uint64_t size);
  /// Appends an ETag as an index has it: 17 bytes of a quoted MD5, else its length and itself. False where it has more
  /// than 254 bytes.
  static bool pack_etag(std::string_view etag, std::string& out);
  /// The bytes that a packed ETag at the front of `text` takes.
  static std::size_t packed_bytes(std::string_view text) noexcept;

  std::size_t samples() const noexcept { return index_.samples(); }

  /// The index of records. `end`: of the last group, in the object. `checksums`: every record was given its CRC32C.
  shard_index finish(std::uint64_t size, std::string etag, bool checksums, std::uint64_t end = 0);
  /// The index of row_layout::fields. `checksums`: every field was given its CRC32C.
  shard_index finish_fields(std::uint64_t size, std::string etag, bool checksums);
  /// The index of row_layout::objects.
  shard_index finish_objects();
  /// The index of arrays: `dims` says names, types and shapes, `fields` the names and bytes of a row of each.
  static shard_index of_arrays(std::string name, std::shared_ptr<const arrays> rows, std::size_t count, bool mapped,
                               std::string dims, const std::vector<std::pair<std::string, std::uint64_t>>& fields);

 private:
  [[noreturn]] void refuse(const std::string& reason, std::uint64_t offset) const;
  /// The number of an extension; above 2^24 - 1 where there are too many.
  std::uint32_t number_of(std::string extension);
  shard_index index_;
  std::vector<std::pair<std::string, std::uint32_t>> extensions_;  // their numbers, sorted
  std::uint64_t end_ = 0;                                          // of the last record
  bool grouped_ = false;                                           // by begin_group()
};

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/index/sample_index_builder.ipp>
#endif
