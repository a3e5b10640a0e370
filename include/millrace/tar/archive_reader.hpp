// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/tar/archive_options.hpp>
#include <millrace/tar/detail/unpacker.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/tar/format.hpp>
#include <millrace/tar/reader.hpp>

namespace millrace::tar {

/// Reads any archive that arrives in pieces: a plain tar, a tar compressed by gzip, bzip2, xz, zstd or lz4, a zip, a
/// cpio. Which it is, its first bytes tell. The interface is tar::reader's.
///
/// A plain tar goes to tar::reader, without copies. A compressed one is decompressed by libarchive into slabs of `pool`
/// and then goes to tar::reader too, so that the same strictness applies. Zip and cpio members are libarchive's, each
/// in an allocation of its own, whole and checked. No thread is used: libarchive runs in a fiber.
///
/// Offsets of a compressed tar (in members and errors) count decompressed bytes. Those of zip and cpio members are
/// where their headers are, data_offset the same. A zip is read from its front: symbolic links in it look like small
/// files and files removed from its directory are seen.
///
/// Errors: archive_error as tar::reader's; also for compressed data that is cut, damaged or followed by something else,
/// a format that is not known, and an object that unpacks to too much. A gzip stream's checksum is verified, but when
/// it seems to be made of several streams and does not fit, which warning() then says.
///
/// Use it on one thread only. Moving it is possible, dropping it at any time too.
template <class = void>
class basic_archive_reader {
 public:
  /// `object` names the archive in errors. `pool` is used for compressed archives; slabs that hold several members
  /// spare copies.
  explicit basic_archive_reader(std::string object, archive_options options = archive_options(),
                                slab_pool pool = slab_pool(MiB))
      : object_(std::move(object)), options_(options), pool_(std::move(pool)), reader_(object_, options.members) {
    // In the middle there is nothing to recognise, and only a plain tar can be entered there.
    if (options_.members.start != 0) decide(format::tar);
  }

  /// Gives the next piece of the archive, of any size.
  void feed(bytes piece) {
    if (piece.empty() || closed_) return;
    if (decided_) {
      forward(std::move(piece));
      return;
    }
    head_.append(piece.data(), std::min(piece.size(), detect_bytes - head_.size()));
    waiting_.push_back(std::move(piece));
    if (head_.size() == detect_bytes) decide(detect(head_));
  }

  /// Hands out the next member. False: more input is needed, or done().
  bool next(entry& out) {
    if (MILLRACE_UNLIKELY(has_pending_)) {
      std::swap(out, pending_);
      has_pending_ = false;
      return true;
    }
    return step(out);
  }

  /// Says that no more input comes. Throws where the archive is cut short or broken, unless members have not been taken
  /// yet: then next() hands them out first and throws behind them.
  void finish() {
    if (ended_) return;
    ended_ = true;
    if (!decided_) decide(head_.empty() ? format::tar : detect(head_));
    if (unpacker_ != nullptr) {
      unpacker_->end_input();
    } else if (kind_ == format::tar) {
      reader_.finish();
    }
    has_pending_ = step(pending_);
  }

  /// True once no further member can come. A compressed archive is read to the end of its compression first, and a zip
  /// to the end of its directory, to check them.
  bool done() const noexcept {
    return !has_pending_ &&
           (unpacker_ == nullptr ? reader_.done()
                                 : closed_ && !failed_ && (!detail::is_compression(kind_) || reader_.done()));
  }

  /// What is unusual about the end of the archive, as a sentence; empty when nothing is, or before done().
  std::string_view warning() const noexcept {
    if (!done()) return {};
    if (unpacker_ != nullptr && unpacker_->unverified()) {
      return "the gzip data seems to be several streams, whose checksums could not be verified";
    }
    return unpacker_ == nullptr || detail::is_compression(kind_) ? reader_.warning() : std::string_view();
  }

  /// What the archive is; unknown until its first bytes have been fed.
  format kind() const noexcept { return kind_; }

 private:
  void decide(format kind) {
    decided_ = true;
    kind_ = kind;
    if (kind == format::unknown || kind == format::seven_zip) {
      waiting_.clear();
      return;
    }
    if (kind != format::tar) {
      unpacker_ = std::make_unique<detail::unpacker>(kind, options_, pool_);
      reader_options inner = options_.members;
      inner.object_bytes = 0;
      reader_ = reader(object_, inner);
    }
    for (bytes& piece : waiting_) forward(std::move(piece));
    waiting_.clear();
  }

  void forward(bytes piece) {
    if (unpacker_ != nullptr) {
      unpacker_->feed(std::move(piece));
    } else if (kind_ == format::tar) {
      reader_.feed(std::move(piece));
    }
  }

  bool step(entry& out) {
    if (!decided_) return false;
    if (kind_ == format::unknown || kind_ == format::seven_zip) refuse();
    if (unpacker_ == nullptr) return reader_.next(out);
    if (!detail::is_compression(kind_)) return step_members(out);
    for (;;) {
      if (reader_.next(out)) return true;
      if (failed_) throw_failure();
      if (closed_) {
        if (inner_finished_) return false;
        inner_finished_ = true;
        reader_.finish();
        continue;
      }
      const detail::unpacker::event event = unpacker_->run();
      bytes data = unpacker_->take_data();
      const bool some = !data.empty();
      reader_.feed(std::move(data));
      if (event == detail::unpacker::event::hungry && !some) return false;
      closed_ = event == detail::unpacker::event::done || event == detail::unpacker::event::failed;
      failed_ = event == detail::unpacker::event::failed;
    }
  }

  bool step_members(entry& out) {
    if (failed_) throw_failure();
    if (closed_) return false;
    switch (unpacker_->run()) {
      case detail::unpacker::event::member:
        unpacker_->take_member(out);
        return true;
      case detail::unpacker::event::done:
        closed_ = true;
        return false;
      case detail::unpacker::event::failed:
        closed_ = failed_ = true;
        throw_failure();
      default:
        return false;
    }
  }

  [[noreturn]] void throw_failure() const {
    throw archive_error(unpacker_->reason(), where{object_, unpacker_->offset(), unpacker_->failed_name()});
  }

  [[noreturn]] void refuse() const {
    if (kind_ == format::seven_zip) {
      throw archive_error("7z archives are not supported: their directory is at the end", where{object_, 0, {}});
    }
    std::string reason = "not an archive of a known kind";
    const std::string_view text = std::string_view(head_).substr(0, 24);
    if (!text.empty() && text[0] == '<') reason += ", but XML or HTML, perhaps a server's error message";
    throw archive_error(reason + ": it begins with \"" + std::string(text) + "\"", where{object_, 0, {}});
  }

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
using archive_reader = basic_archive_reader<>;

}  // namespace millrace::tar
