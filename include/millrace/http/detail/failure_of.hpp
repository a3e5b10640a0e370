// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>

#include <millrace/http/error.hpp>

namespace millrace::http::detail {

/// What kind of failure libcurl's result is.
failure failure_of(CURLcode rc) noexcept;

}  // namespace millrace::http::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/http/detail/impl/failure_of.ipp>
#endif
