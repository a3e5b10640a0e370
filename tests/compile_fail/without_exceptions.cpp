// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// flags: -fno-exceptions
// expect: millrace reports errors by exceptions: compile without -fno-exceptions
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>

int main() { auto piped = millrace::iota(3) | millrace::take(1); }
