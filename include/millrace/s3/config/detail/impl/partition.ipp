// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/config/detail/partition.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE partition partition_of(std::string_view region) noexcept {
  struct row {
    std::string_view prefix;
    partition where;
  };
  static constexpr row table[] = {
      {"cn-", {"aws-cn", "amazonaws.com.cn"}},       {"aws-cn-", {"aws-cn", "amazonaws.com.cn"}},
      {"us-gov-", {"aws-us-gov", "amazonaws.com"}},  {"aws-us-gov-", {"aws-us-gov", "amazonaws.com"}},
      {"us-iso-", {"aws-iso", "c2s.ic.gov"}},        {"aws-iso-global", {"aws-iso", "c2s.ic.gov"}},
      {"us-isob-", {"aws-iso-b", "sc2s.sgov.gov"}},  {"aws-iso-b-", {"aws-iso-b", "sc2s.sgov.gov"}},
      {"eu-isoe-", {"aws-iso-e", "cloud.adc-e.uk"}}, {"us-isof-", {"aws-iso-f", "csp.hci.ic.gov"}},
      {"eusc-", {"aws-eusc", "amazonaws.eu"}},
  };
  for (const row& r : table) {
    if (region.substr(0, r.prefix.size()) == r.prefix) return r.where;
  }
  return {"aws", "amazonaws.com"};
}

}  // namespace millrace::s3::detail
