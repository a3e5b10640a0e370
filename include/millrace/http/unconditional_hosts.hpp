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
  void add(const executor& ex, std::string_view host);

  /// `name:port` of an http or https URL, without user information.
  static std::string_view host_of(std::string_view url) noexcept;

 private:
  std::vector<std::string> hosts_;
};

}  // namespace millrace::http

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/unconditional_hosts.ipp>
#endif
