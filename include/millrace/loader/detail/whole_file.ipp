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

}  // namespace millrace::detail
