// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/xml.hpp>

namespace millrace::s3_server::detail {

MILLRACE_INLINE xml& xml::open(std::string_view name, std::string_view attributes) {
  text_ += '<';
  text_ += name;
  if (!attributes.empty()) text_ += ' ';
  text_ += attributes;
  text_ += '>';
  return *this;
}

MILLRACE_INLINE xml& xml::close(std::string_view name) {
  text_ += "</";
  text_ += name;
  text_ += '>';
  return *this;
}

MILLRACE_INLINE xml& xml::element(std::string_view name, std::string_view content, std::string_view attributes) {
  open(name, attributes);
  for (char c : content) append(c);
  return close(name);
}

MILLRACE_INLINE void xml::append(char c) {
  switch (c) {
    case '&':
      text_ += "&amp;";
      return;
    case '<':
      text_ += "&lt;";
      return;
    case '>':
      text_ += "&gt;";
      return;
    case '"':
      text_ += "&quot;";
      return;
    default:
      break;
  }
  if (static_cast<unsigned char>(c) >= 0x20) {
    text_ += c;
    return;
  }
  char reference[8];
  std::snprintf(reference, sizeof reference, "&#x%x;", static_cast<unsigned>(static_cast<unsigned char>(c)));
  text_ += reference;
}

}  // namespace millrace::s3_server::detail
