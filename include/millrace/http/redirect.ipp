// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/redirect.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::http::detail {

/// The five parts of RFC 3986, 3.
class uri_parts {
 public:
  explicit uri_parts(std::string_view text) {
    const std::size_t number_sign = text.find('#');
    if (number_sign != std::string_view::npos) fragment = text.substr(number_sign + 1);
    text = text.substr(0, number_sign);
    const std::size_t question = text.find('?');
    if (question != std::string_view::npos) query = text.substr(question + 1);
    text = text.substr(0, question);
    const std::size_t colon = text.find(':');
    if (colon != std::string_view::npos && is_scheme(text.substr(0, colon))) {
      scheme = text.substr(0, colon);
      text.remove_prefix(colon + 1);
    }
    if (text.substr(0, 2) == "//") {
      text.remove_prefix(2);
      authority = text.substr(0, text.find('/'));
      text.remove_prefix(authority->size());
    }
    path = text;
  }

  std::optional<std::string_view> scheme;
  std::optional<std::string_view> authority;
  std::string_view path;
  std::optional<std::string_view> query;
  std::optional<std::string_view> fragment;

 private:
  static bool is_scheme(std::string_view s) noexcept {
    if (s.empty() || !text::is_letter(s[0])) return false;
    for (const char c : s) {
      if (!text::is_alphanumeric(c) && c != '+' && c != '-' && c != '.') return false;
    }
    return true;
  }
};

/// RFC 3986, 5.2.4.
MILLRACE_INLINE std::string without_dot_segments(std::string_view in) {
  std::string out;
  while (!in.empty()) {
    if (in.substr(0, 3) == "../") {
      in.remove_prefix(3);
    } else if (in.substr(0, 2) == "./" || in.substr(0, 3) == "/./") {
      in.remove_prefix(2);
    } else if (in == "/.") {
      in = "/";
    } else if (in.substr(0, 4) == "/../" || in == "/..") {
      in = in == "/.." ? std::string_view("/") : in.substr(3);
      out.resize(out.rfind('/') == std::string::npos ? 0 : out.rfind('/'));
    } else if (in == "." || in == "..") {
      in = std::string_view();
    } else {
      const std::size_t end = in.find('/', 1);
      out += in.substr(0, end);
      in.remove_prefix(end == std::string_view::npos ? in.size() : end);
    }
  }
  return out;
}

/// RFC 3986, 5.2.3.
MILLRACE_INLINE std::string merged_path(const uri_parts& base, std::string_view path) {
  if (base.authority && base.path.empty()) return "/" + std::string(path);
  const std::size_t slash = base.path.rfind('/');
  return std::string(base.path.substr(0, slash == std::string_view::npos ? 0 : slash + 1)) + std::string(path);
}

/// Encodes bytes that a server should have percent-encoded.
MILLRACE_INLINE std::string with_encoded_bytes(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u > 0x20 && u < 0x7f) {
      out += c;
    } else {
      out += '%';
      out += "0123456789ABCDEF"[u >> 4];
      out += "0123456789ABCDEF"[u & 15];
    }
  }
  return out;
}

}  // namespace millrace::http::detail

namespace millrace::inline MILLRACE_ABI::http {

MILLRACE_INLINE std::string resolve_reference(std::string_view base, std::string_view reference) {
  const detail::uri_parts from(base);
  const detail::uri_parts to(reference);
  const bool own_authority = to.scheme || to.authority;
  std::string path;
  std::optional<std::string_view> query = to.query;
  if (own_authority || to.path.substr(0, 1) == "/") {
    path = detail::without_dot_segments(to.path);
  } else if (to.path.empty()) {
    path = from.path;
    if (!query) query = from.query;
  } else {
    path = detail::without_dot_segments(detail::merged_path(from, to.path));
  }
  std::string out(to.scheme ? *to.scheme : from.scheme.value_or(std::string_view()));
  out += ':';
  if (const std::optional<std::string_view> authority = own_authority ? to.authority : from.authority) {
    out += "//";
    out += *authority;
  }
  out += path;
  if (query) {
    out += '?';
    out += *query;
  }
  if (to.fragment) {
    out += '#';
    out += *to.fragment;
  }
  return out;
}

MILLRACE_INLINE bool is_redirect(int status) noexcept {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

MILLRACE_INLINE std::string redirect_target(const std::string& from, const response_head& head, const where& at) {
  const auto refused = [&](const char* why) { return error(failure::protocol, why, at, head.status); };
  const std::string* location = head.fields.find("location");
  if (location == nullptr) throw refused("a redirect without Location");
  if (head.fields.count("location") != 1) throw refused("a redirect with several Location fields");
  for (const char c : *location) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) throw refused("a redirect with a control character");
  }
  std::string target = resolve_reference(from, detail::with_encoded_bytes(*location));
  target.resize(std::min(target.find('#'), target.size()));
  const detail::uri_parts parts(target);
  const bool https = text::equal_ignoring_case(*parts.scheme, "https");
  if ((!https && !text::equal_ignoring_case(*parts.scheme, "http")) || !parts.authority || parts.authority->empty()) {
    throw refused("a redirect to something that is not an http(s) URL");
  }
  const detail::uri_parts asked(*location);
  const bool elsewhere = asked.scheme || asked.authority;
  if (elsewhere && parts.authority->find('@') != std::string_view::npos) {
    throw refused("a redirect that names a user is not followed");
  }
  if (!https && text::starts_ignoring_case(from, "https://")) {
    throw refused("a redirect from https to http is not followed");
  }
  return target;
}

MILLRACE_INLINE std::string known_redirects::find(const std::string& url) const {
  const std::lock_guard lock(mutex_);
  const auto found = targets_.find(url);
  return found == targets_.end() ? std::string() : found->second;
}

MILLRACE_INLINE void known_redirects::remember(const std::string& url, std::string target) {
  const std::lock_guard lock(mutex_);
  if (targets_.size() >= most) targets_.clear();
  targets_[url] = std::move(target);
}

MILLRACE_INLINE void known_redirects::forget(const std::string& url, const std::string& target) {
  const std::lock_guard lock(mutex_);
  const auto found = targets_.find(url);
  if (found != targets_.end() && found->second == target) targets_.erase(found);
}

}  // namespace millrace::http
