// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/flow/stream.hpp>

namespace millrace {

/// Expands WebDataset's brace lists: "train-{0000..1023}.tar" (numbers keep the width of the first one) and
/// "{a,b}.tar", several to a name, not nested. Text without braces is one name. Throws configuration_error for an
/// unclosed brace, an empty list, a range that is not ascending numbers, or more than ten million names.
std::vector<std::string> expand_braces(std::string_view text);

namespace detail {

MILLRACE_COROUTINE async_generator<shard> shards_of_names(std::vector<std::string> names);

}  // namespace detail

/// Source: shards by name, `shards("s3://bucket/train-{0000..1023}.tar")`, https:// URLs and paths alike, in the order
/// of the expansion. Sizes are learnt when they are read.
MILLRACE_COROUTINE stream<shard> shards(std::string_view names);
/// The same for several names or brace lists.
MILLRACE_COROUTINE stream<shard> shards(const std::vector<std::string>& names);

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/impl/shards.ipp>
#endif
