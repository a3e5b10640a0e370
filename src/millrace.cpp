// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#define MILLRACE_SEPARATE_COMPILATION
#include <millrace/impl/src.hpp>
