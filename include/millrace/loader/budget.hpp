// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <millrace/flow/stream.hpp>

namespace millrace {

namespace detail {
/// The sum, or the largest number where it would wrap around.
inline std::size_t added(std::size_t a, std::size_t b) noexcept { return b > SIZE_MAX - a ? SIZE_MAX : a + b; }
}  // namespace detail

/// What the stages of a pipeline have declared to hold at most, as a table: `budget_table(pipeline.bounds())`.
std::string budget_table(const std::vector<stage_bounds>& bounds);

/// What they leave of `budget` bytes, for stages that have to grow. Throws configuration_error that lists the bounds
/// when they do not fit, or when a stage that works ahead states no bound in bytes. A budget of 0 is none, and SIZE_MAX
/// is left.
std::size_t check_budget(const std::vector<stage_bounds>& bounds, std::size_t budget);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/impl/budget.ipp>
#endif
