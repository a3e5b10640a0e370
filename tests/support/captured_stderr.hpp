// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/support/forget_lines.hpp"

namespace millrace::test {

/// What the process writes to standard error from here on, be it to a pipe or to a terminal, as if it had said nothing
/// before. One at a time.
class captured_stderr {
 public:
  enum class into { pipe, terminal };

  /// Whether this machine lends terminals (a container may have no /dev/pts).
  static bool has_terminals() {
    const int fd = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool usable = ::grantpt(fd) == 0 && ::unlockpt(fd) == 0 && ::ptsname(fd) != nullptr;
    ::close(fd);
    return usable;
  }

  /// `columns`: of the terminal; 0: it does not say.
  explicit captured_stderr(into what, unsigned short columns = 0) {
    int write_end = -1;
    if (what == into::terminal) {
      read_end_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
      if (read_end_ >= 0 && ::grantpt(read_end_) == 0 && ::unlockpt(read_end_) == 0) {
        write_end = ::open(::ptsname(read_end_), O_RDWR | O_NOCTTY | O_CLOEXEC);
      }
    } else {
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC) == 0) {
        read_end_ = ends[0];
        write_end = ends[1];
      }
    }
    if (write_end < 0) throw std::runtime_error("standard error cannot be captured");
    forget_lines();
    std::fflush(stderr);
    saved_ = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    ::dup2(write_end, STDERR_FILENO);
    ::close(write_end);
    if (columns > 0) resize(columns);
    reader_ = std::thread([this] {
      char buffer[4096];
      for (;;) {
        const ssize_t n = ::read(read_end_, buffer, sizeof buffer);
        if (n <= 0) return;  // a terminal whose writers have closed it reads as an error
        text_.append(buffer, static_cast<std::size_t>(n));
      }
    });
  }
  captured_stderr(const captured_stderr&) = delete;
  captured_stderr& operator=(const captured_stderr&) = delete;
  ~captured_stderr() { end(); }

  /// Changes the width of the terminal.
  static void resize(unsigned short columns) {
    const ::winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    if (::ioctl(STDERR_FILENO, TIOCSWINSZ, &size) != 0) throw std::runtime_error("the terminal keeps its size");
  }
  /// Ends the capture and tells what the terminal got.
  const std::string& raw() {
    end();
    return text_;
  }
  /// The same, without carriage returns.
  std::string text() {
    end();
    std::string plain;
    for (const char c : text_) {
      if (c != '\r') plain += c;
    }
    return plain;
  }

 private:
  void end() {
    if (!reader_.joinable()) return;
    std::fflush(stderr);
    ::dup2(saved_, STDERR_FILENO);  // the last writer goes
    ::close(saved_);
    reader_.join();
    ::close(read_end_);
  }

  int read_end_ = -1;
  int saved_ = -1;
  std::string text_;  // the reader's, until it has ended
  std::thread reader_;
};

}  // namespace millrace::test
