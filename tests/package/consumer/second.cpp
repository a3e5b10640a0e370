// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include "everything.hpp"

unsigned long long second(millrace::rng& random) { return random.next(); }
