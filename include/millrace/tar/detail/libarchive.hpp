// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <archive.h>
#include <archive_entry.h>

#include <millrace/tar/format.hpp>

namespace millrace::tar::detail {

/// \file
/// The only place that sees libarchive's names.

struct free_archive {
  void operator()(::archive* a) const noexcept { ::archive_read_free(a); }
};
using archive_handle = std::unique_ptr<::archive, free_archive>;

/// libarchive's words for its last error. It has none for some.
inline std::string archive_words(::archive* a) {
  const char* words = ::archive_error_string(a);
  return words != nullptr ? words : "the data ends too early or is damaged";
}

/// Lets `a` read this one compression or format and no other. A filter is appended, not supported: libarchive would ask
/// its output for a further layer, again and again and inside the call that opens, where nothing bounds what a few
/// hundred bytes become. The tar format is not among them: decompressed bytes are taken raw and walked by tar::reader.
/// Returns false where libarchive lacks it (it would run a program).
inline bool enable(::archive* a, format kind) {
  const auto unpack = [a](int filter) {
    return ::archive_read_append_filter(a, filter) == ARCHIVE_OK &&
           ::archive_read_support_format_raw(a) == ARCHIVE_OK && ::archive_read_support_format_empty(a) == ARCHIVE_OK;
  };
  switch (kind) {
    case format::gzip:
      return unpack(ARCHIVE_FILTER_GZIP);
    case format::bzip2:
      return unpack(ARCHIVE_FILTER_BZIP2);
    case format::xz:
      return unpack(ARCHIVE_FILTER_XZ);
    case format::zstd:
      return unpack(ARCHIVE_FILTER_ZSTD);
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

inline bool is_compression(format kind) noexcept { return kind >= format::gzip && kind <= format::lz4; }

/// Whether a warning is only about libarchive's wish to convert a name to the process's locale. Names are taken as
/// bytes, and a library does not set the locale.
inline bool is_about_charset(std::string_view words) noexcept {
  return words.find("be converted") != std::string_view::npos;
}

}  // namespace millrace::tar::detail
