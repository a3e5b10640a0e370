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
bool enable(::archive* a, format kind);

inline bool is_compression(format kind) noexcept { return kind >= format::gzip && kind <= format::lz4; }

/// Whether a warning is only about libarchive's wish to convert a name to the process's locale. Names are taken as
/// bytes, and a library does not set the locale.
inline bool is_about_charset(std::string_view words) noexcept {
  return words.find("be converted") != std::string_view::npos;
}

}  // namespace millrace::tar::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/detail/impl/libarchive.ipp>
#endif
