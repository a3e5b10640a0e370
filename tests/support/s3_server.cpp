// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/testing/s3_server/server.hpp>

#if !defined(MILLRACE_SEPARATE_COMPILATION)
template class millrace::s3_server::basic_server<>;
#endif
