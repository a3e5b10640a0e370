// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace millrace::s3::detail {

/// What became of reading a file: its text, or the errno value that says why not. Overwritten on destruction: it may be
/// a token.
class file_text {
 public:
  explicit file_text(int errno_value) : error(errno_value) {}
  explicit file_text(std::string contents) : text(std::move(contents)) {}
  file_text(file_text&&) noexcept = default;
  file_text& operator=(file_text&&) = delete;
  ~file_text() { OPENSSL_cleanse(text.data(), text.size()); }

  /// A file that is not there, or not for us to know of.
  bool absent() const noexcept { return error == ENOENT || error == ENOTDIR; }
  std::string reason() const { return std::generic_category().message(error); }

  int error = 0;
  std::string text;
};

/// Reads a configuration or token file, at most 1 MiB (EFBIG beyond), at once: such files are small and local, and a
/// refresh reads one every hour or so. Only regular files: a pipe would block (EINVAL).
file_text read_small_file(const std::string& path);

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/config/detail/impl/read_small_file.ipp>
#endif
