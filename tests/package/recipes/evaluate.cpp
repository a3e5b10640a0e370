// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The second source of the recipes whose bodies are compiled once.

#include <cstdio>

#include <millrace/millrace.hpp>

void evaluate() {
  const millrace::bytes text = millrace::bytes::copy("was evaluated").slice(4, 9);
  std::printf("%.*s\n", static_cast<int>(text.size()), text.data());
}
