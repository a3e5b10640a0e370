// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <cstdio>

#include <millrace/memory/bytes.hpp>
#include <millrace/version.hpp>

int main() {
  const millrace::bytes text = millrace::bytes::copy("a slice").slice(2, 5);
  std::printf("millrace %d.%d.%d: %.*s\n", MILLRACE_VERSION_MAJOR, MILLRACE_VERSION_MINOR, MILLRACE_VERSION_PATCH,
              static_cast<int>(text.size()), text.data());
  return 0;
}
