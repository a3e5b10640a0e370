// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace millrace::s3_server::detail {

/// Writes an XML document. Control characters become character references, as S3 writes them, although XML 1.0 forbids
/// most of those: it is why clients ask for `encoding-type=url`.
class xml {
 public:
  xml() : text_("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n") {}

  xml& open(std::string_view name, std::string_view attributes = {}) {
    text_ += '<';
    text_ += name;
    if (!attributes.empty()) text_ += ' ';
    text_ += attributes;
    text_ += '>';
    return *this;
  }
  xml& close(std::string_view name) {
    text_ += "</";
    text_ += name;
    text_ += '>';
    return *this;
  }
  xml& element(std::string_view name, std::string_view content, std::string_view attributes = {}) {
    open(name, attributes);
    for (char c : content) append(c);
    return close(name);
  }
  std::string take() { return std::move(text_); }

 private:
  void append(char c) {
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
  std::string text_;
};

}  // namespace millrace::s3_server::detail
