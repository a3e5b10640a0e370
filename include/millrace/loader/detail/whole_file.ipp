// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/loader/detail/whole_file.hpp>

namespace millrace::detail {

MILLRACE_INLINE void replace_file(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  const auto fail = [&](int code) {
    std::remove(part.c_str());
    throw io_error::of(code, "the file cannot be written", where{path, {}, {}});
  };
  std::FILE* const to = std::fopen(part.c_str(), "wb");
  if (to == nullptr) fail(errno);
  const bool written = std::fwrite(text.data(), 1, text.size(), to) == text.size();
  const int code = errno;
  if (std::fclose(to) != 0) fail(errno);
  if (!written) fail(code);
  if (std::rename(part.c_str(), path.c_str()) != 0) fail(errno);
}

/// Bytes of the UTF-8 character at the beginning of `s`; 0 if there is no valid one.
MILLRACE_INLINE std::size_t utf8_length(std::string_view s) noexcept {
  const auto at = [s](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned first = at(0);
  const std::size_t n = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (n > s.size()) return 0;
  for (std::size_t i = 1; i < n; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  if (n > 1 && ((first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) > 0x9f) || (first == 0xf0 && at(1) < 0x90) ||
                (first == 0xf4 && at(1) > 0x8f))) {
    return 0;
  }
  return n;
}

MILLRACE_INLINE void append_json(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const std::size_t n = utf8_length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    if (n == 0) {
      out += "\\ufffd";
    } else if (c < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += text.substr(0, n);
    }
    text.remove_prefix(n == 0 ? 1 : n);
  }
  out += '"';
}

}  // namespace millrace::detail
