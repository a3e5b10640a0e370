// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace millrace::s3 {

/// What HeadObject tells, and what comes with the bytes of GetObject.
class object_info {
 public:
  std::uint64_t size = 0;  ///< of the whole object
  std::string etag;        ///< quotes included; empty when the store sends none
};

}  // namespace millrace::s3
