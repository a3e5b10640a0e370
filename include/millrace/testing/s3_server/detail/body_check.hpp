// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/testing/s3_server/request.hpp>

namespace millrace::s3_server::detail {

/// The number in a chunk's size line, without its extensions; nothing when it is none.
std::optional<std::uint64_t> parse_chunk_size(std::string_view line);

/// Compares the body with every digest that came with it: the signed payload hash, Content-MD5 and x-amz-checksum-*, in
/// fields or trailing fields. Returns the checksums, for the object to keep; throws refusal.
std::vector<request::pair> check_body(request& r, std::string_view payload);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/body_check.ipp>
#endif
