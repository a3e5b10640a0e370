// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/http/detail/header_lines.hpp>

namespace millrace::http::detail {

MILLRACE_INLINE void header_lines::add(std::string_view name, std::string_view value) {
  std::string& line = lines_.emplace_back();
  line.reserve(name.size() + 2 + value.size());  // grown, it would leave its beginning behind
  line += name;
  line += value.empty() ? ";" : ": ";
  line += value;
}

MILLRACE_INLINE curl_slist* header_lines::list() {
  nodes_.resize(lines_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].data = lines_[i].data();
    nodes_[i].next = i + 1 < nodes_.size() ? &nodes_[i + 1] : nullptr;
  }
  return nodes_.empty() ? nullptr : nodes_.data();
}

}  // namespace millrace::http::detail
