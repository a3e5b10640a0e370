// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace millrace::detail {

/// The lines that this process has said, by their hashes; 0 is a free place. The one thing that pipelines of a process
/// share unasked: constant-initialized, and never destroyed, as a loop may still speak while the program ends.
inline constinit std::atomic<std::uint64_t> lines_said[64]{};

/// Whether this process says `line` for the first time. For what is true of the process rather than of one pipeline: a
/// training makes a pipeline for every epoch, and its log shall not hold the same line a thousand times. Threads may
/// ask at once; one of them is told yes. When all places are taken the answer is always yes: rather twice than never.
bool first_time(std::string_view line) noexcept;

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/base/detail/impl/first_time.ipp>
#endif
