// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include <millrace/testing/s3_server/fault.hpp>
#include <millrace/testing/s3_server/reply.hpp>

namespace millrace::s3_server::detail {

/// What a fault changes in an answer before it is put on the wire: fields and content.
void alter_reply(reply& a, const fault& f);

/// The answer that a fault puts in the place of the real one; called for refuse, error_in_success and page only.
reply substitute(const fault& f, const std::string& resource, const std::string& request_id);

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/impl/alter_reply.ipp>
#endif
