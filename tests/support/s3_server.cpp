// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/testing/s3_server/server.hpp>

#if !defined(MILLRACE_SEPARATE_COMPILATION)
template millrace::task<void> millrace::s3_server::server::serve<>();
#endif
