// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// A file that is there whole or not at all: written to `path` with ".part", which finish() renames. Throws io_error.
class whole_file {
 public:
  explicit whole_file(const std::string& path);
  whole_file(const whole_file&) = delete;
  whole_file& operator=(const whole_file&) = delete;
  ~whole_file();
  void write(std::string_view text);
  /// Nothing may be written after it.
  void finish();

 private:
  /// Throws; nothing is left then.
  [[noreturn]] void fail(int code);
  void close() noexcept;

  const std::string path_, part_;
  std::FILE* to_;
};
/// Writes a file as a whole.
void replace_file(const std::string& path, const std::string& text);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/detail/whole_file.ipp>
#endif
