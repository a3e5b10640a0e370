// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/http/message.hpp>

namespace millrace::inline MILLRACE_ABI::http {

/// The URL that the reference means in a document at `base`: RFC 3986, 5.2, for a strict parser. Nothing is encoded or
/// decoded.
std::string resolve_reference(std::string_view base, std::string_view reference);

/// 301, 302, 303, 307, 308.
bool is_redirect(int status) noexcept;

/// The target of the answer `head` to a request for `from`: its Location is any URI reference (RFC 9110, 10.2.2).
/// Blanks and bytes beyond ASCII in it are percent-encoded, as curl does; a fragment is dropped. Throws http::error
/// (protocol), with `at`, for a redirect that is not followed: no Location, not an http(s) URL with a host, one with a
/// user, https that leads to http.
std::string redirect_target(const std::string& from, const response_head& head, const where& at);

/// Remembers where objects were redirected to, for their other parts. Thread-safe.
class known_redirects {
 public:
  /// Empty when none is known.
  std::string find(const std::string& url) const;
  void remember(const std::string& url, std::string target);
  /// It no longer leads to the object.
  void forget(const std::string& url, const std::string& target);

 private:
  static constexpr std::size_t most = 4096;  // then all are forgotten, and objects are asked for where they were

  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::string> targets_;
};

}  // namespace millrace::http

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/redirect.ipp>
#endif
