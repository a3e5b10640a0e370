// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include <millrace/train/rank_group.hpp>

namespace test {

/// Calls `train` with the group of the processes that the engine has started, and returns what it returns:
/// group_by_*.cpp, of which each program has one.
int with_group(int count, char** arguments, const std::function<int(const millrace::rank_group&)>& train);

}  // namespace test
