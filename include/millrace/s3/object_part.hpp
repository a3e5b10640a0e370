// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/bytes.hpp>
#include <millrace/s3/object_info.hpp>

namespace millrace::s3 {

/// Bytes of an object, with the version they belong to.
class object_part {
 public:
  bytes data;
  object_info object;
};

}  // namespace millrace::s3
