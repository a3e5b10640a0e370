// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/config/detail/read_small_file.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE file_text read_small_file(const std::string& path) {
  static constexpr std::size_t longest = std::size_t(1) << 20;
  class descriptor {
   public:
    explicit descriptor(int fd) noexcept : fd_(fd) {}
    descriptor(const descriptor&) = delete;
    descriptor& operator=(const descriptor&) = delete;
    ~descriptor() {
      if (fd_ >= 0) ::close(fd_);
    }
    int get() const noexcept { return fd_; }

   private:
    int fd_;
  };
  const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return file_text(errno);
  struct stat status;
  if (::fstat(file.get(), &status) != 0) return file_text(errno);
  if (S_ISDIR(status.st_mode)) return file_text(EISDIR);
  if (!S_ISREG(status.st_mode)) return file_text(EINVAL);
  file_text out{std::string()};
  if (status.st_size > static_cast<off_t>(longest)) return file_text(EFBIG);
  out.text.resize(static_cast<std::size_t>(status.st_size) + 1);  // one more: whether it has grown meanwhile
  std::size_t filled = 0;
  for (;;) {
    if (filled == out.text.size()) {
      if (filled > longest) return file_text(EFBIG);
      out.text.resize(2 * filled);  // files of /proc say 0
    }
    const ssize_t n = ::read(file.get(), out.text.data() + filled, out.text.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_text(errno);
    if (n == 0) break;
    filled += static_cast<std::size_t>(n);
  }
  out.text.resize(filled);
  return out;
}

}  // namespace millrace::s3::detail
