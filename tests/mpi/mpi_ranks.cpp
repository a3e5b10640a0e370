// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What <millrace/mpi.hpp> does under mpirun: mpirun -n 3 mpi_ranks.

#include <millrace/mpi.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <millrace/loader/rank_from_environment.hpp>
#include <millrace/train/rank_group.hpp>

namespace mill = millrace;

namespace {

bool all_good = true;

void require(bool good, const char* what) {
  if (good) return;
  std::printf("FAILED: %s\n", what);
  all_good = false;
}

std::string told(const mill::rank_group& ranks, std::uint64_t seed) {
  const mill::rank_setting settings[] = {{"the seed", seed}};
  try {
    ranks.compare(settings);
    return "nothing";
  } catch (const mill::configuration_error& e) {
    return e.what();
  }
}

void test() {
  const mill::rank mine = mill::mpi_rank();
  const mill::rank launched = mill::rank_from_environment();
  require(mine.world_size == 3, "three ranks");
  require(mine.index == launched.index && mine.world_size == launched.world_size, "the launcher says the same");
  require(mine.local_index == launched.local_index && mine.local_world_size == launched.local_world_size,
          "and of this machine, too");
  const mill::rank_group ranks = mill::mpi_ranks();
  require(ranks.mine().index == mine.index && ranks.process().world_size == 3, "the group's rank");
  require(ranks.gather_now({mine.index, UINT64_MAX}) ==
              std::vector<std::uint64_t>{0, UINT64_MAX, 1, UINT64_MAX, 2, UINT64_MAX},
          "words of all");
  require(told(ranks, 7) == "nothing", "ranks that agree");
  require(told(ranks, mine.index) == "the ranks do not agree: the seed is 0 on rank 0, 1 on rank 1, 2 on rank 2",
          "ranks with other seeds");
  if (mine.index == 0) std::puts("three ranks: as it should be");
}

}  // namespace

int main(int count, char** arguments) {
  try {
    mill::mpi_ranks();
    require(false, "a group before MPI_Init()");
  } catch (const mill::usage_error&) {
  }
  MPI_Init(&count, &arguments);
  test();
  MPI_Finalize();
  return all_good ? 0 : 1;
}
