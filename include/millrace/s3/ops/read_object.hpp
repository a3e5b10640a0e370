// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/s3/session.hpp>

namespace millrace::s3 {

/// A whole object in memory of its own: for labels, indexes and configuration, not for shards. Its size is asked for
/// first; more than `max_bytes` is an http::error (too_large) before anything is fetched.
///
/// Retries, resumption and checksum as in get_object_range; changed_error when the object is replaced meanwhile.
/// Dropping the task ends the transfer.
MILLRACE_COROUTINE task<bytes> read_object(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                           std::size_t max_bytes);

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/impl/read_object.ipp>
#endif
