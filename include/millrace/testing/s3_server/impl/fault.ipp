// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/fault.hpp>

namespace millrace::s3_server {

MILLRACE_INLINE fault fault::refuse(int status, std::string code) {
  fault f(kind::refuse);
  f.status = status;
  f.text = std::move(code);
  return f;
}

MILLRACE_INLINE fault fault::error_in_success(std::string code) {
  fault f(kind::error_in_success);
  f.text = std::move(code);
  return f;
}

MILLRACE_INLINE fault fault::page(int status) {
  fault f(kind::page);
  f.status = status;
  return f;
}

}  // namespace millrace::s3_server
