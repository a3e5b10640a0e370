// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/tar/format.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// So many first bytes of an object tell its kind.
inline constexpr std::size_t text_head_bytes = tar::detect_bytes;

/// How text that begins like this is compressed; format::unknown: not at all. Throws decode_error for archives and
/// other compressions, archive_error for data that ends within its first bytes.
tar::format text_format(std::string_view head, const shard& of);

/// The error of text_format() for an archive.
decode_error no_text(tar::format kind, const shard& of);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/records/detail/text_format.ipp>
#endif
