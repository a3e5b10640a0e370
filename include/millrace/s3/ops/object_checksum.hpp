// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/running_crc.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

class session;

namespace detail {

class body_checksum;

/// True if the parts of the upload are really those of find_parts(): each is checked before damage is reported. Throws
/// changed_error if the object is no longer the version `etag`.
MILLRACE_COROUTINE task<bool> parts_alike(const session& s, const body_checksum& sum, std::string bucket,
                                          std::string key, std::string etag);

/// Logs, once, that the store calls a CRC-32 a CRC-32C.
void note_misnamed(executor& ex, const session& s, const std::string& bucket);

}  // namespace detail

/// The checksum that a store keeps of an object, to compare with the bytes of all its parts: see checksum_of(). For one
/// loop.
class object_checksum {
 public:
  object_checksum(std::shared_ptr<const session> s, std::string bucket, std::string key, std::string etag,
                  detail::body_checksum sum);
  /// Continues from the sums of `other`.
  object_checksum(const object_checksum& other);
  object_checksum& operator=(const object_checksum&) = delete;
  ~object_checksum();

  /// The version that it is of; may be empty.
  const std::string& etag() const noexcept { return etag_; }

  /// The next bytes of the object, in order. Their CRC is not computed again if `crc` is that (object_part::crc).
  void add(const bytes& data, const running_crc& crc);
  /// After all bytes have been added: throws checksum_error if they are not those of the store. The error has
  /// `delivered`. The object must outlive the task.
  MILLRACE_COROUTINE task<void> compare(std::uint64_t delivered);

 private:
  const std::shared_ptr<const session> session_;
  const std::string bucket_;
  const std::string key_;
  const std::string etag_;
  const std::unique_ptr<detail::body_checksum> sum_;
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/object_checksum.ipp>
#endif
