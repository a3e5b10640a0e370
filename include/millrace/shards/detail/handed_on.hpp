// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <millrace/base/error.hpp>
#include <millrace/data/shard.hpp>

namespace millrace::detail {

/// Adds to an error that breaks `from` off how many of its items ("sample", "member") had left a stage before.
void note_handed_on(error& broken, const shard& from, std::uint64_t count, const char* item);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/detail/impl/handed_on.ipp>
#endif
