// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <millrace/coro/runtime_parts.hpp>
#include <millrace/data/shard.hpp>

namespace millrace::detail {

/// What a stage says in the log about archives that are unusual but not broken: the first few of them by name,
/// then, with the end of the stage, how many more there were.
class archive_warnings {
 public:
  archive_warnings(const executor& ex, bool report) noexcept : executor_(ex), report_(report) {}
  archive_warnings(const archive_warnings&) = delete;
  archive_warnings& operator=(const archive_warnings&) = delete;
  ~archive_warnings();

  /// An empty `warning` is none.
  void add(const shard& from, std::string_view warning);

 private:
  static constexpr std::uint64_t named = 5;

  const executor& executor_;
  const bool report_;
  std::uint64_t count_ = 0;
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/detail/impl/archive_warnings.ipp>
#endif
