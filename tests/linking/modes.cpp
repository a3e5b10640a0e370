// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A function that takes a type of the library, or the program that calls it: check_linking.py compiles them alike, and
// in other modes and versions.
#include <millrace/data/rank.hpp>

unsigned long of(const millrace::rank& r);

#if defined(CALLER)
int main() { return of(millrace::rank()) == 0 ? 1 : 0; }
#else
unsigned long of(const millrace::rank& r) { return sizeof(r); }
#endif
