// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/tar/detail/libarchive.hpp>

namespace millrace::tar::detail {

MILLRACE_INLINE bool enable(::archive* a, format kind) {
  const auto unpack = [a](int filter) {
    return ::archive_read_append_filter(a, filter) == ARCHIVE_OK &&
           ::archive_read_support_format_raw(a) == ARCHIVE_OK && ::archive_read_support_format_empty(a) == ARCHIVE_OK;
  };
  switch (kind) {
    case format::bzip2:
      return unpack(ARCHIVE_FILTER_BZIP2);
    case format::xz:
      return unpack(ARCHIVE_FILTER_XZ);
    case format::lz4:
      return unpack(ARCHIVE_FILTER_LZ4);
    case format::zip:
      return ::archive_read_support_format_zip_streamable(a) == ARCHIVE_OK;
    case format::cpio:
      return ::archive_read_support_format_cpio(a) == ARCHIVE_OK;
    default:
      return false;
  }
}

}  // namespace millrace::tar::detail
