// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#include <millrace/origin/detail/parse_head.hpp>
#include <millrace/origin/request.hpp>

namespace millrace::test {

/// A request from its head (lines that end in CR LF, without the empty one); throws what the parser says is wrong.
inline origin_server::request parsed(const std::string& head) {
  origin_server::request r;
  if (const char* wrong = origin_server::detail::parse_head(head, r)) throw std::runtime_error(wrong);
  return r;
}

}  // namespace millrace::test
