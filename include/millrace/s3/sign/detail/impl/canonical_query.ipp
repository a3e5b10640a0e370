// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/s3/sign/detail/canonical_path.hpp>
#include <millrace/s3/sign/detail/canonical_query.hpp>
#include <millrace/text/percent.hpp>

namespace millrace::s3::detail {

MILLRACE_INLINE void canonical_query::append(std::string& out, std::string_view query) {
  parameters_.clear();
  // Every byte grows to three at most: the views below stay valid.
  rewritten_.clear();
  rewritten_.reserve(query.size() * 3);
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view one = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (one.empty()) continue;
    const std::size_t equals = one.find('=');
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : one.substr(equals + 1);
    insert(parameter{canonical(one.substr(0, equals)), canonical(value)});
  }
  bool first = true;
  for (const parameter& p : parameters_) {
    if (!first) out += '&';
    first = false;
    out += p.name;
    out += '=';
    out += p.value;
  }
}

MILLRACE_INLINE void canonical_query::insert(const parameter& p) {
  std::size_t at = parameters_.size();
  parameters_.push_back(p);
  for (; at > 0 && p < parameters_[at - 1]; --at) parameters_[at] = parameters_[at - 1];
  parameters_[at] = p;
}

MILLRACE_INLINE std::string_view canonical_query::canonical(std::string_view text) {
  if (text.find('/') == std::string_view::npos && is_encoded_path(text)) return text;
  const std::optional<std::string> raw = text::uri_decode(text);
  if (!raw) throw configuration_error("the query string has a % that two hexadecimal digits do not follow");
  if (text.find('+') != std::string_view::npos) {
    throw configuration_error("the query string has a +: encode a space as %20 and a plus sign as %2B");
  }
  const std::size_t begin = rewritten_.size();
  text::append_encoded_query(rewritten_, *raw);
  return std::string_view(rewritten_).substr(begin);
}

}  // namespace millrace::s3::detail
