// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/s3/session.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

/// A URL that allows one `method` (GET, HEAD, PUT, DELETE) on one object for `seconds` (1 to 604800) from now, with the
/// rights of our credentials; with temporary ones, no longer than they last: in a directory bucket 5 minutes. Its
/// holder sends it unchanged, with no header but Host and those that HTTP needs. It is a secret: never log it.
///
/// Throws configuration_error for a time that is out of bounds, for anonymous credentials, for a client with a
/// config::encryption_key and when `key` is empty; nothing is sent but requests for credentials and region.
MILLRACE_COROUTINE task<std::string> presign(std::shared_ptr<const session> s, std::string bucket, std::string key,
                                             std::string method, std::int64_t seconds);

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/presign.ipp>
#endif
