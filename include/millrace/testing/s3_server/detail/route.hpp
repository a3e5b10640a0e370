// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <utility>

#include <millrace/testing/s3_server/options.hpp>
#include <millrace/testing/s3_server/request.hpp>

namespace millrace::s3_server::detail {

bool is_ipv4(std::string_view host);

/// Finds bucket and key of a request in its host and path; throws refusal for a host that is not this server's.
void route(request& r, const options& o);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/route.ipp>
#endif
