// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/http/unconditional_hosts.hpp>

namespace millrace::inline MILLRACE_ABI::http {

MILLRACE_INLINE void unconditional_hosts::add(const executor& ex, std::string_view host) {
  if (has(host)) return;
  hosts_.emplace_back(host);
  const std::string line = "millrace: " + hosts_.back() +
                           " refuses If-Match with the ETag that its objects have (412): requests omit it, and the "
                           "ETags of its answers are compared";
  if (millrace::detail::first_time(line)) millrace::detail::log_line(ex, line);
}

MILLRACE_INLINE std::string_view unconditional_hosts::host_of(std::string_view url) noexcept {
  const std::size_t scheme = url.find("://");
  if (scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  const std::size_t user = url.rfind('@');
  return user == std::string_view::npos ? url : url.substr(user + 1);
}

}  // namespace millrace::http
