// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/http/engine.hpp>

#include <cstddef>
#include <cstring>
#include <string>

#include <millrace/base/rng.hpp>

#include "tests/support/catch.hpp"

using millrace::http::detail::copy_past_caches;

TEST_CASE("bytes are copied past the caches from anywhere to anywhere, and nothing beside them") {
  std::string source(5000, '\0');
  millrace::rng random(7);
  for (char& c : source) c = static_cast<char>(random.next());
  int wrong = 0;
  const auto check = [&](std::size_t to, std::size_t from, std::size_t size) {
    std::string target(to + size + 100, '-');
    copy_past_caches(target.data() + to, source.data() + from, size);
    const std::string wanted = std::string(to, '-') + source.substr(from, size) + std::string(100, '-');
    if (target != wanted) ++wrong;
  };
  for (std::size_t to = 0; to < 66; ++to) {
    for (std::size_t from = 0; from < 18; ++from) {
      for (const std::size_t size : {0, 1, 15, 16, 63, 64, 65, 127, 128, 129, 191, 192, 1000, 4900}) {
        check(to, from, size);
      }
    }
  }
  for (std::size_t size = 0; size < 300; ++size) check(40, 3, size);
  CHECK(wrong == 0);
}
