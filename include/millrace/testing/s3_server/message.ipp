// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/testing/s3_server/message.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server {

MILLRACE_INLINE const std::string* request::field(std::string_view name) const noexcept {
  for (const pair& f : fields) {
    if (f.first == name) return &f.second;
  }
  return nullptr;
}

MILLRACE_INLINE std::size_t request::count(std::string_view name) const noexcept {
  std::size_t n = 0;
  for (const pair& f : fields) n += f.first == name ? 1U : 0U;
  return n;
}

MILLRACE_INLINE const std::string* request::parameter_value(std::string_view name) const noexcept {
  for (const pair& p : query) {
    if (p.first == name) return &p.second;
  }
  return nullptr;
}

MILLRACE_INLINE reply reply::document(const std::string& xml) {
  reply a;
  a.set_document(xml);
  return a;
}

MILLRACE_INLINE void reply::set(std::string_view name, const std::string* value) {
  std::vector<field> kept;
  for (field& f : fields) {
    if (f.first != name) kept.push_back(std::move(f));
  }
  if (value != nullptr) kept.emplace_back(std::string(name), *value);
  fields = std::move(kept);
}

MILLRACE_INLINE const std::string* reply::find(std::string_view name) const noexcept {
  for (const field& f : fields) {
    if (f.first == name) return &f.second;
  }
  return nullptr;
}

MILLRACE_INLINE void reply::set_body(std::vector<bytes> slices) {
  body = std::move(slices);
  size = 0;
  for (const bytes& b : body) size += b.size();
}

MILLRACE_INLINE const char* reason_phrase(int status) noexcept {
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

MILLRACE_INLINE std::string refusal::document(const std::string& resource, const std::string& request_id) const {
  detail::xml out;
  out.open("Error").element("Code", code).element("Message", message);
  for (const auto& [name, value] : details) out.element(name, value);
  out.element("Resource", resource).element("RequestId", request_id).element("HostId", "server").close("Error");
  return out.take();
}

}  // namespace millrace::s3_server
