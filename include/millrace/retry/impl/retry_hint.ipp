// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/retry/retry_hint.hpp>
#include <millrace/text/dates.hpp>
#include <millrace/text/numbers.hpp>

namespace millrace {

MILLRACE_INLINE std::optional<duration> parse_retry_after(std::string_view text) noexcept {
  const std::optional<std::int64_t> value = text::parse_decimal<std::int64_t>(text, 0, 999'999'999);
  if (!value) return std::nullopt;
  return duration(*value * 1'000'000);
}

MILLRACE_INLINE std::optional<duration> retry_hint(const http::headers& fields, std::int64_t now) {
  if (const std::string* ms = fields.find("x-amz-retry-after")) return parse_retry_after(*ms);
  const std::string* value = fields.find("retry-after");
  if (value == nullptr) return std::nullopt;
  if (const std::optional<duration> seconds = parse_retry_after(*value)) return *seconds * 1000;
  const std::optional<std::int64_t> due = text::parse_http_date(*value, now);
  if (!due) return std::nullopt;
  return duration(std::clamp<std::int64_t>(*due - now, 0, 999'999'999) * 1'000'000'000);
}

}  // namespace millrace
