// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <archive.h>
#include <archive_entry.h>

#include <millrace/base/owned.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::tar::detail {

/// \file
/// The only place that sees libarchive's names.

struct free_archive {
  void operator()(::archive* a) const noexcept { ::archive_read_free(a); }
};
using archive_handle = owned<::archive, free_archive>;

/// libarchive's words for its last error. It has none for some.
inline std::string archive_words(::archive* a) {
  const char* words = ::archive_error_string(a);
  return words != nullptr ? words : "the data ends too early or is damaged";
}

/// Lets `a` read this one compression or format and no other, so that nothing is guessed. The tar format is not among
/// them: decompressed bytes are taken raw and walked by tar::reader. Returns false where libarchive lacks it (it would
/// run a program).
inline bool enable(::archive* a, format kind) {
  int result = ARCHIVE_FATAL;
  switch (kind) {
    case format::gzip:
      result = ::archive_read_support_filter_gzip(a);
      break;
    case format::bzip2:
      result = ::archive_read_support_filter_bzip2(a);
      break;
    case format::xz:
      result = ::archive_read_support_filter_xz(a);
      break;
    case format::zstd:
      result = ::archive_read_support_filter_zstd(a);
      break;
    case format::lz4:
      result = ::archive_read_support_filter_lz4(a);
      break;
    case format::zip:
      return ::archive_read_support_format_zip_streamable(a) == ARCHIVE_OK;
    case format::cpio:
      return ::archive_read_support_format_cpio(a) == ARCHIVE_OK;
    default:
      break;
  }
  return result == ARCHIVE_OK && ::archive_read_support_format_raw(a) == ARCHIVE_OK &&
         ::archive_read_support_format_empty(a) == ARCHIVE_OK;
}

inline bool is_compression(format kind) noexcept { return kind >= format::gzip && kind <= format::lz4; }

/// Whether a warning is only about libarchive's wish to convert a name to the process's locale. Names are taken as
/// bytes, and a library does not set the locale.
inline bool is_about_charset(std::string_view words) noexcept {
  return words.find("be converted") != std::string_view::npos;
}

}  // namespace millrace::tar::detail
