// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace millrace::detail {

/// `url` up to its query string or fragment, and without user information: fit for messages, since both may be secrets
/// (a presigned URL carries its signature in the query). The scheme may be missing.
std::string without_secrets(const std::string& url);

/// The same for the URLs of shards: names of objects in S3 and of files are shown whole, because `?`, `#` and `@` are
/// parts of names there.
std::string shown_url(const std::string& url);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/base/detail/impl/shown_url.ipp>
#endif
