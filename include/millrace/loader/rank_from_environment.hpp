// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/environment.hpp>
#include <millrace/base/error.hpp>
#include <millrace/shards/rank.hpp>

namespace millrace {

namespace detail {

struct rank_source {
  const char* name;
  const char* index;
  const char* world_size;
  const char* local_index;
  const char* local_world_size;
};

template <class = void>
std::optional<std::uint32_t> rank_number(const environment& variables, const char* name) {
  if (name == nullptr) return std::nullopt;
  const std::optional<std::string> text = variables.get(name);
  if (!text) return std::nullopt;
  std::uint64_t value = 0;
  for (char c : *text) {
    if (c < '0' || c > '9' || value > UINT32_MAX) {
      throw configuration_error(std::string(name) + " is \"" + *text + "\": expected a number");
    }
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  if (value > UINT32_MAX) throw configuration_error(std::string(name) + " is \"" + *text + "\": too large");
  return static_cast<std::uint32_t>(value);
}

template <class = void>
std::optional<rank> rank_from(const environment& variables, const rank_source& source) {
  const std::optional<std::uint32_t> index = rank_number(variables, source.index);
  const std::optional<std::uint32_t> size = rank_number(variables, source.world_size);
  if (!index || !size) return std::nullopt;  // both, or the launcher is not there
  rank r;
  r.index = *index;
  r.world_size = *size;
  r.local_index = rank_number(variables, source.local_index).value_or(0);
  r.local_world_size = rank_number(variables, source.local_world_size).value_or(1);
  r.source = source.name;
  r.check();
  return r;
}

}  // namespace detail

/// This process's rank from the launcher's variables, in this order: MILLRACE_RANK and MILLRACE_WORLD_SIZE, torchrun,
/// Open MPI, Hydra (MPICH, Intel MPI), MVAPICH, Slurm; a process that was launched by none is rank 0 of 1.
///
/// torchrun is believed only when RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK are all there: some
/// platforms set RANK and WORLD_SIZE per machine. RANK and WORLD_SIZE alone are refused rather than guessed about.
/// Launchers that contradict each other about index or size are refused with both values, except that an explicit
/// MILLRACE_RANK wins. Slurm counts only inside a step (SLURM_STEP_ID): in a batch script every process would be rank
/// 0; nor where its tasks are torchrun's agents, one a machine (`srun torchrun`).
template <class = void>
rank rank_from_environment(const environment& variables = process_environment()) {
  static constexpr detail::rank_source sources[] = {
      {"MILLRACE_RANK", "MILLRACE_RANK", "MILLRACE_WORLD_SIZE", "MILLRACE_LOCAL_RANK", "MILLRACE_LOCAL_WORLD_SIZE"},
      {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
      {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {"Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
      {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
       "MV2_COMM_WORLD_LOCAL_SIZE"},
      {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
  };
  std::optional<rank> found;
  for (const detail::rank_source& source : sources) {
    const std::string_view name = source.name;
    if (name == "Slurm") {
      const std::optional<std::string> step = variables.get("SLURM_STEP_ID");
      if (!step || *step == "batch" || *step == "4294967291" || *step == "4294967290") continue;
    }
    std::optional<rank> r = detail::rank_from(variables, source);
    if (name == "MILLRACE_RANK") {
      if (r) return *r;
      if (variables.get("MILLRACE_RANK") || variables.get("MILLRACE_WORLD_SIZE")) {
        throw configuration_error("MILLRACE_RANK and MILLRACE_WORLD_SIZE must both be set");
      }
      continue;
    }
    if (!r) continue;
    if (name == "torchrun" &&
        !(variables.get("LOCAL_RANK") && variables.get("LOCAL_WORLD_SIZE") && variables.get("GROUP_RANK"))) {
      throw configuration_error(
          "RANK and WORLD_SIZE are set without torchrun's LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK, so they may "
          "count "
          "machines and not processes: set MILLRACE_RANK and MILLRACE_WORLD_SIZE");
    }
    if (name == "Slurm" && found && std::strcmp(found->source, "torchrun") == 0 &&
        std::uint64_t(r->world_size) * found->local_world_size == found->world_size) {
      continue;  // it counts the agents, whose order torchrun decides anew
    }
    if (!found) {
      found = r;
    } else if (found->index != r->index || found->world_size != r->world_size) {
      throw configuration_error(std::string(found->source) + " says rank " + std::to_string(found->index) + " of " +
                                std::to_string(found->world_size) + ", " + r->source + " says rank " +
                                std::to_string(r->index) + " of " + std::to_string(r->world_size) +
                                ": set MILLRACE_RANK and MILLRACE_WORLD_SIZE");
    }
  }
  if (found) return *found;
  rank alone;
  alone.source = "no launcher";
  return alone;
}

}  // namespace millrace
