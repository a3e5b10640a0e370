// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <millrace/testing/s3_server/request.hpp>

namespace millrace::s3_server::detail {

/// Appends the fields of `text`, lines that end in CR LF each. Returns what is wrong, null when nothing is. Strict: no
/// folding, no bare LF, no blank before the colon, no control characters (RFC 9112, 5).
const char* parse_fields(std::string_view text, std::vector<request::pair>& out);

/// Parses a request head: everything up to, without, the empty line, with the last field's CR LF. Returns what is
/// wrong, null when nothing is.
const char* parse_head(std::string_view text, request& r);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/parse_head.ipp>
#endif
