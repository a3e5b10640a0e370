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
  static reply document(const std::string& xml) {
    reply a;
    a.set_document(xml);
    return a;
  }

  reply& add(std::string name, std::string value) {
    fields.emplace_back(std::move(name), std::move(value));
    return *this;
  }
  /// Replaces every field of that name (as it is spelt) by one; removes them when `value` is null.
  void set(std::string_view name, const std::string* value) {
    std::vector<field> kept;
    for (field& f : fields) {
      if (f.first != name) kept.push_back(std::move(f));
    }
    if (value != nullptr) kept.emplace_back(std::string(name), *value);
    fields = std::move(kept);
  }
  const std::string* find(std::string_view name) const noexcept {
    for (const field& f : fields) {
      if (f.first == name) return &f.second;
    }
    return nullptr;
  }

  void set_body(std::vector<bytes> slices) {
    body = std::move(slices);
    size = 0;
    for (const bytes& b : body) size += b.size();
  }
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
inline const char* reason_phrase(int status) noexcept {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 301:
      return "Moved Permanently";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 412:
      return "Precondition Failed";
    case 416:
      return "Range Not Satisfiable";
    case 429:
      return "Too Many Requests";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

}  // namespace millrace::s3_server
