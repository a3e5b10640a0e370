// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// What <millrace/mpi.hpp> does under mpirun: mpirun -n 3 mpi_ranks.

#include <millrace/mpi.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <millrace/feed/check_ranks.hpp>
#include <millrace/loader/rank_from_environment.hpp>

namespace mill = millrace;

namespace {

bool all_good = true;

void require(bool good, const char* what) {
  if (good) return;
  std::printf("FAILED: %s\n", what);
  all_good = false;
}

std::string told(const mill::rank& mine, std::uint64_t seed) {
  const mill::rank_setting settings[] = {{"the seed", seed}};
  try {
    mill::check_ranks(mill::mpi_sum(), mine, settings);
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
  std::vector<std::uint64_t> numbers{1, mine.index, UINT64_MAX};
  mill::mpi_sum()(numbers);
  require(numbers == std::vector<std::uint64_t>{3, 3, UINT64_MAX - 2}, "sums, modulo 2^64");
  require(told(mine, 7) == "nothing", "ranks that agree");
  require(told(mine, mine.index).find("the seed is 0 on rank 0") != std::string::npos, "ranks with other seeds");
  require(told(mill::rank(), 7).find("is rank 0 of 1 (explicit), but 3 processes take part") != std::string::npos,
          "ranks that were not told who they are");
  if (mine.index == 0) std::puts("three ranks: as it should be");
}

}  // namespace

int main(int count, char** arguments) {
  try {
    mill::mpi_sum()(std::span<std::uint64_t>());
    require(false, "a sum before MPI_Init()");
  } catch (const mill::usage_error&) {
  }
  MPI_Init(&count, &arguments);
  test();
  MPI_Finalize();
  return all_good ? 0 : 1;
}
