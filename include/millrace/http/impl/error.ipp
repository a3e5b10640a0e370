// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/http/error.hpp>

namespace millrace::http {

MILLRACE_INLINE bool error::transient() const noexcept {
  switch (kind_) {
    case failure::resolve:
    case failure::connect:
    case failure::timeout:
    case failure::broken:
      return true;
    case failure::status:
      return status_ == 408 || status_ == 429 || status_ == 500 || status_ == 502 || status_ == 503 || status_ == 504;
    default:
      return false;
  }
}

}  // namespace millrace::http
