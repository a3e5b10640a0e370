// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/http/error.hpp>

namespace millrace::inline MILLRACE_ABI::http {

MILLRACE_INLINE bool may_pass(int status) noexcept {
  if (status >= 500 && status < 600) return status != 501 && status != 505;
  return status == 408 || status == 425 || status == 429 || status == 499;
}

MILLRACE_INLINE bool error::transient() const noexcept {
  switch (kind_) {
    case failure::resolve:
    case failure::connect:
    case failure::timeout:
    case failure::broken:
      return true;
    case failure::status:
      return may_pass(status_);
    default:
      return false;
  }
}

MILLRACE_INLINE std::string displayed_server(const std::string& url) {
  std::string text = displayed(url);
  const std::size_t scheme = text.find("://");
  return text.substr(0, text.find('/', scheme == std::string::npos ? 0 : scheme + 3));
}

}  // namespace millrace::http
