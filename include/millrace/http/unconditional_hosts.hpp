// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/detail/log.hpp>

namespace millrace::inline MILLRACE_ABI::http {

/// The hosts to which a loop sends no If-Match: each has refused one (412) for a version that it still had. Their
/// answers say which version they are of, and that is compared all the same. For the coroutines of one executor.
class unconditional_hosts final : public executor_service {
 public:
  static unconditional_hosts& of(executor& ex) { return ex.service<unconditional_hosts>(); }

  bool has(std::string_view host) const noexcept {
    for (const std::string& h : hosts_) {
      if (h == host) return true;
    }
    return false;
  }
  bool empty() const noexcept { return hosts_.empty(); }

  /// Adds a host; logs it in the runtime of `ex`, once per process.
  void add(const executor& ex, std::string_view host) {
    if (has(host)) return;
    hosts_.emplace_back(host);
    const std::string line = "millrace: " + hosts_.back() +
                             " refuses If-Match with the ETag that its objects have (412): requests omit it, and the "
                             "ETags of its answers are compared";
    if (millrace::detail::first_time(line)) millrace::detail::log_line(ex, line);
  }

  /// `name:port` of an http or https URL, without user information.
  static std::string_view host_of(std::string_view url) noexcept {
    const std::size_t scheme = url.find("://");
    if (scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
    url = url.substr(0, url.find_first_of("/?#"));
    const std::size_t user = url.rfind('@');
    return user == std::string_view::npos ? url : url.substr(user + 1);
  }

 private:
  std::vector<std::string> hosts_;
};

}  // namespace millrace::http
