// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/error.hpp>
#include <millrace/data/shard.hpp>

namespace millrace::detail {

/// What a stage says on standard error about archives that are unusual but not broken: the first few of them by name,
/// then, with the end of the stage, how many more there were.
template <class = void>
class archive_warnings {
 public:
  explicit archive_warnings(bool report) noexcept : report_(report) {}
  archive_warnings(const archive_warnings&) = delete;
  archive_warnings& operator=(const archive_warnings&) = delete;
  ~archive_warnings() {
    if (count_ <= named) return;
    std::fprintf(stderr, "millrace: untar: %llu more archives with such warnings\n",
                 static_cast<unsigned long long>(count_ - named));
  }

  /// An empty `warning` is none.
  void add(const shard& from, std::string_view warning) {
    if (!report_ || warning.empty() || ++count_ > named) return;
    where at;
    at.object = from.shown();
    const archive_error text(std::string(warning), std::move(at));  // in the words and the escapes of an error
    std::fprintf(stderr, "millrace: untar: %s\n", text.what());
  }

 private:
  static constexpr std::uint64_t named = 5;

  const bool report_;
  std::uint64_t count_ = 0;
};

}  // namespace millrace::detail
