// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/engines/training.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <millrace/pmix.hpp>

namespace {

/// What <millrace/pmix.hpp> does, with "check" in the place of a folder: 0 if it is right.
int check() {
  const millrace::rank_group ranks = millrace::pmix_ranks();
  const millrace::rank mine = millrace::pmix_rank();
  const std::uint32_t world = mine.world_size;
  for (std::uint64_t round = 0; round < 200; ++round) {
    const std::size_t each = 2 + round / 3 % 40;
    std::vector<std::uint64_t> words(each, round);
    words[0] = mine.index;
    const std::vector<std::uint64_t> all = ranks.gather_now(words);
    for (std::uint64_t r = 0; r < world; ++r) {
      if (all[each * r] == r && all[each * r + 1] == round && all[each * r + each - 1] == round) continue;
      std::printf("FAILED: rank %u has words of another round\n", mine.index);
      return 1;
    }
  }
  if (mine.local_index >= mine.local_world_size || mine.index != ranks.process().index) return 1;
  if (mine.index == 0) std::printf("%u ranks: as it should be\n", world);
  return 0;
}

}  // namespace

int test::with_group(int, char** arguments, const std::function<int(const millrace::rank_group&)>& train) {
  return std::strcmp(arguments[1], "check") == 0 ? check() : train(millrace::pmix_ranks());
}
