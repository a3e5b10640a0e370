// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Whatever is not inline is defined twice; one of the cases looks for that in every header.
#ifdef INCLUDE_EVERYTHING_TWICE
#include "everything.hpp"
#else
#include <millrace/base/rng.hpp>
#endif

unsigned long long second(millrace::rng& random) { return random.next(); }
