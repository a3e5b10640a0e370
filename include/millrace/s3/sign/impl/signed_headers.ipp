// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/sign/signed_headers.hpp>

namespace millrace::s3 {

MILLRACE_INLINE std::string_view signed_headers::operator[](std::string_view name) const noexcept {
  for (const header_field& field : *this) {
    if (field.name == name) return field.value;
  }
  return {};
}

}  // namespace millrace::s3
