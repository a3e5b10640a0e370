// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/shards/chunk.hpp>
#include <millrace/shards/member.hpp>
#include <millrace/tar/reader_options.hpp>

namespace millrace {

namespace detail {

MILLRACE_COROUTINE async_generator<member> untar_plain_members(async_generator<chunk> in, tar::reader_options options);

}  // namespace detail

/// Stage: chunks -> members, for plain tar archives only; does not need libarchive. See untar().
MILLRACE_COROUTINE inline auto untar_plain(tar::reader_options options = {}) {
  return [options](async_generator<chunk> in) {
    return stream<member>(detail::untar_plain_members(std::move(in), options)).named("untar");
  };
}

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/impl/untar_plain.ipp>
#endif
