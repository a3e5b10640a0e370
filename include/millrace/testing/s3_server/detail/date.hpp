// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <time.h>

namespace millrace::s3_server::detail {

/// "Fri, 24 May 2013 00:00:00 GMT" (RFC 9110, 5.6.7); no locale takes part.
std::string http_date(std::int64_t unix_seconds);

/// "2013-05-24T00:00:00.000Z", as S3's documents have it.
std::string iso_date(std::int64_t unix_seconds);

/// "20130524T000000Z" as Unix time; nothing for any other text and for days that do not exist.
std::optional<std::int64_t> parse_basic_date(std::string_view text) noexcept;

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/date.ipp>
#endif
