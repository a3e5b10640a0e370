// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/testing/s3_server/background.hpp>

// Compiled once for all tests, in s3_server.cpp: with the sanitizers of g++ it takes 11 seconds.
#if !defined(MILLRACE_SEPARATE_COMPILATION)
extern template millrace::task<void> millrace::s3_server::server::serve<>();
#endif
