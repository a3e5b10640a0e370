// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/memory/bytes.hpp>

namespace millrace::s3_server {

/// An answer before it is put on the wire.
class reply {
 public:
  using field = std::pair<std::string, std::string>;

  reply() = default;
  explicit reply(int http_status) : status(http_status) {}
  /// 200 with an XML document.
  static reply document(const std::string& xml);

  reply& add(std::string name, std::string value) {
    fields.emplace_back(std::move(name), std::move(value));
    return *this;
  }
  /// Replaces every field of that name (as it is spelt) by one; removes them when `value` is null.
  void set(std::string_view name, const std::string* value);
  const std::string* find(std::string_view name) const noexcept;

  void set_body(std::vector<bytes> slices);
  void set_document(const std::string& xml) {
    add("Content-Type", "application/xml");
    set_body({bytes::copy(xml)});
  }

  int status = 200;
  std::vector<field> fields;
  std::vector<bytes> body;
  std::uint64_t size = 0;     ///< of the body; of the one that a HEAD leaves out
  bool without_body = false;  ///< the answer to a HEAD, 204, 304
  bool close = false;         ///< the connection ends behind this answer
};

/// The phrase that goes with a status; only for people to read.
const char* reason_phrase(int status) noexcept;

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/impl/reply.ipp>
#endif
