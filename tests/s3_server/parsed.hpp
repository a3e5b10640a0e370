// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#include <millrace/testing/s3_server/detail/body_check.hpp>
#include <millrace/testing/s3_server/message.hpp>

namespace millrace::test {

/// A request from its head (lines that end in CR LF, without the empty one); throws what the parser says is wrong.
inline s3_server::request parsed(const std::string& head) {
  s3_server::request r;
  if (const char* wrong = s3_server::detail::parse_head(head, r)) throw std::runtime_error(wrong);
  return r;
}

}  // namespace millrace::test
