// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include <millrace/loader/rank_from_environment.hpp>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <millrace/flow/sources.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/train/rank_group.hpp>

#include "tests/support/catch.hpp"

using namespace millrace;
using Catch::Matchers::Contains;

namespace {

using variables = std::map<std::string, std::string>;

const char* look_up(const variables& table, const char* name) {
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second.c_str();
}
environment in(variables& table) { return environment(environment::getter::to<&look_up>(table)); }
rank from(variables table) { return rank_from_environment(in(table)); }

const variables torchrun{
    {"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"GROUP_RANK", "1"}};
variables operator+(variables a, const variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

/// Why the variables are refused; "" when they are not.
std::string refusal(const variables& table) {
  try {
    from(table);
    return "";
  } catch (const configuration_error& e) {
    return e.what();
  }
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

TEST_CASE("Ray Train sets torchrun's variables, and NODE_RANK in the place of GROUP_RANK") {
  variables ray = torchrun;
  ray.erase("GROUP_RANK");
  CHECK(refusal(ray) != "");
  ray.insert({"NODE_RANK", "1"});
  const rank r = from(ray);
  CHECK(r.index == 3);
  CHECK(r.world_size == 8);
  CHECK(r.local_index == 1);
  CHECK(r.local_world_size == 2);
  CHECK(std::string(r.source) == "Ray Train");
}

TEST_CASE("an Indexed Job of Kubernetes needs to say how many pods it has") {
  for (const char* index : {"0", "3"}) {
    CHECK_THAT(refusal({{"JOB_COMPLETION_INDEX", index}}), Contains(std::string("JOB_COMPLETION_INDEX is ") + index) &&
                                                               Contains("- {name: MILLRACE_WORLD_SIZE, value: \"N\"}"));
  }
  const rank r = from({{"JOB_COMPLETION_INDEX", "3"}, {"MILLRACE_WORLD_SIZE", "4"}});
  CHECK(r.index == 3);
  CHECK(r.world_size == 4);
  CHECK(std::string(r.source) == "Kubernetes");
  CHECK_THROWS_AS(from({{"JOB_COMPLETION_INDEX", "4"}, {"MILLRACE_WORLD_SIZE", "4"}}), configuration_error);
  // A launcher that the pod starts gives ranks of its own.
  CHECK(from(torchrun + variables{{"JOB_COMPLETION_INDEX", "1"}}).index == 3);
  CHECK(from({{"JOB_COMPLETION_INDEX", "1"}, {"MILLRACE_RANK", "0"}, {"MILLRACE_WORLD_SIZE", "2"}}).index == 0);
}

TEST_CASE("each row of the guide's table of launchers, with all that the launcher sets") {
  struct row {
    const char* launcher;
    variables table;
    std::uint32_t index, world, local, local_world;
  };
  const variables pod{{"PET_NNODES", "4"},
                      {"PET_NPROC_PER_NODE", "1"},
                      {"PET_NODE_RANK", "2"},
                      {"PET_MASTER_ADDR", "train-node-0-0.train"},
                      {"PET_MASTER_PORT", "29500"}};
  const variables worker{{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"GROUP_RANK", "2"},
                         {"GROUP_WORLD_SIZE", "4"},
                         {"ROLE_RANK", "5"},
                         {"ROLE_NAME", "default"},
                         {"MASTER_ADDR", "10.0.0.1"},
                         {"TORCHELASTIC_RESTART_COUNT", "0"}};
  variables ray = worker;
  ray.erase("GROUP_RANK");
  ray["NODE_RANK"] = "2";
  for (const row& r : std::vector<row>{
           {"torchrun", worker, 5, 8, 1, 2},
           {"Ray Train", ray, 5, 8, 1, 2},
           {"Lightning",
            {{"NODE_RANK", "0"}, {"LOCAL_RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "127.0.0.1"}},
            3,
            8,
            3,
            1},
           {"Lightning",
            {{"NODE_RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "4"}, {"MILLRACE_LOCAL_WORLD_SIZE", "2"}},
            3,
            4,
            1,
            2},
           {"Open MPI",
            {{"OMPI_COMM_WORLD_RANK", "5"},
             {"OMPI_COMM_WORLD_SIZE", "8"},
             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
             {"OMPI_UNIVERSE_SIZE", "8"},
             {"PMIX_RANK", "5"}},
            5,
            8,
            1,
            2},
           {"Hydra",
            {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
            5,
            8,
            1,
            2},
           {"MVAPICH",
            {{"MV2_COMM_WORLD_RANK", "5"},
             {"MV2_COMM_WORLD_SIZE", "8"},
             {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
             {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}},
            5,
            8,
            1,
            2},
           {"Slurm",
            {{"SLURM_PROCID", "5"},
             {"SLURM_NTASKS", "8"},
             {"SLURM_LOCALID", "1"},
             {"SLURM_STEP_ID", "0"},
             {"SLURM_STEP_TASKS_PER_NODE", "2(x4)"},
             {"SLURM_JOB_ID", "7"}},
            5,
            8,
            1,
            2},
           {"Slurm",  // --mpi=pmix
            {{"SLURM_PROCID", "5"},
             {"SLURM_NTASKS", "8"},
             {"SLURM_LOCALID", "1"},
             {"SLURM_STEP_ID", "0"},
             {"SLURM_STEP_TASKS_PER_NODE", "2(x4)"},
             {"PMIX_RANK", "5"}},
            5,
            8,
            1,
            2},
           {"Kubeflow", pod + variables{{"JOB_COMPLETION_INDEX", "2"}}, 2, 4, 0, 1},       // Trainer
           {"Kubeflow", pod + variables{{"RANK", "2"}, {"WORLD_SIZE", "4"}}, 2, 4, 0, 1},  // PyTorchJob
           {"torchrun", pod + worker, 5, 8, 1, 2},
           {"Kubernetes", {{"JOB_COMPLETION_INDEX", "3"}, {"MILLRACE_WORLD_SIZE", "4"}}, 3, 4, 0, 1},
           {"MILLRACE_RANK",
            {{"MILLRACE_RANK", "3"},
             {"MILLRACE_WORLD_SIZE", "4"},
             {"MILLRACE_LOCAL_RANK", "1"},
             {"MILLRACE_LOCAL_WORLD_SIZE", "2"}},
            3,
            4,
            1,
            2},
           {"no launcher", {}, 0, 1, 0, 1},
       }) {
    CAPTURE(r.launcher);
    const rank got = from(r.table);
    CHECK(std::string(got.source) == r.launcher);
    CHECK(got.index == r.index);
    CHECK(got.world_size == r.world);
    CHECK(got.local_index == r.local);
    CHECK(got.local_world_size == r.local_world);
  }
}

TEST_CASE("Kubeflow's variables are torchrun's options, and a rank only where each pod has one process") {
  const variables pod{{"PET_NNODES", "4"}, {"PET_NODE_RANK", "2"}};
  CHECK(from(pod).index == 2);  // torchrun's default is one process a node
  for (const char* each : {"2", "auto", "gpu", "cpu"}) {
    CHECK_THAT(refusal(pod + variables{{"PET_NPROC_PER_NODE", each}}),
               Contains(std::string("PET_NPROC_PER_NODE is \"") + each) && Contains("torchrun --no-python"));
  }
  CHECK_THAT(refusal({{"PET_NNODES", "1:4"}, {"PET_NPROC_PER_NODE", "1"}}), Contains("PET_NNODES is \"1:4\""));
  CHECK_THAT(refusal({{"PET_NODE_RANK", "2"}}), Contains("PET_NODE_RANK is \"2\""));
  CHECK(from({{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "1"}}).world_size == 1);
  CHECK_THAT(refusal(pod + variables{{"RANK", "1"}, {"WORLD_SIZE", "4"}}), Contains("Kubeflow says rank 2 of 4"));
  // Its workers have the ranks that torchrun gave them, of as many machines.
  const variables pods{{"PET_NNODES", "4"}, {"PET_NODE_RANK", "0"}, {"PET_NPROC_PER_NODE", "2"}};
  CHECK(from(pods + torchrun).index == 3);
  CHECK(from(variables{{"PET_NNODES", "1:4"}} + torchrun).index == 3);
  CHECK_THAT(refusal(variables{{"PET_NNODES", "2"}, {"PET_NODE_RANK", "0"}} + torchrun),
             Contains("torchrun says rank 3 of 8, Kubeflow says rank 0 of 2"));
}

TEST_CASE("Lightning's launcher says the machine and the process on it") {
  const variables second{{"NODE_RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "4"}};
  CHECK_THAT(refusal(second), Contains("NODE_RANK is 1") && Contains("MILLRACE_LOCAL_WORLD_SIZE"));
  CHECK_THAT(refusal({{"NODE_RANK", "0"}, {"LOCAL_RANK", "4"}, {"WORLD_SIZE", "4"}}),
             Contains("rank 4 does not exist"));
  CHECK_THAT(refusal({{"LOCAL_RANK", "1"}, {"WORLD_SIZE", "4"}}), Contains("RANK is not set"));
}

TEST_CASE("PMIx's index alone is refused, and must agree with its launcher's") {
  CHECK_THAT(refusal({{"PMIX_RANK", "3"}}), Contains("PMIX_RANK is 3") && Contains("pmix_ranks()"));
  const variables step{{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}};
  CHECK_THAT(refusal(step + variables{{"PMIX_RANK", "4"}}), Contains("Slurm says rank 5 of 8, PMIX_RANK is 4"));
  // srun --mpi=pmix torchrun: it is the agent's.
  CHECK(from(torchrun + variables{{"PMIX_RANK", "1"}}).index == 3);
}

TEST_CASE("Slurm says how many processes a machine has, where they are equally many on all") {
  const variables task{{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}, {"SLURM_LOCALID", "1"}};
  const auto on_machine = [&](const char* text) {
    return from(task + variables{{"SLURM_STEP_TASKS_PER_NODE", text}}).local_world_size;
  };
  CHECK(on_machine("4(x2)") == 4);
  CHECK(on_machine("8") == 8);
  for (const char* unequal : {"4(x2),3", "3,4", "", "x", "4(x2", "(x2)", "12345678"}) CHECK(on_machine(unequal) == 1);
  CHECK(from(task).local_world_size == 1);
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

TEST_CASE("so may those of any launcher after torchrun") {
  const variables hydra{{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}};
  const variables slurm{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}};
  const variables open_mpi{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
  const variables mvapich{{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "4"}};
  for (const variables& agents : {hydra, hydra + slurm, open_mpi, open_mpi + slurm, mvapich}) {
    const rank r = from(agents + torchrun);
    CHECK(r.index == 3);
    CHECK(r.world_size == 8);
    CHECK(std::string(r.source) == "torchrun");
  }
  // Of another number of machines: it is not known what they count.
  CHECK_THAT(refusal(variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}} + torchrun),
             Contains("torchrun says rank 3 of 8, Hydra says rank 1 of 2"));
  // Half of the agents' variables is no reason to doubt torchrun.
  CHECK(from(variables{{"PMI_RANK", "1"}} + torchrun).index == 3);
}

TEST_CASE("Slurm's tasks may be the daemons that mpirun starts, one a machine") {
  const variables hydra{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  CHECK(from(hydra + variables{{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}}).index == 5);
  const variables open_mpi{{"OMPI_COMM_WORLD_RANK", "5"},
                           {"OMPI_COMM_WORLD_SIZE", "8"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  CHECK(from(open_mpi + variables{{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}}).index == 5);
  // Open MPI's needs no daemon on the machine that it runs on itself.
  CHECK(from(open_mpi + variables{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "3"}, {"SLURM_STEP_ID", "0"}}).index == 5);
  CHECK_THAT(refusal(open_mpi + variables{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}}),
             Contains("Open MPI says rank 5 of 8, Slurm says rank 1 of 2"));
  CHECK_THAT(refusal(hydra + variables{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "3"}, {"SLURM_STEP_ID", "0"}}),
             Contains("Hydra says rank 5 of 8, Slurm says rank 1 of 3"));
  // As many tasks as processes are the processes, which srun started: they must have the same ranks.
  CHECK(from(variables{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}} +
             variables{{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}})
            .index == 5);
  CHECK(refusal(variables{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}} +
                variables{{"SLURM_PROCID", "4"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}}) != "");
}

TEST_CASE("half of what a launcher sets is refused, not taken for a process alone") {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"}) {
    for (const char* value : {"0", "3"}) CHECK_THAT(refusal({{name, value}}), Contains(name));
  }
  CHECK_THAT(refusal({{"RANK", "3"}}), Contains("WORLD_SIZE") && Contains("MILLRACE_RANK"));
  for (const char* name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"}) {
    CHECK_THAT(refusal({{name, "4"}}), Contains(name));
    CHECK(from({{name, "1"}}).world_size == 1);  // true of a process alone
  }
  CHECK_THAT(refusal({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"}}), Contains("SLURM_NTASKS"));
  CHECK_THAT(refusal({{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "4"}}), Contains("SLURM_PROCID"));
  CHECK(from({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}}).world_size == 4);
  // An explicit rank is asked for by these messages, so it must help.
  CHECK(from({{"RANK", "3"}, {"MILLRACE_RANK", "1"}, {"MILLRACE_WORLD_SIZE", "2"}}).index == 1);
}

TEST_CASE("half of what one launcher sets must agree with the other launcher that is there") {
  const variables step{{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}};
  // Batch scripts export it for the processes that srun starts.
  CHECK(from(variables{{"WORLD_SIZE", "8"}} + step).index == 3);
  CHECK_THAT(refusal(variables{{"WORLD_SIZE", "2"}} + step), Contains("WORLD_SIZE is 2") && Contains("rank 3 of 8"));
  CHECK_THAT(refusal(variables{{"RANK", "1"}} + step), Contains("RANK is 1") && Contains("Slurm"));
  CHECK(from(variables{{"RANK", "3"}} + step).index == 3);
}

TEST_CASE("a batch script without srun is one process, whatever the job has") {
  const variables job{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}};
  CHECK(from(job).world_size == 1);
  CHECK(from(variables{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}}).world_size == 1);
  CHECK(from(variables{{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}}).world_size == 1);  // no --ntasks
  // Unless it says that there should be more: srun was forgotten.
  CHECK_THAT(refusal(job + variables{{"WORLD_SIZE", "8"}}), Contains("WORLD_SIZE"));
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

TEST_CASE("a process that believes to be alone reports the launcher that started several") {
  const auto told = [](const rank& said, variables table) { return detail::forgotten_launcher(said, in(table)); };
  const rank alone;
  CHECK(told(alone, {}).empty());
  CHECK(told(alone, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}).empty());
  CHECK(told(alone, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}).empty());
  CHECK(told(alone, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "6"}}).empty());  // a batch script
  CHECK(told(alone, {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}}) ==
        "millrace: this process reads as rank 0 of 1, so all of the data, but Open MPI says that it is rank 1 of 4: "
        "unless that is meant, give epochs() rank_from_environment() as its .rank");
  CHECK_THAT(told(alone, torchrun), Contains("torchrun says that it is rank 3 of 8"));
  CHECK_THAT(told(alone, {{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "6"}, {"SLURM_STEP_ID", "0"}}),
             Contains("Slurm says that it is rank 5 of 6"));
  CHECK_THAT(told(alone, {{"RANK", "3"}, {"WORLD_SIZE", "8"}}), Contains("they may count machines"));
  CHECK(told({.index = 3, .world_size = 8}, torchrun).empty());
  CHECK(told({.index = 1, .world_size = 2}, torchrun).empty());  // groups of ranks
  CHECK(told(rank_group({.index = 1, .world_size = 4}, [](auto, auto) {}).replicas(4).mine(), torchrun).empty());
}

TEST_CASE("a run says once that its process was started by a launcher of several") {
  std::vector<std::string> lines;
  const auto add = [&](const log_record& r) { lines.emplace_back(r.text); };
  const auto begin = [&](const rank* r) {
    runtime rt({.log = add});
    auto numbers = stream(iota(3));
    auto run = rt.run(r == nullptr ? std::move(numbers) : std::move(numbers).of_rank(*r));
    CHECK(run.next() == 0);
  };
  ::setenv("OMPI_COMM_WORLD_RANK", "2", 1);
  ::setenv("OMPI_COMM_WORLD_SIZE", "977", 1);
  const rank alone;
  const rank one_of_them{.index = 2, .world_size = 977};
  begin(nullptr);  // no launcher is set
  begin(&one_of_them);
  CHECK(lines.empty());
  begin(&alone);
  begin(&alone);
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Contains("rank 0 of 1") && Contains("Open MPI says that it is rank 2 of 977"));
}
