// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The bodies of millrace::parquet that are no templates, compiled once: the CMake target millrace::compiled_parquet
// builds this file beside src/millrace.cpp.

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#define MILLRACE_SEPARATE_COMPILATION
#endif

#include <millrace/base/compiler.hpp>

MILLRACE_QUIET_FRAMES

#include <millrace/records/detail/parquet_file.ipp>
