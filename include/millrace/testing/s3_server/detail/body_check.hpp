// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/testing/s3_server/message.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server::detail {

/// Appends the fields of `text`, lines that end in CR LF each. Returns the fault, or null. Strict: no folding, no bare
/// LF, no blank before the colon, no control characters (RFC 9112, 5).
const char* parse_fields(std::string_view text, std::vector<request::pair>& out);

/// Parses a request head: everything up to, without, the empty line, with the last field's CR LF. Returns the fault, or
/// null.
const char* parse_head(std::string_view text, request& r);

/// The number in a chunk's size line, without its extensions; nullopt if it is not one.
std::optional<std::uint64_t> parse_chunk_size(std::string_view line);

/// Compares the body with every digest that came with it: the signed payload hash, Content-MD5 and x-amz-checksum-*, in
/// fields or trailing fields. Returns the checksums, for the object to keep; throws refusal.
std::vector<request::pair> check_body(request& r, std::string_view payload);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/body_check.ipp>
#endif
