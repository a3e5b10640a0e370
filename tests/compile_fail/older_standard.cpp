// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// flags: -std=c++17
// expect: millrace needs C\+\+20: compile with -std=c\+\+20 or newer
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>

int main() { auto piped = millrace::iota(3) | millrace::take(1); }
