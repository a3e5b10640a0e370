// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace millrace::s3_server::detail {

/// Writes an XML document. Control characters become character references, as S3 writes them, although XML 1.0 forbids
/// most of those: it is why clients ask for `encoding-type=url`.
class xml {
 public:
  xml() : text_("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n") {}

  xml& open(std::string_view name, std::string_view attributes = {});
  xml& close(std::string_view name);
  xml& element(std::string_view name, std::string_view content, std::string_view attributes = {});
  std::string take() { return std::move(text_); }

 private:
  void append(char c);
  std::string text_;
};

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/xml.ipp>
#endif
