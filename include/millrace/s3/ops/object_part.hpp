// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/base/running_crc.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace::s3 {

/// What HeadObject tells, and what comes with the bytes of GetObject.
class object_info {
 public:
  std::uint64_t size = 0;  ///< of the whole object
  std::string etag;        ///< quotes included; empty when the store sends none
};

/// Bytes of an object, with the version they belong to.
class object_part {
 public:
  bytes data;
  object_info object;
  running_crc crc;  ///< of `data`; of kind none, or of fewer bytes, where it was not computed on the way
};

}  // namespace millrace::s3
