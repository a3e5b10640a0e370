// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The version of the library; the build reads it from here. Before 1.0 a new minor number may change the interface,
/// a new patch number does not.

#define MILLRACE_VERSION_MAJOR 0
#define MILLRACE_VERSION_MINOR 2
#define MILLRACE_VERSION_PATCH 0

/// Comparable in #if: 200 for 0.2.0, 10203 for 1.2.3.
#define MILLRACE_VERSION (MILLRACE_VERSION_MAJOR * 10000 + MILLRACE_VERSION_MINOR * 100 + MILLRACE_VERSION_PATCH)

#define MILLRACE_ABI_PASTE(major, minor, patch, mode) v##major##_##minor##_##patch##_##mode
#define MILLRACE_ABI_NAME(major, minor, patch, mode) MILLRACE_ABI_PASTE(major, minor, patch, mode)

/// The inline namespace of every name of the library. It names the version and the mode, so that parts of a program
/// that were built with other ones have other types: a function of one that the other calls with a type of the library
/// is not found by the linker, instead of being given an object of another layout. Namespaces below it are opened by
/// `namespace millrace::inline MILLRACE_ABI::s3`: clang 16 makes another one of `namespace millrace::s3`.
#if defined(MILLRACE_SEPARATE_COMPILATION)
#define MILLRACE_ABI MILLRACE_ABI_NAME(MILLRACE_VERSION_MAJOR, MILLRACE_VERSION_MINOR, MILLRACE_VERSION_PATCH, compiled)
#else
#define MILLRACE_ABI MILLRACE_ABI_NAME(MILLRACE_VERSION_MAJOR, MILLRACE_VERSION_MINOR, MILLRACE_VERSION_PATCH, headers)
#endif
