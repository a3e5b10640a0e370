// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/error.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

MILLRACE_INLINE error::error(int status, std::string code, std::string message, std::string request_id, where at,
                             std::optional<duration> pause)
    : millrace::error(describe(status, code, message, request_id), std::move(at)),
      status_(status),
      code_(std::move(code)),
      request_id_(std::move(request_id)),
      retry_after_(pause) {}

MILLRACE_INLINE std::string error::describe(int status, const std::string& code, const std::string& message,
                                            const std::string& request_id) {
  std::string text;
  const bool succeeded = status / 100 == 2 && code.empty();  // the fault is what we found in the answer
  if (status != 0 && !succeeded) text = std::to_string(status);
  if (!code.empty()) {
    if (!text.empty()) text += ' ';
    text += code;
  }
  if (!message.empty()) {
    if (!text.empty()) text += ": ";
    text += message;
  }
  if (!request_id.empty()) {
    text += " (request id ";
    text += request_id;
    text += ')';
  }
  return text;
}

}  // namespace millrace::s3
