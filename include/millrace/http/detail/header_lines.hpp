// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>

#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/detail/wipe.hpp>

namespace millrace::http::detail {

/// The fields of a request as libcurl takes them (CURLOPT_HTTPHEADER), in memory of our own: some are secrets, which
/// are overwritten in the end. libcurl makes a copy in its buffer for sending, which it frees as it is.
class header_lines {
 public:
  header_lines() = default;
  header_lines(const header_lines&) = delete;
  header_lines& operator=(const header_lines&) = delete;
  ~header_lines() {
    for (std::string& line : lines_) millrace::detail::wipe(line);
  }

  /// "name: value"; a field without a value is sent as one.
  void add(std::string_view name, std::string_view value);
  /// libcurl leaves out the field that it would add.
  void suppress(std::string_view name) {
    std::string& line = lines_.emplace_back(name);
    line += ':';
  }

  /// Valid until the next line is added.
  curl_slist* list();

 private:
  std::vector<std::string> lines_;
  std::vector<curl_slist> nodes_;
};

}  // namespace millrace::http::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/detail/impl/header_lines.ipp>
#endif
