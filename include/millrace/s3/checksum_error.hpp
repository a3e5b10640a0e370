// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/error.hpp>

namespace millrace::s3 {

/// The bytes of an object are not those that its checksum is of: damaged on their way, or in the store. Thrown when a
/// second reading gave no better ones.
class checksum_error : public millrace::error {
 public:
  using error::error;
};

}  // namespace millrace::s3
