// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/wire/detail/xml_reader.hpp>

namespace millrace::s3 {

/// The `<Error>` document in the body of a refused request (S3's form, and `<ErrorResponse>` of STS).
class error_document {
 public:
  error_document() = default;

  /// Nothing when `body` is not an intact error document with a code: empty (HEAD), a proxy's HTML page, cut short.
  /// Never throws for the sake of the body. Texts are cut to 1 KiB.
  static std::optional<error_document> parse(std::string_view body);

  std::string code;
  std::string message;
  std::string region;    ///< where the bucket lives, with AuthorizationHeaderMalformed
  std::string endpoint;  ///< the host to use, with PermanentRedirect and TemporaryRedirect
  std::string resource;  ///< what the request was about, as the server saw it
  std::string request_id;
};

namespace detail {

/// Collects an error document; the elements it does not know (some repeat the request's signature) are dropped.
class error_document_handler final : public xml_handler {
 public:
  explicit error_document_handler(error_document& out) : out_(out) {}

  bool is_error() const noexcept { return is_error_; }

  void enter(std::string_view path) override {
    if (path == "Error" || path == "ErrorResponse/Error") is_error_ = true;
  }
  MILLRACE_INLINE void leaf(std::string_view path, const std::string& text) override;

 private:
  static void assign(std::string& to, const std::string& text) { to.assign(text, 0, 1024); }

  error_document& out_;
  bool is_error_ = false;
};

}  // namespace detail

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/wire/impl/error_document.ipp>
#endif
