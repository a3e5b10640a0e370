// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/conditions.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/testing/s3_server/refusal.hpp>

namespace millrace::s3_server::detail {

MILLRACE_INLINE std::optional<selection> parse_range(const std::string* field, std::uint64_t size) {
  constexpr std::string_view unit = "bytes=";
  if (field == nullptr || field->compare(0, unit.size(), unit) != 0) return std::nullopt;
  const std::string_view text = std::string_view(*field).substr(unit.size());
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = parse_number(text.substr(0, dash));
  const auto last = parse_number(text.substr(dash + 1));
  const refusal behind_end = refusal(416, "InvalidRange", "The requested range is not satisfiable")
                                 .with("RangeRequested", *field)
                                 .with("ActualObjectSize", std::to_string(size))
                                 .header("Content-Range", "bytes */" + std::to_string(size));
  if (dash == 0) {
    if (!last) return std::nullopt;
    if (*last == 0 || size == 0) throw behind_end;
    const std::uint64_t length = *last < size ? *last : size;
    return selection(size - length, length);
  }
  if (!first || (!last && dash + 1 != text.size()) || (last && *last < *first)) return std::nullopt;
  if (*first >= size) throw behind_end;
  const std::uint64_t end = last && *last < size - 1 ? *last + 1 : size;
  return selection(*first, end - *first);
}

/// True when a list of ETags ("*" for any) names `etag`; quotes may be left out, as S3 allows.
MILLRACE_INLINE bool names_etag(std::string_view list, std::string_view etag) {
  for (std::string_view part : split(list, ',')) {
    part = trim(part);
    if (part == "*" || part == etag || part == etag.substr(1, etag.size() - 2)) return true;
  }
  return false;
}

MILLRACE_INLINE bool not_modified(const request& r, const object& o) {
  const std::string* match = r.field("if-match");
  if (match != nullptr && !names_etag(*match, o.etag)) {
    throw refusal(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
        .with("Condition", "If-Match");
  }
  const std::string* none_match = r.field("if-none-match");
  return none_match != nullptr && names_etag(*none_match, o.etag);
}

}  // namespace millrace::s3_server::detail
