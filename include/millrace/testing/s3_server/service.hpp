// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <millrace/testing/s3_server/message.hpp>
#include <millrace/testing/s3_server/options.hpp>
#include <millrace/testing/s3_server/signature_check.hpp>
#include <millrace/testing/s3_server/store.hpp>

namespace millrace::s3_server {

/// What S3 does, without a wire: from a request to its answer. All three references must outlive it.
class service {
 public:
  service(store& objects, const options& o, const server_clock& time)
      : store_(objects), options_(o), clock_(time), signatures_(o) {}

  /// Finds bucket and key, verifies the signature and what its sender may do, before the body is read. Throws refusal.
  caller admit(request& r) const;

  /// The answer to an admitted request whose body has been read. Throws refusal.
  reply answer(request& r, const caller& who);

  /// The error document for `why`.
  reply answer(const request& r, const refusal& why, const std::string& request_id) const;

 private:
  /// S3's own answer, code and message, to operations that a store does not serve.
  static refusal not_implemented(const std::string& what) {
    return refusal(501, "NotImplemented", "A header or operation you provided is not implemented").with("What", what);
  }

  reply answer_bucket(const request& r);

  reply answer_object(const request& r, std::vector<object::field> checksums);

  store& store_;
  const options& options_;
  const server_clock& clock_;
  signature_check signatures_;
};

}  // namespace millrace::s3_server

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/service.ipp>
#endif
