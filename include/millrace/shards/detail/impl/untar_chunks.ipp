// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/shards/detail/handed_on.hpp>
#include <millrace/shards/detail/untar_chunks.hpp>

namespace millrace::detail {

[[noreturn]] MILLRACE_INLINE void rethrow_from(std::exception_ptr broken, const shard* from, std::uint64_t handed_on) {
  try {
    std::rethrow_exception(std::move(broken));
  } catch (error& e) {
    if (from != nullptr) note_handed_on(e, *from, handed_on, "member");
    throw;
  }
}

}  // namespace millrace::detail
