// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/testing/s3_server/object.hpp>

namespace millrace::s3_server::detail {

using object_map = std::map<std::string, std::shared_ptr<const object>, std::less<>>;

/// Where a listing goes on: behind a key, or behind every key that begins with a prefix.
class list_position {
 public:
  list_position() = default;
  list_position(std::string after, bool whole_prefix) : text(std::move(after)), prefix(whole_prefix) {}
  std::string text;
  bool prefix = false;
};

class list_page {
 public:
  std::vector<std::pair<std::string, std::shared_ptr<const object>>> objects;
  std::vector<std::string> prefixes;
  bool truncated = false;
  list_position next;  // when truncated

  std::size_t count() const noexcept { return objects.size() + prefixes.size(); }
};

/// One page of ListObjectsV2: keys with `prefix` behind `from` in the order of their bytes; keys that have `delimiter`
/// behind the prefix are rolled up. A key and a rolled-up prefix count the same towards `limit`.
list_page list(const object_map& all, const std::string& prefix, std::string_view delimiter, const list_position& from,
               std::size_t limit);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/listing.ipp>
#endif
