// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/wire/detail/xml_legal.hpp>
#include <millrace/s3/wire/error_document.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE void error_document_handler::leaf(std::string_view path, const std::string& text) {
  if (path == "ErrorResponse/RequestId") return assign(out_.request_id, text);
  static constexpr std::string_view outer = "ErrorResponse/";
  if (path.substr(0, outer.size()) == outer) path.remove_prefix(outer.size());
  if (path == "Error/Code") return assign(out_.code, text);
  if (path == "Error/Message") return assign(out_.message, text);
  if (path == "Error/Region") return assign(out_.region, text);
  if (path == "Error/Endpoint") return assign(out_.endpoint, text);
  if (path == "Error/Resource") return assign(out_.resource, text);
  if (path == "Error/RequestId") return assign(out_.request_id, text);
}

}  // namespace millrace::s3::detail

namespace millrace::s3 {

MILLRACE_INLINE std::optional<error_document> error_document::parse(std::string_view body) {
  error_document out;
  detail::error_document_handler handler(out);
  detail::xml_limits limits;
  limits.document = std::size_t(1) << 20;
  if (body.size() > limits.document) return std::nullopt;
  detail::xml_reader reader(handler, limits);
  if (!reader.read(detail::xml_legal(body)).empty() || !handler.is_error() || out.code.empty()) return std::nullopt;
  return out;
}

}  // namespace millrace::s3
