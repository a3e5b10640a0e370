// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <cstdio>

#include "everything.hpp"

#if defined(EXPECT_SEPARATE_COMPILATION) != defined(MILLRACE_SEPARATE_COMPILATION)
#error the target decides how its users compile
#endif

unsigned long long second(millrace::rng& random);

int main() {
  millrace::rng random(7);
  const unsigned long long drawn = second(random);
  const millrace::bytes text = millrace::bytes::copy("a slice").slice(2, 5);
  std::printf("millrace %d.%d.%d: %.*s %d\n", MILLRACE_VERSION_MAJOR, MILLRACE_VERSION_MINOR, MILLRACE_VERSION_PATCH,
              static_cast<int>(text.size()), text.data(), drawn == millrace::rng(7).next());
  return 0;
}
