// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/data/item.hpp>

#include <cstddef>
#include <string>
#include <utility>

#include <millrace/flow/map.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/loader/runtime.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;

// A domain with names of its own, which mean something else than the library's functions beside a type.
namespace sound {

struct city {
  std::string name;
};

class clip {
 public:
  clip() = default;
  explicit clip(std::size_t n) : pcm(n) {}
  std::size_t pcm = 0;
  std::string of = "Riga";
  bool squeezed = false;
};

[[maybe_unused]] std::size_t sample_count(const clip& c) { return c.pcm; }
[[maybe_unused]] clip compact(clip c) {
  c.squeezed = true;
  return c;
}
[[maybe_unused]] city place_of(const clip& c) { return {c.of}; }

}  // namespace sound

TEST_CASE("functions of a program that have names like the library's hooks are not called") {
  static_assert(!detail::has_samples_in_batch<sound::clip>);
  static_assert(!detail::has_compact_slices<sound::clip>);
  static_assert(!detail::has_place<sound::clip>);
  runtime rt;
  const auto clip_of = [](int) { return sound::clip(16'000); };
  auto run = rt.run(iota(10) | map(clip_of) | shuffle({.window = 4, .seed = 1}));
  std::size_t squeezed = 0;
  for (const sound::clip& c : run) squeezed += c.squeezed ? 1 : 0;
  CHECK(squeezed == 0);
  CHECK(run.stats().items == 10);
  CHECK(run.stats().samples == 0);  // not known: a clip is no batch
}
