// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace millrace::detail {

/// Writes a file as a whole: to `path` with ".part", which is then renamed. Throws io_error.
void replace_file(const std::string& path, const std::string& text);
/// Appends `text` as a JSON string, with its quotes. What is no UTF-8 becomes U+FFFD.
void append_json(std::string& out, std::string_view text);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/detail/whole_file.ipp>
#endif
