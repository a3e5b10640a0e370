// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cstddef>

#include <millrace/base/compiler.hpp>
#include <millrace/loop/detail/ring_prepare.hpp>

namespace millrace::detail {

MILLRACE_INLINE void prepare(io_uring_sqe* e, const file_request& r) noexcept {
  constexpr std::size_t longest = 0x7ffff000;
  const auto size = static_cast<unsigned>(r.size < longest ? r.size : longest);
  switch (r.what) {
    case file_request::kind::open:
      io_uring_prep_openat(e, AT_FDCWD, r.path, r.flags, r.mode);
      break;
    case file_request::kind::stat:
      io_uring_prep_statx(e, r.fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, r.status);
      break;
    case file_request::kind::read:
      io_uring_prep_read(e, r.fd, r.data, size, r.offset);
      break;
    case file_request::kind::write:
      io_uring_prep_write(e, r.fd, r.data, size, r.offset);
      break;
    case file_request::kind::close:
      io_uring_prep_close(e, r.fd);
      break;
    case file_request::kind::sync:
      io_uring_prep_fsync(e, r.fd, IORING_FSYNC_DATASYNC);
      break;
  }
}

}  // namespace millrace::detail
