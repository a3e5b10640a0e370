// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace::s3::detail {

/// Writes the canonical query string of SigV4: names and values encoded, sorted by encoded name, then by encoded value.
///
/// Keeps its scratch memory between calls. Text that is not encoded canonically (`/` left as it is, lower-case
/// hexadecimal) is signed in its canonical form, as the server will compute it from the request.
class canonical_query {
 public:
  /// Appends to `out`. Throws configuration_error for a broken escape and for `+`, which some servers read as a space
  /// and others as itself: the signature could not hold for both.
  void append(std::string& out, std::string_view query);

 private:
  struct parameter {
    std::string_view name;
    std::string_view value;

    bool operator<(const parameter& other) const noexcept {
      return name != other.name ? name < other.name : value < other.value;
    }
  };

  /// Keeps the parameters sorted. A request has a handful of them.
  void insert(const parameter& p);

  std::string_view canonical(std::string_view text);

  std::vector<parameter> parameters_;
  std::string rewritten_;
};

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/sign/detail/impl/canonical_query.ipp>
#endif
