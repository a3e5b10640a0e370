// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/s3/auth/credentials_provider.hpp>
#include <millrace/s3/auth/default_credentials.hpp>
#include <millrace/s3/session.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

class operation;

namespace detail {

/// The sessions with one directory bucket: a source of refreshing_credentials, by CreateSession. It has a client state
/// of its own, with the client's credentials, so that a refresh may outlive the client.
class bucket_session_source {
 public:
  bucket_session_source(const session& s, std::string bucket)
      : session_(new session(s.for_bucket(bucket), s.shared_provider(), *s.transport())), bucket_(std::move(bucket)) {}

  std::int64_t now() const noexcept { return session_->now(); }
  double random() const noexcept { return session_->jitter(); }
  /// One attempt: who waits for it tries again.
  MILLRACE_COROUTINE task<sourced_credentials> resolve() const;
  MILLRACE_COROUTINE task<std::string> region() const;

 private:
  MILLRACE_COROUTINE static task<sourced_credentials> create(std::shared_ptr<const session> s, std::string bucket);

  const std::shared_ptr<const session> session_;
  const std::string bucket_;
};

/// The credentials that sign `op`: those of the client, or of a session with the directory bucket that `op` is about.
/// A session lasts 5 minutes; one request renews it for all others, half a minute or more before it ends.
MILLRACE_COROUTINE credentials_provider& credentials_for(const session& s, const operation& op);

}  // namespace detail

}  // namespace millrace::inline MILLRACE_ABI::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/bucket_session.ipp>
#endif
