// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/tar/detail/unpacker.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/format.hpp>
#include <millrace/tar/reader.hpp>

namespace millrace::inline MILLRACE_ABI::tar {

/// Reads any archive that arrives in pieces: a plain tar, a tar compressed by gzip, bzip2, xz, zstd or lz4, a zip, a
/// cpio. The first bytes say which. The interface is tar::reader's.
///
/// A plain tar goes to tar::reader, without copies. A compressed one is decompressed into slabs of `pool`, by zlib,
/// libzstd or libarchive, and then goes to tar::reader too, so that the same strictness applies. Zip and cpio members
/// are read by libarchive, each into its own allocation, complete and checked. No thread is used: they run in a fiber.
///
/// Offsets of a compressed tar (in members and errors) count decompressed bytes. Members of zip and cpio have the
/// offsets of their headers, as has data_offset. A zip is read from its front: symbolic links in it look like small
/// files and files removed from its directory are seen.
///
/// Errors: archive_error as tar::reader's; also for compressed data that is cut, damaged or followed by something else,
/// a format that is not known, and an object that unpacks to too much. All checksums are verified.
///
/// Use it on one thread only. Moving it is possible, dropping it at any time too.
class archive_reader {
 public:
  /// `object` names the archive in errors. `pool` is used for compressed archives; slabs that hold several members
  /// spare copies.
  explicit archive_reader(std::string object, archive_options options = archive_options(),
                          slab_pool pool = slab_pool(MiB))
      : object_(std::move(object)), options_(options), pool_(std::move(pool)), reader_(object_, options.members) {
    // In the middle there is nothing to recognise, and only a plain tar can be entered there.
    if (options_.members.start != 0) decide(format::tar);
  }

  /// Gives the next piece of the archive, of any size.
  void feed(bytes piece);

  /// Takes the next member. False: more input is needed, or done().
  bool next(entry& out);

  /// Declares the end of input. Throws if the archive is truncated or broken, unless members have not been taken yet:
  /// then next() returns them first, and throws after them.
  void finish();

  /// tar::reader::resume_at(); nullopt inside of compressed data, a zip or a cpio. 0 until the format is known, and if
  /// it cannot be read.
  std::optional<std::uint64_t> resume_at() const noexcept {
    if (unpacker_ != nullptr) return std::nullopt;
    return kind_ == format::tar ? reader_.resume_at() : 0;
  }

  /// True once no further member can come. A compressed archive is read to the end of its compression first, and a zip
  /// to the end of its directory, to check them.
  bool done() const noexcept;

  /// An unusual property of the archive's end, as a sentence; empty if there is none, and before done().
  std::string_view warning() const noexcept;

  /// The kind of archive; unknown until its first bytes have been fed.
  format kind() const noexcept { return kind_; }

 private:
  void decide(format kind);

  void forward(bytes piece);

  bool step(entry& out);

  bool step_members(entry& out);

  [[noreturn]] void throw_failure() const {
    throw archive_error(unpacker_->reason(), where{object_, unpacker_->offset(), unpacker_->failed_name()});
  }

  [[noreturn]] void refuse() const;

  std::string object_;
  archive_options options_;
  slab_pool pool_;
  format kind_ = format::unknown;
  bool decided_ = false;
  bool ended_ = false;
  bool closed_ = false;  // the unpacker has nothing more to give
  bool failed_ = false;
  bool inner_finished_ = false;
  bool has_pending_ = false;
  std::string head_;  // the first bytes, until the format is known
  std::vector<bytes> waiting_;
  reader reader_;
  std::unique_ptr<detail::unpacker> unpacker_;
  entry pending_;  // found by finish(), not taken yet
};

}  // namespace millrace::tar

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/archive_reader.ipp>
#endif
