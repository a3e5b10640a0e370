// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/error.hpp>
#include <millrace/s3/sign/signing_request.hpp>

namespace millrace::s3::detail {

/// The headers of one SigV4 signature: checked, lower-cased, sorted, repeated ones joined. Keeps its scratch memory.
template <class = void>
class canonical_headers {
 public:
  /// Forgets the last request and takes the caller's headers. Throws configuration_error for what must not be there.
  void assign(std::span<const header_field> headers) {
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

  /// Adds one of the signer's own: `name` in lower case, `value` without a blank or a control character.
  void add(std::string_view name, std::string_view value) {
    const std::size_t begin = names_.size();
    names_ += name;
    insert(entry{begin, name.size(), value, true});
  }

  /// Appends `name:value\n` per header.
  void append_block(std::string& out) const {
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

  /// Appends the names, `;` between them.
  void append_names(std::string& out) const {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const std::string_view name = name_of(entries_[i]);
      if (i > 0) {
        if (name == name_of(entries_[i - 1])) continue;
        out += ';';
      }
      out += name;
    }
  }

 private:
  struct entry {
    std::size_t name_begin;  // in names_, which may move while headers are added
    std::size_t name_size;
    std::string_view value;
    bool plain;  // signed as it is
  };

  std::string_view name_of(const entry& e) const noexcept {
    return std::string_view(names_).substr(e.name_begin, e.name_size);
  }

  /// Keeps the entries sorted by name, equal names in order of arrival.
  void insert(const entry& e) {
    std::size_t at = entries_.size();
    entries_.push_back(e);
    for (; at > 0 && name_of(e) < name_of(entries_[at - 1]); --at) entries_[at] = entries_[at - 1];
    entries_[at] = e;
  }

  static bool is_refused(std::string_view name) noexcept {
    static constexpr std::string_view own[] = {"authorization", "host", "x-amz-content-sha256", "x-amz-date",
                                               "x-amz-security-token"};
    for (std::string_view one : own) {
      if (name == one) return true;
    }
    return false;
  }

  /// Headers that proxies and HTTP libraries add, change or drop.
  static bool is_left_unsigned(std::string_view name) noexcept {
    static constexpr std::string_view hops[] = {"connection", "expect",     "keep-alive",        "proxy-authenticate",
                                                "te",         "trailer",    "transfer-encoding", "proxy-authorization",
                                                "upgrade",    "user-agent", "x-amzn-trace-id"};
    for (std::string_view hop : hops) {
      if (name == hop) return true;
    }
    return name.substr(0, 14) == "sec-websocket-";
  }

  static void check_name(std::string_view name) {
    static constexpr std::string_view punctuation = "!#$%&'*+-.^_`|~";  // RFC 9110, section 5.6.2: token
    bool good = !name.empty();
    for (char c : name) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      good = good && (letter || punctuation.find(c) != std::string_view::npos);
    }
    if (!good) throw configuration_error("not a header name: \"" + std::string(name) + "\"");
  }

  /// True when there is nothing to collapse. The value stays out of the message: it may be a token.
  static bool check_value(std::string_view name, std::string_view value) {
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

  /// Trims, and makes every inner run of blanks and tabs one blank.
  static void append_collapsed(std::string& out, std::string_view value) {
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

  std::string names_;
  std::vector<entry> entries_;
};

}  // namespace millrace::s3::detail
