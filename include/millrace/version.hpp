// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The version of the library; the build reads it from here. Before 1.0 a new minor number may change the interface,
/// a new patch number does not.

#define MILLRACE_VERSION_MAJOR 0
#define MILLRACE_VERSION_MINOR 1
#define MILLRACE_VERSION_PATCH 0

/// Comparable in #if: 100 for 0.1.0, 10203 for 1.2.3.
#define MILLRACE_VERSION (MILLRACE_VERSION_MAJOR * 10000 + MILLRACE_VERSION_MINOR * 100 + MILLRACE_VERSION_PATCH)
