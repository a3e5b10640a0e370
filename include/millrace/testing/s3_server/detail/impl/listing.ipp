// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/listing.hpp>

namespace millrace::s3_server::detail {

/// The first key of `all` that does not begin with `prefix` and is not before it.
MILLRACE_INLINE object_map::const_iterator behind_prefix(const object_map& all, std::string prefix) {
  while (!prefix.empty()) {
    const auto last = static_cast<unsigned char>(prefix.back());
    if (last != 0xff) {
      prefix.back() = static_cast<char>(last + 1);
      return all.lower_bound(prefix);
    }
    prefix.pop_back();
  }
  return all.end();
}

MILLRACE_INLINE list_page list(const object_map& all, const std::string& prefix, std::string_view delimiter,
                               const list_position& from, std::size_t limit) {
  list_page page;
  auto it = all.lower_bound(prefix);
  if (!from.text.empty()) {
    const auto behind = from.prefix ? behind_prefix(all, from.text) : all.upper_bound(from.text);
    if (behind == all.end() || (it != all.end() && behind->first > it->first)) it = behind;
  }
  while (it != all.end() && it->first.compare(0, prefix.size(), prefix) == 0) {
    if (page.count() == limit) {
      page.truncated = limit > 0;
      return page;
    }
    const std::size_t at = delimiter.empty() ? std::string::npos : it->first.find(delimiter, prefix.size());
    if (at == std::string::npos) {
      page.objects.emplace_back(it->first, it->second);
      page.next = list_position(it->first, false);
      ++it;
    } else {
      page.prefixes.push_back(it->first.substr(0, at + delimiter.size()));
      page.next = list_position(page.prefixes.back(), true);
      it = behind_prefix(all, page.prefixes.back());
    }
  }
  return page;
}

}  // namespace millrace::s3_server::detail
