// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE std::unique_ptr<object_check> object_check::fork() const { return nullptr; }

MILLRACE_INLINE task<std::unique_ptr<object_check>> storage::check(shard /*object*/, std::string /*etag*/) const {
  return task<std::unique_ptr<object_check>>();
}

MILLRACE_INLINE async_generator<shard> storage::list(std::string /*prefix*/) const { return {}; }

}  // namespace millrace
