// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/device/batch_rows.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::shared_ptr<batch_builder> started_batch(const batch_layout& layout,
                                                             const std::shared_ptr<batch_memory>& memory) {
  bool page_locked = false;
  writable_bytes bytes = memory->acquire(page_locked);
  auto made =
      std::make_shared<batch_builder>(std::make_shared<batch_parts>(layout, std::move(bytes), page_locked, memory));
  made->clear_whole();
  return made;
}

MILLRACE_COROUTINE_BODY stream<host_batch> seal_rows_stage::operator()(async_generator<written> source) && {
  return stream<host_batch>(seal_batches(std::move(source), last_, has_pool_, judged_, "batch"))
      .named("batch", "")
      .bounded(batches_, bytes_);
}

}  // namespace millrace::detail
