// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::s3_server::detail {

inline char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

std::string lower_case(std::string_view text);

std::string upper_case(std::string_view text);

bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept;

/// Without blanks and tabs at both ends.
std::string_view trim(std::string_view text) noexcept;

/// The parts between separators, empty ones too.
std::vector<std::string_view> split(std::string_view text, char separator);

/// A decimal number of digits alone; nothing when it does not fit.
std::optional<std::uint64_t> parse_number(std::string_view text) noexcept;

/// Compares without saying by its duration where the first difference is.
bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept;

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/text.ipp>
#endif
