// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <millrace/testing/s3_server/object.hpp>
#include <millrace/testing/s3_server/request.hpp>

namespace millrace::s3_server::detail {

/// Bytes [first, first + length) of an object.
class selection {
 public:
  selection() = default;
  selection(std::uint64_t begin, std::uint64_t count) : first(begin), length(count) {}
  std::uint64_t first = 0;
  std::uint64_t length = 0;
};

/// What a Range field selects of an object (RFC 9110, 14.1.2); nothing when the whole object is to be sent: no field,
/// no byte range, or several of them. Throws refusal (416) when it lies behind the end: any range of an empty object
/// does.
std::optional<selection> parse_range(const std::string* field, std::uint64_t size);

/// True when the answer is 304; throws refusal (412) when If-Match names another object.
bool not_modified(const request& r, const object& o);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/conditions.ipp>
#endif
