// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/s3/sign/signing_request.hpp>

namespace millrace::s3::detail {

/// The headers of one SigV4 signature: checked, lower-cased, sorted, repeated ones joined. Keeps its scratch memory.
class canonical_headers {
 public:
  /// Forgets the last request and takes the caller's headers. Throws configuration_error for what must not be there.
  void assign(std::span<const header_field> headers);

  /// Adds one of the signer's own: `name` in lower case, `value` without a blank or a control character.
  void add(std::string_view name, std::string_view value);

  /// Appends `name:value\n` per header.
  void append_block(std::string& out) const;

  /// Appends the names, `;` between them.
  void append_names(std::string& out) const;

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
  void insert(const entry& e);

  static bool is_refused(std::string_view name) noexcept;

  /// Headers that proxies and HTTP libraries add, change or drop.
  static bool is_left_unsigned(std::string_view name) noexcept;

  static void check_name(std::string_view name);

  /// True when there is nothing to collapse. The value stays out of the message: it may be a token.
  static bool check_value(std::string_view name, std::string_view value);

  /// Trims, and makes every inner run of blanks and tabs one blank.
  static void append_collapsed(std::string& out, std::string_view value);

  std::string names_;
  std::vector<entry> entries_;
};

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/sign/detail/impl/canonical_headers.ipp>
#endif
