// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/s3/ops/object_part.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/s3/wire/detail/body_checksum.hpp>

namespace millrace::s3::detail {

/// One part of an object on its way, over as many answers as it takes. Every answer but the first goes on at the byte
/// that is due, in the same memory, and only when it is of the same version.
class part_download {
 public:
  /// Bytes [offset, offset + length) of the object that `op` names, or all of it when it is known to be `length` bytes
  /// long: then its checksum comes with it. `s` must outlive the download.
  part_download(const session& s, operation op, std::uint64_t offset, std::size_t length, bool whole,
                std::string if_match, slab_pool slabs);

  /// One attempt; for with_retries.
  class attempt {
   public:
    explicit attempt(part_download& d) noexcept : download_(&d) {}
    MILLRACE_COROUTINE task<object_part> operator()() const;
    bool progressed() const noexcept { return download_->progressed_; }

   private:
    part_download* download_;
  };

  /// Whether the last attempt was for the rest of a part whose beginning is here.
  bool resumed() const noexcept { return resumed_; }
  /// The version that is read, as far as it is known.
  const std::string& version() const noexcept { return seen_ && !seen_->etag.empty() ? seen_->etag : if_match_; }
  const operation& asked() const noexcept { return op_; }

 private:
  MILLRACE_COROUTINE task<object_part> once();

  /// What came of a whole object with its checksum.
  MILLRACE_COROUTINE task<void> compare(const object_part& p);

  /// The request for what is still due.
  void prepare();

  http::body_options memory();

  /// Every answer must be of one version and one size.
  void judge(const http::response_head& head);

  void check_length(std::size_t got) const;

  bool may_resume() const noexcept {
    return partial_.filled > 0 && partial_.filled < length_ && !version().empty() && version().compare(0, 2, "W/") != 0;
  }
  void forget() noexcept;

 public:
  /// The error about an object that is no longer the version `before`.
  static changed_error changed(const std::string& before, const std::string& now, where at) {
    return changed_error("the object changed while it was read: ETag " + before + " became " + now, std::move(at));
  }

 private:
  const session& session_;
  operation op_;
  const std::uint64_t offset_;
  const std::size_t length_;
  const bool whole_;
  const std::string if_match_;
  const slab_pool slabs_;
  http::partial_body partial_;
  std::optional<object_info> seen_;  // by the answer whose bytes are kept
  std::optional<body_checksum> declared_;
  bool resumed_ = false;
  bool progressed_ = false;
};

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/detail/impl/part_download.ipp>
#endif
