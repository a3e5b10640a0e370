// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <millrace/base/clock.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/headers.hpp>

namespace millrace {

/// What to do about a failed request.
enum class retry_class {
  permanent,   ///< the same request will fail again
  transient,   ///< try again after a short pause
  throttling,  ///< the store asks for fewer requests: try again after a longer pause
  skew,        ///< our clock is off: sign again with the server's Date, once
  region,      ///< the bucket lives elsewhere: sign and send for its region, once
  expired,     ///< the credentials are over: fetch new ones and sign again, once
};

/// The class of an answer, by its HTTP status (0: none arrived, whatever the transport's reason) and S3's error code
/// (empty: none). A failed precondition (412), a range that is not there (416) and everything unknown are permanent.
retry_class classify(int status, std::string_view code) noexcept;

/// The class of a failure of the way: there was no answer, or none that can be believed.
retry_class classify(http::failure kind) noexcept;

/// The value of the header x-amz-retry-after: milliseconds. Nothing when it is not a plain number.
std::optional<duration> parse_retry_after(std::string_view text) noexcept;

/// The pause that an answer asks for: x-amz-retry-after, else Retry-After with seconds or a date (RFC 9110, 10.2.3).
/// `now` is the store's clock in unix seconds. Nothing when there is neither or it cannot be read.
std::optional<duration> retry_hint(const http::headers& fields, std::int64_t now);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/retry/impl/retry_class.ipp>
#endif
