// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/running_crc.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/s3/ops/object_part.hpp>
#include <millrace/s3/session.hpp>
#include <millrace/s3/wire/checksum_error.hpp>
#include <millrace/s3/wire/detail/body_checksum.hpp>

namespace millrace::s3 {

/// What a store keeps of an object, to compare with the bytes of all its parts: see checksum_of(). For one loop.
class object_checksum {
 public:
  object_checksum(std::shared_ptr<const session> s, std::string bucket, std::string key, std::string etag,
                  detail::body_checksum sum);

  /// The version that it is of; may be empty.
  const std::string& etag() const noexcept { return etag_; }

  /// The next bytes of the object, in order. Their CRC is not computed again where `crc` is that (object_part::crc).
  void add(const bytes& data, const running_crc& crc) { sum_.add(data.view(), crc); }

  /// When all bytes have been added: throws checksum_error when they are not those of the store. `handed_on` goes into
  /// it. The object must outlive the task.
  MILLRACE_COROUTINE task<void> compare(std::uint64_t handed_on);

 private:
  const std::shared_ptr<const session> session_;
  const std::string bucket_;
  const std::string key_;
  const std::string etag_;
  detail::body_checksum sum_;
};

namespace detail {

struct declared_checksum {
  declared_checksum() {}
  object_info object;
  std::optional<body_checksum> sum;
};

}  // namespace detail

/// Asks, by a HEAD, what the store keeps of an object, of the version `if_match` when that is not empty. Null where it
/// keeps nothing that its bytes could be compared with: no checksum; one of an upload whose parts differ in size; a
/// store that does not serve HEAD (405, 501).
MILLRACE_COROUTINE task<std::unique_ptr<object_checksum>> checksum_of(std::shared_ptr<const session> s,
                                                                      std::string bucket, std::string key,
                                                                      std::string if_match);

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/impl/object_checksum.ipp>
#endif
