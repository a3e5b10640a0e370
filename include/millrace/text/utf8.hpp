// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/base/detail/utf8.hpp>

namespace millrace::text {

/// Appends the UTF-8 of a code point up to U+10FFFF that is no surrogate (RFC 3629).
void append_utf8(std::string& out, std::uint32_t code);

// Reading stands in base/, whose errors escape what they quote.
using millrace::detail::first_utf8;
using millrace::detail::utf8_character;

}  // namespace millrace::text

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/text/impl/utf8.ipp>
#endif
