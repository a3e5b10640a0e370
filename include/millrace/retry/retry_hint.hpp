// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/clock.hpp>
#include <millrace/http/headers.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/numbers.hpp>

namespace millrace {

/// The value of the header x-amz-retry-after: milliseconds. Nothing when it is not a plain number.
template <class = void>
std::optional<duration> parse_retry_after(std::string_view text) noexcept {
  const std::optional<std::int64_t> value = text::parse_decimal<std::int64_t>(text, 0, 999'999'999);
  if (!value) return std::nullopt;
  return duration(*value * 1'000'000);
}

/// The pause that an answer asks for: x-amz-retry-after, else Retry-After with seconds or a date (RFC 9110, 10.2.3).
/// `now` is the store's clock in unix seconds. Nothing when there is neither or it cannot be read.
template <class = void>
std::optional<duration> retry_hint(const http::headers& fields, std::int64_t now) {
  if (const std::string* ms = fields.find("x-amz-retry-after")) return parse_retry_after(*ms);
  const std::string* value = fields.find("retry-after");
  if (value == nullptr) return std::nullopt;
  if (const std::optional<duration> seconds = parse_retry_after(*value)) return *seconds * 1000;
  const std::optional<std::int64_t> due = text::parse_http_date(*value, now);
  if (!due) return std::nullopt;
  return duration(std::clamp<std::int64_t>(*due - now, 0, 999'999'999) * 1'000'000'000);
}

}  // namespace millrace
