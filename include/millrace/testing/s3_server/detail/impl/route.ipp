// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/percent.hpp>
#include <millrace/testing/s3_server/detail/route.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/testing/s3_server/refusal.hpp>

namespace millrace::s3_server::detail {

MILLRACE_INLINE bool is_ipv4(std::string_view host) {
  const auto parts = split(host, '.');
  if (parts.size() != 4) return false;
  for (std::string_view part : parts) {
    const auto number = parse_number(part);
    if (!number || *number > 255) return false;
  }
  return true;
}

MILLRACE_INLINE void route(request& r, const options& o) {
  const std::string* field = r.field("host");
  const std::string host = lower_case(field == nullptr ? "127.0.0.1" : field->substr(0, field->rfind(':')));
  std::string_view path = r.raw_path().substr(1);
  bool in_path = is_ipv4(host);
  bool in_host = false;
  for (const std::string& name : o.host_names) {
    if (host == name) in_path = true;
    if (!in_path && host.size() > name.size() + 1 && host.ends_with("." + name)) {
      in_host = true;
      r.bucket = host.substr(0, host.size() - name.size() - 1);
    }
  }
  if (!in_path && !in_host) {
    throw refusal(400, "InvalidRequest", "The Host header names none of this server's hosts").with("Host", host);
  }
  if (in_path) {
    const std::size_t slash = path.find('/');
    r.bucket = percent_decode(path.substr(0, slash)).value_or("");
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  }
  r.key = percent_decode(path).value_or("");
}

}  // namespace millrace::s3_server::detail
