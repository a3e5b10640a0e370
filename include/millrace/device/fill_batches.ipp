// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/device/fill_batches.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_COROUTINE_BODY stream<host_batch> seal_batches_stage::operator()(async_generator<written> source) && {
  return stream<host_batch>(seal_batches(std::move(source), last_, has_pool_, policy_, "fill_batches"))
      .named("fill_batches", ".limit")
      .bounded(items_, bytes_);
}

}  // namespace millrace::detail
