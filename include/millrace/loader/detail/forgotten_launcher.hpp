// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/coro/runtime_parts.hpp>
#include <millrace/data/rank.hpp>

namespace millrace::detail {

/// A sentence where a launcher has started several processes, and the program says of this one that it is alone: each
/// of them would train on all of the data. Empty where all is well. A program may mean it, so it is no error.
std::string forgotten_launcher(const rank& said, const environment& variables);

/// Says that in the log, once in a process.
void say_launcher(runtime_parts& log, const rank& said, const environment& variables);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/detail/impl/forgotten_launcher.ipp>
#endif
