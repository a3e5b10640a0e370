// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/shards/detail/archive_warnings.hpp>

namespace millrace::detail {

MILLRACE_INLINE archive_warnings::~archive_warnings() {
  if (count_ <= named) return;
  try {
    say(executor_, "millrace: untar: " + std::to_string(count_ - named) + " more archives with such warnings");
  } catch (...) {  // no memory for a remark
  }
}

MILLRACE_INLINE void archive_warnings::add(const shard& from, std::string_view warning) {
  if (!report_ || warning.empty() || ++count_ > named) return;
  where at;
  at.object = from.shown();
  const archive_error text(std::string(warning), std::move(at));  // in the words and the escapes of an error
  say(executor_, std::string("millrace: untar: ") + text.what());
}

}  // namespace millrace::detail
