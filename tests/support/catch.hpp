// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// One include for Catch2 of either major version (Debian 12 has 2.13, Ubuntu 24.04 and others may have 3).
#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <catch2/matchers/catch_matchers_vector.hpp>
namespace Catch::Matchers {
inline auto Contains(const std::string& text) { return ContainsSubstring(text); }
}  // namespace Catch::Matchers
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

#include <cstdio>

/// Leaves the test case with a visible reason. A test that skips says so on standard error: nothing skips silently.
#define MILLRACE_SKIP(reason)                                                                         \
  do {                                                                                                \
    std::fprintf(stderr, "skipped: %s: %s\n", Catch::getResultCapture().getCurrentTestName().c_str(), \
                 std::string(reason).c_str());                                                        \
    SUCCEED("skipped");                                                                               \
    return;                                                                                           \
  } while (false)
