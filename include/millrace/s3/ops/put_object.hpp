// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/s3/ops/detail/put_plan.hpp>
#include <millrace/s3/session.hpp>

namespace millrace::s3 {

/// Stores `body` as an object, in one request whose signature covers the payload or its checksum; gives the ETag. At
/// most 5 GiB (PutObject's limit); the bytes must not change until it is done. Retried as a whole.
MILLRACE_COROUTINE task<std::string> put_object(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                                bytes body, detail::put_plan plan);

/// Creates a bucket; one that is ours already is fine.
MILLRACE_COROUTINE task<void> create_bucket(std::shared_ptr<const session> s, std::string bucket);

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/impl/put_object.ipp>
#endif
