// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/running_crc.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/s3/error.hpp>
#include <millrace/s3/ops/object_checksum.hpp>
#include <millrace/s3/ops/objects.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/s3/session.hpp>
#include <millrace/s3/wire/detail/body_checksum.hpp>
#include <millrace/text/entity_tag.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// Returns true if a composite checksum can be compared with the bytes of an object of `size` bytes: its upload had
/// parts of one size, as far as the first and their number tell. Throws changed_error if the object is no longer the
/// version `etag`.
MILLRACE_COROUTINE task<bool> find_parts(const session& s, body_checksum& sum, std::string bucket, std::string key,
                                         std::string etag, std::uint64_t size);

/// The download of one part of an object, over as many answers as it takes. Every answer but the first continues at the
/// next byte, in the same memory, and only if it is of the same version.
class part_download {
 public:
  /// Bytes [offset, offset + length) of the object that `op` names. `s` must outlive the download.
  part_download(const session& s, operation op, std::uint64_t offset, std::size_t length, std::string if_match,
                slab_pool slabs, get_options options);

  /// One attempt; for with_retries.
  class attempt {
   public:
    explicit attempt(part_download& d) noexcept : download_(&d) {}
    MILLRACE_COROUTINE task<object_part> operator()() const;
    bool progressed() const noexcept { return download_->progressed_; }
    void go_elsewhere(bool now) const noexcept { download_->op_.elsewhere = now; }

   private:
    part_download* download_;
  };

  /// True if the last attempt was for the rest of a part whose beginning is here.
  bool resumed() const noexcept { return resumed_; }
  /// The version that is read, as far as it is known.
  const std::string& version() const noexcept { return seen_ && !seen_->etag.empty() ? seen_->etag : if_match_; }
  const operation& asked() const noexcept { return op_; }
  /// True if the last request had an If-Match.
  bool conditional() const noexcept { return conditional_; }
  /// From now on requests have none: the ETags of the answers are compared alone.
  void go_without_condition() noexcept { unconditional_ = true; }

 private:
  MILLRACE_COROUTINE task<object_part> once();
  /// Reads the rest, too, if the store sends less than the range, or would send more than was likely.
  MILLRACE_COROUTINE task<object_part> as_many_as_it_takes();

  /// The checksum that came with a whole object.
  MILLRACE_COROUTINE task<void> compare(const object_part& p);

  /// Prepares the request for the missing bytes.
  void prepare(executor& ex);

  http::body_options memory();

  /// Every answer must be of one version and one size.
  void judge(const http::response_head& head);

  void check_length(std::size_t got) const;

  bool may_resume() const noexcept {
    return partial_.filled > 0 && partial_.filled < length_ && millrace::detail::is_strong_etag(version());
  }
  void forget() noexcept;

  const session& session_;
  operation op_;
  const std::uint64_t offset_;
  std::size_t length_;
  bool whole_ = false;  // asked for as a whole: its checksum comes with it
  bool sized_ = false;  // ... and its size is known: length_
  const std::string if_match_;
  const slab_pool slabs_;
  http::partial_body partial_;
  std::optional<object_info> seen_;  // by the answer whose bytes are kept
  std::optional<body_checksum> declared_;
  std::optional<std::uint32_t> damaged_;  // the CRC32C of the wrong bytes
  bool resumed_ = false;
  bool conditional_ = false;
  bool unconditional_ = false;
  bool unproven_ = false;  // the version is known and was not asked for: the answer has to tell its own
  bool progressed_ = false;
  std::optional<time_point> held_since_;  // when the first attempt was made that the store refused as one too many
};

}  // namespace millrace::s3::detail

namespace millrace::inline MILLRACE_ABI::s3 {

/// Bytes [offset, offset + length) of an object, in one slab of `slabs` (length is at most a slab) or, for small
/// lengths, in memory of their own size; fewer where the object ends, none for an empty object.
///
/// With `if_match` the object must still have that ETag. Transient failures are retried; a body that breaks off is
/// continued at the next byte, in the same memory, if the store still has that version, else changed_error, with both
/// ETags. With get_options::size an object of one part is asked for as a whole and compared with the checksum that the
/// store keeps of it (config::validate_checksums); if it is damaged it is read once more, over another connection,
/// and then a checksum_error says whether it was the same both times. With get_options::likely_whole an object that
/// turns out longer is asked for once more, by its range, over another connection. Parts of an object whose store sends
/// no ETag are refused. Dropping the task ends the transfer.
MILLRACE_COROUTINE task<object_part> get_object_range(std::shared_ptr<const session> s, std::string bucket,
                                                      std::string key, std::uint64_t offset, std::size_t length,
                                                      std::string if_match, slab_pool slabs, get_options options = {});

/// Size and ETag of an object.
MILLRACE_COROUTINE task<object_info> head_object(std::shared_ptr<const session> s, std::string bucket, std::string key);

namespace detail {

struct declared_checksum {
  declared_checksum() {}
  object_info object;
  std::optional<body_checksum> sum;
};

}  // namespace detail

/// Requests, by a HEAD, the checksum that the store keeps of an object, of the version `if_match` if that is not empty.
/// Null if there is nothing to compare its bytes with: no checksum; one of an upload whose parts differ in size; a
/// store that refuses HEAD (4xx, 501), which one log line reports. Other errors say that they are of this HEAD.
MILLRACE_COROUTINE task<std::unique_ptr<object_checksum>> checksum_of(std::shared_ptr<const session> s,
                                                                      std::string bucket, std::string key,
                                                                      std::string if_match);

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/get_object.ipp>
#endif
