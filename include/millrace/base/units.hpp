// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace millrace {

/// 1024 bytes.
inline constexpr std::size_t KiB = std::size_t(1) << 10;
/// 1024 KiB, in bytes.
inline constexpr std::size_t MiB = std::size_t(1) << 20;
/// 1024 MiB, in bytes.
inline constexpr std::size_t GiB = std::size_t(1) << 30;

/// "512 B", "16.0 MB", "1.84 GB": decimal units, as disks and networks count.
std::string format_bytes(double bytes);

/// "950", "12.3k", "4.56M": counts and rates.
std::string format_count(double count);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/base/impl/units.ipp>
#endif
