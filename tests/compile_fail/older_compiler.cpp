// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
// flags: -U__GNUC__ -D__GNUC__=10 -U__clang_major__ -D__clang_major__=15
// expect: millrace needs (g\+\+ 12 or newer, or clang 16|clang 16 or newer, or g\+\+ 12) or newer
#include <millrace/flow/map.hpp>
#include <millrace/flow/sources.hpp>

int main() { auto piped = millrace::iota(3) | millrace::take(1); }
