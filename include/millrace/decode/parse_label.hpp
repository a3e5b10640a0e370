// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/error.hpp>
#include <millrace/memory/bytes.hpp>

namespace millrace {

/// A class number written as text ("cls" fields): decimal, surrounding blanks and line ends allowed, nothing else.
/// Throws decode_error.
std::int64_t parse_label(const bytes& text, const where& at = where());

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/decode/impl/parse_label.ipp>
#endif
