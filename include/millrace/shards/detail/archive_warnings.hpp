// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/coro/runtime_parts.hpp>
#include <millrace/data/shard.hpp>

namespace millrace::detail {

/// What a stage says in the log about archives that are unusual but not broken: the first few of them by name,
/// then, with the end of the stage, how many more there were.
template <class = void>
class archive_warnings {
 public:
  archive_warnings(const executor& ex, bool report) noexcept : executor_(ex), report_(report) {}
  archive_warnings(const archive_warnings&) = delete;
  archive_warnings& operator=(const archive_warnings&) = delete;
  ~archive_warnings() {
    if (count_ <= named) return;
    try {
      say(executor_, "millrace: untar: " + std::to_string(count_ - named) + " more archives with such warnings");
    } catch (...) {  // no memory for a remark
    }
  }

  /// An empty `warning` is none.
  void add(const shard& from, std::string_view warning) {
    if (!report_ || warning.empty() || ++count_ > named) return;
    where at;
    at.object = from.shown();
    const archive_error text(std::string(warning), std::move(at));  // in the words and the escapes of an error
    say(executor_, std::string("millrace: untar: ") + text.what());
  }

 private:
  static constexpr std::uint64_t named = 5;

  const executor& executor_;
  const bool report_;
  std::uint64_t count_ = 0;
};

}  // namespace millrace::detail
