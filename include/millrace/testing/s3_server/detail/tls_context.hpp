// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <unistd.h>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <millrace/base/error.hpp>
#include <millrace/testing/s3_server/options.hpp>

namespace millrace::s3_server::detail {

struct tls_free {
  void operator()(SSL_CTX* p) const noexcept { SSL_CTX_free(p); }
  void operator()(SSL* p) const noexcept { SSL_free(p); }
  void operator()(EVP_PKEY* p) const noexcept { EVP_PKEY_free(p); }
  void operator()(X509* p) const noexcept { X509_free(p); }
  void operator()(X509_EXTENSION* p) const noexcept { X509_EXTENSION_free(p); }
  void operator()(FILE* p) const noexcept { std::fclose(p); }
};
template <class T>
using tls_handle = std::unique_ptr<T, tls_free>;

/// A fresh key and a self-signed certificate for it; the certificate's PEM lies in a file for clients to trust, removed
/// with the context unless its path was given.
class tls_context {
 public:
  explicit tls_context(const tls_options& o);
  tls_context(const tls_context&) = delete;
  tls_context& operator=(const tls_context&) = delete;
  ~tls_context() {
    if (temporary_) ::unlink(path_.c_str());
  }

  SSL_CTX* get() const noexcept { return context_.get(); }
  /// Where the certificate is.
  const std::string& path() const noexcept { return path_; }

 private:
  [[noreturn]] static void failed() { throw configuration_error("OpenSSL cannot make a key and a certificate"); }

  tls_handle<X509> sign(const tls_options& o) const;

  void write(X509& certificate);

  tls_handle<EVP_PKEY> key_;
  tls_handle<SSL_CTX> context_;
  std::string path_;
  bool temporary_ = false;
};

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/tls_context.ipp>
#endif
