// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <millrace/base/clock.hpp>
#include <millrace/http/headers.hpp>

namespace millrace {

/// The value of the header x-amz-retry-after: milliseconds. Nothing when it is not a plain number.
std::optional<duration> parse_retry_after(std::string_view text) noexcept;

/// The pause that an answer asks for: x-amz-retry-after, else Retry-After with seconds or a date (RFC 9110, 10.2.3).
/// `now` is the store's clock in unix seconds. Nothing when there is neither or it cannot be read.
std::optional<duration> retry_hint(const http::headers& fields, std::int64_t now);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/retry/impl/retry_hint.ipp>
#endif
