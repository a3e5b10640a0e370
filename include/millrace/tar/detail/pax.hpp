// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::tar::detail {

/// What the pax records before a member say about it. Strings that are empty say nothing.
struct pax_records {
  std::string path;
  std::string sparse_name;  ///< of a sparse member, whose path is then a made-up one
  std::optional<std::uint64_t> size;
  bool sparse = false;

  void clear() noexcept;
};

/// A broken pax record: where in the header it begins, and why.
struct pax_problem {
  std::size_t at = 0;
  const char* reason = nullptr;
};

/// A run of decimal digits. Empty, too long, or anything else in it: nullopt.
std::optional<std::uint64_t> parse_decimal(std::string_view digits, std::size_t most_digits) noexcept;

/// The records that nearly every pax header consists of and that say nothing of names and bodies: mtime, atime, ctime.
inline bool is_time(std::string_view record) noexcept {
  return record.size() > 5 && std::memcmp(record.data() + 1, "time=", 5) == 0 &&
         (record[0] == 'm' || record[0] == 'a' || record[0] == 'c');
}

/// Reads the records "<length> <key>=<value>\n" of one extended header into `out`. POSIX.1-2017 pax, "pax Extended
/// Header". The grammar is kept strictly: a header that is not wholly records is refused.
pax_problem parse_pax(std::string_view text, bool global, std::size_t max_name, pax_records& out);

}  // namespace millrace::tar::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/detail/impl/pax.ipp>
#endif
