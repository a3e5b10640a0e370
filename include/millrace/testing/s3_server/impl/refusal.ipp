// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/xml.hpp>
#include <millrace/testing/s3_server/refusal.hpp>

namespace millrace::s3_server {

MILLRACE_INLINE std::string refusal::document(const std::string& resource, const std::string& request_id) const {
  detail::xml out;
  out.open("Error").element("Code", code).element("Message", message);
  for (const auto& [name, value] : details) out.element(name, value);
  out.element("Resource", resource).element("RequestId", request_id).element("HostId", "server").close("Error");
  return out.take();
}

}  // namespace millrace::s3_server
