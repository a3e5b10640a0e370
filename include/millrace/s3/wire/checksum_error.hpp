// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <millrace/base/error.hpp>

namespace millrace::s3 {

/// The bytes of an object are not those that its checksum is of: damaged on their way, or in the store. An object that
/// is read in one request has been read twice then; of one that is read in parts, all but the last bytes have been
/// handed on before this could be known.
class checksum_error : public millrace::error {
 public:
  explicit checksum_error(std::string reason, where at = where(), std::uint64_t before = 0)
      : error(std::move(reason), std::move(at)), handed_on_(before) {}

  /// Bytes from the beginning of the object that have been handed on, any of which may be wrong.
  std::uint64_t handed_on() const noexcept { return handed_on_; }

 private:
  std::uint64_t handed_on_;
};

}  // namespace millrace::s3
