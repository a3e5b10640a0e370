// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/testing/s3_server/detail/tls_context.hpp>

namespace millrace::s3_server::detail {

MILLRACE_INLINE tls_context::tls_context(const tls_options& o)
    : key_(EVP_EC_gen("P-256")), context_(SSL_CTX_new(TLS_server_method())), path_(o.certificate_file) {
  if (key_ == nullptr || context_ == nullptr) failed();
  const tls_handle<X509> certificate = sign(o);
  if (SSL_CTX_use_certificate(context_.get(), certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context_.get(), key_.get()) != 1) {
    failed();
  }
  SSL_CTX_set_mode(context_.get(), SSL_MODE_RELEASE_BUFFERS);
  write(*certificate);
}

MILLRACE_INLINE tls_handle<X509> tls_context::sign(const tls_options& o) const {
  tls_handle<X509> x(X509_new());
  if (x == nullptr) failed();
  X509_set_version(x.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x.get()), 1);
  constexpr long day = 24 * 60 * 60;
  X509_gmtime_adj(X509_getm_notBefore(x.get()), o.expired ? -10 * day : -day);
  X509_gmtime_adj(X509_getm_notAfter(x.get()), o.expired ? -day : 365 * day);
  X509_set_pubkey(x.get(), key_.get());
  X509_NAME* name = X509_get_subject_name(x.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("millrace server"), -1,
                             -1, 0);
  X509_set_issuer_name(x.get(), name);
  const std::string names =
      o.certificate_name.empty() ? "DNS:localhost,DNS:*.localhost,IP:127.0.0.1" : "DNS:" + o.certificate_name;
  for (const auto& [id, value] : {std::pair<int, std::string>(NID_subject_alt_name, names),
                                  std::pair<int, std::string>(NID_basic_constraints, "critical,CA:TRUE")}) {
    const tls_handle<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, nullptr, id, value.c_str()));
    if (extension == nullptr || X509_add_ext(x.get(), extension.get(), -1) != 1) failed();
  }
  if (X509_sign(x.get(), key_.get(), EVP_sha256()) == 0) failed();
  return x;
}

MILLRACE_INLINE void tls_context::write(X509& certificate) {
  int fd = -1;
  if (path_.empty()) {
    path_ = process_environment().get("TMPDIR").value_or("/tmp") + "/millrace-server-XXXXXX";
    fd = ::mkstemp(path_.data());
    temporary_ = fd >= 0;
  }
  const tls_handle<FILE> file(fd >= 0 ? ::fdopen(fd, "w") : std::fopen(path_.c_str(), "w"));
  if (file == nullptr || PEM_write_X509(file.get(), &certificate) != 1 || std::fflush(file.get()) != 0) {
    throw configuration_error("the certificate cannot be written", where{path_, std::nullopt, std::string()});
  }
}

}  // namespace millrace::s3_server::detail
