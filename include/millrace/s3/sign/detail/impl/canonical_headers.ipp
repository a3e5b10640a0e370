// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/sign/detail/canonical_headers.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE void canonical_headers::assign(std::span<const header_field> headers) {
  names_.clear();
  entries_.clear();
  for (const header_field& header : headers) {
    check_name(header.name);
    const std::size_t begin = names_.size();
    for (char c : header.name) names_ += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const std::string_view name = std::string_view(names_).substr(begin);
    if (is_refused(name)) {
      throw configuration_error("the header " + std::string(name) + " is written by the signer, not by its caller");
    }
    const bool plain = check_value(name, header.value);
    if (is_left_unsigned(name)) {
      names_.resize(begin);
      continue;
    }
    insert(entry{begin, name.size(), header.value, plain});
  }
}

MILLRACE_INLINE void canonical_headers::add(std::string_view name, std::string_view value) {
  const std::size_t begin = names_.size();
  names_ += name;
  insert(entry{begin, name.size(), value, true});
}

MILLRACE_INLINE void canonical_headers::append_block(std::string& out) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::string_view name = name_of(entries_[i]);
    if (i > 0 && name == name_of(entries_[i - 1])) {
      out.back() = ',';  // was the line end of the same header's last value
    } else {
      out += name;
      out += ':';
    }
    if (entries_[i].plain) {
      out += entries_[i].value;
    } else {
      append_collapsed(out, entries_[i].value);
    }
    out += '\n';
  }
}

MILLRACE_INLINE void canonical_headers::append_names(std::string& out) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::string_view name = name_of(entries_[i]);
    if (i > 0) {
      if (name == name_of(entries_[i - 1])) continue;
      out += ';';
    }
    out += name;
  }
}

MILLRACE_INLINE void canonical_headers::insert(const entry& e) {
  std::size_t at = entries_.size();
  entries_.push_back(e);
  for (; at > 0 && name_of(e) < name_of(entries_[at - 1]); --at) entries_[at] = entries_[at - 1];
  entries_[at] = e;
}

MILLRACE_INLINE bool canonical_headers::is_refused(std::string_view name) noexcept {
  static constexpr std::string_view own[] = {"authorization", "host", "x-amz-content-sha256", "x-amz-date",
                                             "x-amz-security-token"};
  for (std::string_view one : own) {
    if (name == one) return true;
  }
  return false;
}

MILLRACE_INLINE bool canonical_headers::is_left_unsigned(std::string_view name) noexcept {
  static constexpr std::string_view hops[] = {"connection", "expect",     "keep-alive",        "proxy-authenticate",
                                              "te",         "trailer",    "transfer-encoding", "proxy-authorization",
                                              "upgrade",    "user-agent", "x-amzn-trace-id"};
  for (std::string_view hop : hops) {
    if (name == hop) return true;
  }
  return name.substr(0, 14) == "sec-websocket-";
}

MILLRACE_INLINE void canonical_headers::check_name(std::string_view name) {
  static constexpr std::string_view punctuation = "!#$%&'*+-.^_`|~";  // RFC 9110, section 5.6.2: token
  bool good = !name.empty();
  for (char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    good = good && (letter || punctuation.find(c) != std::string_view::npos);
  }
  if (!good) throw configuration_error("not a header name: \"" + std::string(name) + "\"");
}

MILLRACE_INLINE bool canonical_headers::check_value(std::string_view name, std::string_view value) {
  bool sendable = true;
  bool plain = true;
  char last = ' ';
  for (char c : value) {  // without a jump
    const auto u = static_cast<unsigned char>(c);
    sendable &= ((u >= 0x20) | (c == '\t')) & (u != 0x7f);
    plain &= (c != '\t') & ((c != ' ') | (last != ' '));
    last = c;
  }
  if (!sendable) {
    throw configuration_error("the value of the header " + std::string(name) +
                              " contains a line end, a NUL or another control character");
  }
  return plain && (value.empty() || last != ' ');
}

MILLRACE_INLINE void canonical_headers::append_collapsed(std::string& out, std::string_view value) {
  std::size_t at = 0;
  bool first = true;
  while (true) {
    at = value.find_first_not_of(" \t", at);
    if (at == std::string_view::npos) return;
    const std::size_t end = value.find_first_of(" \t", at);
    if (!first) out += ' ';
    first = false;
    out += value.substr(at, end == std::string_view::npos ? end : end - at);
    if (end == std::string_view::npos) return;
    at = end;
  }
}

}  // namespace millrace::s3::detail
