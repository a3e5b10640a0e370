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

namespace millrace::inline MILLRACE_ABI::s3_server {

/// One request as it was received. The target is kept raw beside its decoded parts, because the raw bytes are signed.
class request {
 public:
  using pair = std::pair<std::string, std::string>;

  std::string method;
  std::string target;         ///< path and query as sent
  int minor_version = 1;      ///< of HTTP/1
  std::vector<pair> fields;   ///< names in lower case, values trimmed, in the order of the message
  std::vector<pair> trailer;  ///< fields after a chunked body
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
  bool close = false;         ///< the connection ends after this answer
};

/// The phrase that goes with a status; only for people to read.
const char* reason_phrase(int status) noexcept;

/// A request that is answered with one of S3's errors: thrown by the checks, sent as the error document.
class refusal {
 public:
  refusal(int http_status, std::string error_code, std::string error_message)
      : status(http_status), code(std::move(error_code)), message(std::move(error_message)) {}

  /// One more element of the document ("Region", "ServerTime").
  refusal with(std::string name, std::string value) && {
    details.emplace_back(std::move(name), std::move(value));
    return std::move(*this);
  }
  /// One more field of the answer.
  refusal header(std::string name, std::string value) && {
    fields.emplace_back(std::move(name), std::move(value));
    return std::move(*this);
  }

  /// The body of the answer, as S3 writes it.
  std::string document(const std::string& resource, const std::string& request_id) const;

  int status;
  std::string code;
  std::string message;
  std::vector<std::pair<std::string, std::string>> details;
  std::vector<std::pair<std::string, std::string>> fields;
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/message.ipp>
#endif
