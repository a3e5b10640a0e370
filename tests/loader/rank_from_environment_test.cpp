// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/rank_from_environment.hpp>

#include <map>
#include <string>

#include "tests/support/catch.hpp"

using namespace millrace;

namespace {

using variables = std::map<std::string, std::string>;

rank from(variables table) {
  return rank_from_environment(environment(
      [](void* context, const char* name) -> const char* {
        const auto& map = *static_cast<variables*>(context);
        const auto found = map.find(name);
        return found == map.end() ? nullptr : found->second.c_str();
      },
      &table));
}

const variables torchrun{
    {"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"GROUP_RANK", "1"}};
variables operator+(variables a, const variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("every launcher is understood") {
  CHECK(from({}).world_size == 1);
  const rank t = from(torchrun);
  CHECK(t.index == 3);
  CHECK(t.world_size == 8);
  CHECK(t.local_index == 1);
  CHECK(t.local_world_size == 2);
  CHECK(std::string(t.source) == "torchrun");
  CHECK(from({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}}).index == 1);
  CHECK(from({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}).index == 2);
  CHECK(from({{"MV2_COMM_WORLD_RANK", "2"}, {"MV2_COMM_WORLD_SIZE", "4"}}).index == 2);
  CHECK(from({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "6"}, {"SLURM_STEP_ID", "0"}}).index == 5);
}

TEST_CASE("Slurm's variables count inside a step only") {
  CHECK(from({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "6"}}).world_size == 1);
  CHECK(from({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "6"}, {"SLURM_STEP_ID", "batch"}}).world_size == 1);
}

TEST_CASE("Slurm's tasks may be torchrun's agents, one a machine") {
  const variables agent{{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}};
  const rank r = from(agent + torchrun);  // 8 processes, two of them on each machine
  CHECK(r.index == 3);
  CHECK(r.world_size == 8);
  CHECK(std::string(r.source) == "torchrun");
  // Of another number of machines: it is not known what they count.
  CHECK_THROWS_AS(from(variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}} + torchrun),
                  configuration_error);
}

TEST_CASE("an explicit rank wins over everything") {
  const rank r = from(variables{{"MILLRACE_RANK", "0"}, {"MILLRACE_WORLD_SIZE", "2"}} + torchrun);
  CHECK(r.index == 0);
  CHECK(r.world_size == 2);
}

TEST_CASE("what cannot be trusted is refused") {
  // Counted per machine by some platforms: not torchrun's.
  CHECK_THROWS_AS(from({{"RANK", "1"}, {"WORLD_SIZE", "4"}}), configuration_error);
  CHECK_THROWS_AS(from(variables{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "8"}} + torchrun),
                  configuration_error);
  CHECK(from(variables{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}} + torchrun).index == 3);
  CHECK_THROWS_AS(from({{"MILLRACE_RANK", "1"}}), configuration_error);
  CHECK_THROWS_AS(from({{"MILLRACE_RANK", "2"}, {"MILLRACE_WORLD_SIZE", "2"}}), configuration_error);
  CHECK_THROWS_AS(from({{"MILLRACE_RANK", "-1"}, {"MILLRACE_WORLD_SIZE", "2"}}), configuration_error);
  CHECK_THROWS_AS(from({{"PMI_RANK", "99999999999"}, {"PMI_SIZE", "4"}}), configuration_error);
}
