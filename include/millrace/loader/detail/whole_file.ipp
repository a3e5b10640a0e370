// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/loader/detail/whole_file.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE whole_file::whole_file(const std::string& path)
    : path_(path), part_(path + ".part"), to_(std::fopen(part_.c_str(), "wb")) {
  if (to_ == nullptr) fail(errno);
}

MILLRACE_INLINE whole_file::~whole_file() { close(); }

MILLRACE_INLINE void whole_file::close() noexcept {
  if (to_ == nullptr) return;
  static_cast<void>(std::fclose(std::exchange(to_, nullptr)));
  std::remove(part_.c_str());
}

MILLRACE_INLINE void whole_file::fail(int code) {
  close();
  throw io_error::of(code, "the file cannot be written", where{path_, {}, {}});
}

MILLRACE_INLINE void whole_file::write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), to_) != text.size()) fail(errno);
}

MILLRACE_INLINE void whole_file::finish() {
  if (std::fclose(std::exchange(to_, nullptr)) != 0 || std::rename(part_.c_str(), path_.c_str()) != 0) {
    const int code = errno;
    std::remove(part_.c_str());
    fail(code);
  }
}

MILLRACE_INLINE void replace_file(const std::string& path, const std::string& text) {
  whole_file to(path);
  to.write(text);
  to.finish();
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
