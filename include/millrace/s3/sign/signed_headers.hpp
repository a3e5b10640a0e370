// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <millrace/s3/sign/signing_request.hpp>

namespace millrace::s3 {

/// The headers that a signature adds to a request, to be sent as they are. Never log them: they carry the signature
/// and the session token.
class signed_headers {
 public:
  signed_headers() = default;

  const header_field* begin() const noexcept { return fields_.data(); }
  const header_field* end() const noexcept { return fields_.data() + size_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  /// The value of one of them, by lower-case name; empty when absent.
  std::string_view operator[](std::string_view name) const noexcept;

  void add(std::string_view name, std::string_view value) noexcept { fields_[size_++] = header_field{name, value}; }

 private:
  std::array<header_field, 4> fields_{};
  std::size_t size_ = 0;
};

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/sign/impl/signed_headers.ipp>
#endif
