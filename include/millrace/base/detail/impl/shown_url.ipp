// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/shown_url.hpp>

namespace millrace::detail {

MILLRACE_INLINE std::string without_secrets(const std::string& url) {
  const std::size_t scheme = url.find("://");
  // One behind a slash or in the query is of another URL.
  const std::size_t begin = scheme == std::string::npos || url.find_first_of("/?#") < scheme ? 0 : scheme + 3;
  const std::size_t end = url.find_first_of("/?#", begin);  // of the authority (RFC 3986, 3.2)
  const std::size_t at = url.rfind('@', end);
  if (at != std::string::npos && at >= begin) {
    std::string text = url.substr(0, url.find_first_of("?#", at));
    return text.erase(begin, at + 1 - begin);
  }
  // A password with a slash, ? or # that should have been encoded: nobody can tell where it ends.
  if (end != std::string::npos && url.find('@', end) != std::string::npos) {
    const std::size_t colon = url.rfind(':', end);
    const bool port = colon == std::string::npos || colon < begin || url[begin] == '[' ||
                      url.find_first_not_of("0123456789", colon + 1) == end;
    if (url[end] != '/' || !port) return url.substr(0, begin) + "...";
  }
  return url.substr(0, url.find_first_of("?#", begin));
}

MILLRACE_INLINE std::string shown_url(const std::string& url) {
  const bool name = url.find("://") == std::string::npos || url.compare(0, 5, "s3://") == 0 ||
                    url.compare(0, 5, "S3://") == 0 || url.compare(0, 7, "file://") == 0;
  return name ? url : without_secrets(url);
}

}  // namespace millrace::detail
