// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/running_crc.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/s3/wire/object_info.hpp>

namespace millrace::s3 {

/// Bytes of an object, with the version they belong to.
class object_part {
 public:
  bytes data;
  object_info object;
  running_crc crc;  ///< of `data`; of kind none, or of fewer bytes, where it was not computed on the way
};

}  // namespace millrace::s3
