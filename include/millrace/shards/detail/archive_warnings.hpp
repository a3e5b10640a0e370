// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include <millrace/base/shard.hpp>

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
    std::string line = "millrace: untar: " + from.shown() + ": ";
    line += warning;
    std::fprintf(stderr, "%s\n", line.c_str());
  }

 private:
  static constexpr std::uint64_t named = 5;

  const bool report_;
  std::uint64_t count_ = 0;
};

}  // namespace millrace::detail
