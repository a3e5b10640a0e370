// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/memory/bytes.hpp>

namespace millrace::s3_server {

/// One request as it was received. The target is kept raw beside its decoded parts, because what is signed is what was
/// sent.
class request {
 public:
  using pair = std::pair<std::string, std::string>;

  std::string method;
  std::string target;         ///< path and query as sent
  int minor_version = 1;      ///< of HTTP/1
  std::vector<pair> fields;   ///< names in lower case, values trimmed, in the order of the message
  std::vector<pair> trailer;  ///< fields behind a chunked body
  bytes body;                 ///< decoded from chunks
  std::uint64_t connection = 0;

  std::string_view raw_path() const noexcept { return std::string_view(target).substr(0, target.find('?')); }
  std::string_view raw_query() const noexcept {
    const std::size_t mark = target.find('?');
    return mark == std::string::npos ? std::string_view() : std::string_view(target).substr(mark + 1);
  }

  /// The first field of that lower-case name, null when there is none.
  const std::string* field(std::string_view name) const noexcept;
  std::size_t count(std::string_view name) const noexcept;

  /// The parameters of the query; filled by the parser.
  std::vector<pair> query;
  const std::string* parameter_value(std::string_view name) const noexcept;
  bool has(std::string_view name) const noexcept { return parameter_value(name) != nullptr; }

  /// Filled by routing: decoded, `bucket` empty for the service itself.
  std::string bucket;
  std::string key;
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/impl/request.ipp>
#endif
