// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/loader/rank_from_environment.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

struct rank_source {
  const char* name;
  const char* index;
  const char* world_size;
  const char* other_world_size;  // where world_size is not set
  const char* local_index;
  const char* local_world_size;
};

MILLRACE_INLINE std::optional<std::uint32_t> rank_number(const environment& variables, const char* name) {
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

/// A pod of an Indexed Job of Kubernetes, which has one process and knows its index alone.
inline constexpr rank_source indexed_job = {"Kubernetes", "JOB_COMPLETION_INDEX",     "MILLRACE_WORLD_SIZE", nullptr,
                                            nullptr,      "MILLRACE_LOCAL_WORLD_SIZE"};

inline constexpr rank_source torchrun = {"torchrun", "RANK", "WORLD_SIZE", nullptr, "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

/// A pod of Kubeflow (PyTorchJob, Trainer): the variables are options of torchrun's agent, and of a process where the
/// pod has one and no agent.
inline constexpr rank_source kubeflow = {"Kubeflow", "PET_NODE_RANK", "PET_NNODES", nullptr, nullptr, nullptr};

/// Slurm's variables are about this process only inside a step: in a batch script, and in the shell of an allocation,
/// they are those of the job, and SLURM_PROCID is 0.
MILLRACE_INLINE bool is_about_process(const environment& variables, const rank_source& source) {
  if (std::strcmp(source.name, "Slurm") != 0) return true;
  const std::optional<std::string> step = variables.get("SLURM_STEP_ID");
  return step && *step != "batch" && *step != "4294967291" && *step != "4294967290";
}

/// Processes on this machine. Slurm says those of all: "4(x2)" is 4 on each of 2; of unequally many, nothing is known.
MILLRACE_INLINE std::optional<std::uint32_t> local_world_size_from(const environment& variables,
                                                                   const rank_source& source) {
  if (std::strcmp(source.name, "Slurm") != 0) return rank_number(variables, source.local_world_size);
  const std::string text = variables.get(source.local_world_size).value_or(std::string());
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const bool equal = digits == text.size() || (text.compare(digits, 2, "(x") == 0 && text.find(')') == text.size() - 1);
  if (!equal || digits == 0 || digits > 6) return std::nullopt;
  return static_cast<std::uint32_t>(std::stoul(text.substr(0, digits)));
}

MILLRACE_INLINE std::optional<std::uint32_t> world_size_from(const environment& variables, const rank_source& source) {
  const std::optional<std::uint32_t> size = rank_number(variables, source.world_size);
  return size || source.other_world_size == nullptr ? size : rank_number(variables, source.other_world_size);
}

/// Nullopt for a source of which only half is set: see refuse_half().
MILLRACE_INLINE std::optional<rank> rank_from(const environment& variables, const rank_source& source) {
  if (!is_about_process(variables, source)) return std::nullopt;
  const std::optional<std::uint32_t> index = rank_number(variables, source.index);
  const std::optional<std::uint32_t> size = world_size_from(variables, source);
  if (!index || !size) return std::nullopt;
  rank r;
  r.index = *index;
  r.world_size = *size;
  r.local_index = rank_number(variables, source.local_index).value_or(0);
  r.local_world_size = local_world_size_from(variables, source).value_or(1);
  r.source = source.name;
  r.check();
  return r;
}

MILLRACE_INLINE std::string shown_rank(const rank& r) {
  return std::string(r.source) + " says rank " + std::to_string(r.index) + " of " + std::to_string(r.world_size);
}

/// True for ranks that an agent of each machine gives, of whatever started the agents.
MILLRACE_INLINE bool is_from_agent(const rank& r) noexcept {
  return std::strcmp(r.source, "torchrun") == 0 || std::strcmp(r.source, "Ray Train") == 0 ||
         std::strcmp(r.source, "Lightning") == 0;
}

MILLRACE_INLINE bool is_number(const std::optional<std::string>& text) {
  return text && !text->empty() && text->find_first_not_of("0123456789") == std::string::npos;
}

/// Kubeflow's, where its numbers are those of processes: one a pod. Else nullopt: see refuse_agents().
MILLRACE_INLINE std::optional<rank> rank_of_pod(const environment& variables) {
  const std::optional<std::string> each = variables.get("PET_NPROC_PER_NODE");
  if ((each && *each != "1") || !is_number(variables.get(kubeflow.world_size))) return std::nullopt;
  std::optional<rank> r = rank_from(variables, kubeflow);
  const std::optional<std::uint32_t> index = rank_number(variables, "RANK");
  const std::optional<std::uint32_t> size = rank_number(variables, "WORLD_SIZE");
  if (r && ((index && *index != r->index) || (size && *size != r->world_size))) {
    throw configuration_error(shown_rank(*r) + " by PET_NODE_RANK and PET_NNODES, and another one by RANK and " +
                              "WORLD_SIZE: set MILLRACE_RANK and MILLRACE_WORLD_SIZE");
  }
  return r;
}

/// torchrun's, or Ray Train's.
MILLRACE_INLINE std::optional<rank> rank_by_torchrun(const environment& variables) {
  std::optional<rank> r = rank_from(variables, torchrun);
  if (!r) return r;
  const bool ray = !variables.get("GROUP_RANK") && variables.get("NODE_RANK");
  const bool local = variables.get("LOCAL_RANK") && variables.get("LOCAL_WORLD_SIZE");
  if (local && ray) r->source = "Ray Train";
  if (local && (ray || variables.get("GROUP_RANK"))) return r;
  if (rank_of_pod(variables)) return std::nullopt;
  throw configuration_error(
      "RANK and WORLD_SIZE are set without torchrun's LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK (Ray Train: "
      "NODE_RANK), so they may count machines and not processes: set MILLRACE_RANK and MILLRACE_WORLD_SIZE");
}

/// PMIx says which process this is, and not of how many.
MILLRACE_INLINE void check_pmix(const environment& variables, const std::optional<rank>& found) {
  const std::optional<std::uint32_t> index = rank_number(variables, "PMIX_RANK");
  if (!index) return;
  const std::string says = "PMIX_RANK is " + std::to_string(*index);
  if (!found) {
    throw configuration_error(says + ", and no variable says of how many: pmix_ranks() (<millrace/pmix.hpp>) asks " +
                              "PMIx, or set MILLRACE_RANK and MILLRACE_WORLD_SIZE");
  }
  const bool its_own = std::strcmp(found->source, "Slurm") == 0 || std::strcmp(found->source, "Open MPI") == 0;
  if (its_own && *index != found->index) {
    throw configuration_error(shown_rank(*found) + ", " + says + ": set MILLRACE_RANK and MILLRACE_WORLD_SIZE");
  }
}

/// Throws where Kubeflow has left it to torchrun to start the processes, and it has started none.
MILLRACE_INLINE void refuse_agents(const environment& variables) {
  static constexpr const char* names[] = {"PET_NPROC_PER_NODE", "PET_NNODES", "PET_NODE_RANK"};
  for (const char* name : names) {
    const std::optional<std::string> text = variables.get(name);
    if (!text || (*text == "1" && std::strcmp(name, kubeflow.index) != 0)) continue;
    throw configuration_error(std::string(name) + " is \"" + *text + "\", which is for torchrun, and that has not " +
                              "started this process: start it in the pods (torchrun --no-python PROGRAM), or set " +
                              "MILLRACE_RANK and MILLRACE_WORLD_SIZE");
  }
}

/// Lightning's own launcher sets no rank: that is the machine's first one, and the process's number on the machine.
MILLRACE_INLINE std::optional<rank> rank_by_lightning(const environment& variables) {
  const std::optional<std::uint32_t> node = rank_number(variables, "NODE_RANK");
  const std::optional<std::uint32_t> local = rank_number(variables, "LOCAL_RANK");
  const std::optional<std::uint32_t> size = rank_number(variables, "WORLD_SIZE");
  if (!node || !local || !size || variables.get("RANK")) return std::nullopt;
  std::optional<std::uint32_t> each = rank_number(variables, "LOCAL_WORLD_SIZE");
  if (!each) each = rank_number(variables, "MILLRACE_LOCAL_WORLD_SIZE");
  if (!each && *node != 0) {
    throw configuration_error("NODE_RANK is " + std::to_string(*node) + " and LOCAL_RANK " + std::to_string(*local) +
                              ", and Lightning does not say how many processes a machine has: add the environment "
                              "variable MILLRACE_LOCAL_WORLD_SIZE with the Trainer's number of devices");
  }
  rank r;
  r.index = *node * each.value_or(0) + *local;
  r.world_size = *size;
  r.local_index = *local;
  r.local_world_size = each.value_or(1);
  r.source = "Lightning";
  r.check();
  return r;
}

/// True if `outer` counts the agents that started the processes of `inner`, one agent a machine. torchrun's may be
/// started by anything, and decide on an order of their own. mpirun starts its daemons as tasks of Slurm, and Open
/// MPI's needs none on the machine that it runs on itself.
MILLRACE_INLINE bool counts_agents(const rank& outer, const rank& inner) {
  const std::uint64_t each = inner.local_world_size;
  const bool one_a_machine = outer.world_size * each == inner.world_size;
  if (is_from_agent(inner)) return one_a_machine;
  if (std::strcmp(outer.source, "Slurm") != 0 || outer.world_size == inner.world_size) return false;
  return one_a_machine || (std::strcmp(inner.source, "Open MPI") == 0 &&
                           (std::uint64_t(outer.world_size) + 1) * each == inner.world_size);
}

/// Throws for an index without a number of processes, and for a number without an index: taken for nothing, every
/// process would be rank 0 of 1 and read everything. Not where they are true of `found`, the rank that another launcher
/// gave: batch scripts set WORLD_SIZE for the processes that srun starts. Under torchrun they are those of its agents.
MILLRACE_INLINE void refuse_half(const environment& variables, const rank_source& source,
                                 const std::optional<rank>& found) {
  if (!is_about_process(variables, source) || (found && is_from_agent(*found))) return;
  const std::optional<std::uint32_t> index = rank_number(variables, source.index);
  const std::optional<std::uint32_t> size = world_size_from(variables, source);
  if (index.has_value() == size.has_value()) return;
  const char* const name = index ? source.index : source.world_size;
  const std::uint32_t value = index ? *index : *size;
  if (found ? value == (index ? found->index : found->world_size) : !index && value == 1) return;
  throw configuration_error(std::string(name) + " is " + std::to_string(value) + " and " +
                            (index ? source.world_size : source.index) + " is not set" +
                            (found ? ", " + shown_rank(*found) : std::string()) +
                            ": set both as a launcher does, or MILLRACE_RANK and MILLRACE_WORLD_SIZE");
}

}  // namespace detail

MILLRACE_INLINE rank rank_from_environment(const environment& variables) {
  static constexpr detail::rank_source given = {"MILLRACE_RANK", "MILLRACE_RANK",       "MILLRACE_WORLD_SIZE",
                                                nullptr,         "MILLRACE_LOCAL_RANK", "MILLRACE_LOCAL_WORLD_SIZE"};
  static constexpr detail::rank_source sources[] = {
      {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr, "OMPI_COMM_WORLD_LOCAL_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {"Hydra", "PMI_RANK", "PMI_SIZE", nullptr, "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
      {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", nullptr, "MV2_COMM_WORLD_LOCAL_RANK",
       "MV2_COMM_WORLD_LOCAL_SIZE"},
      {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
  };
  if (const std::optional<rank> r = detail::rank_from(variables, given)) return *r;
  if (variables.get(given.index) || variables.get(given.world_size)) {
    if (!variables.get(given.index)) {
      if (const std::optional<rank> pod = detail::rank_from(variables, detail::indexed_job)) return *pod;
    }
    throw configuration_error("MILLRACE_RANK and MILLRACE_WORLD_SIZE must both be set");
  }
  // Those that started the process itself come first, what started the agents of others later.
  std::optional<rank> found = detail::rank_by_torchrun(variables);
  if (!found) found = detail::rank_by_lightning(variables);
  const auto take = [&](const std::optional<rank>& r) {
    if (!r) return;
    if (!found) {
      found = r;
    } else if ((found->index != r->index || found->world_size != r->world_size) && !detail::counts_agents(*r, *found)) {
      throw configuration_error(detail::shown_rank(*found) + ", " + detail::shown_rank(*r) +
                                ": set MILLRACE_RANK and MILLRACE_WORLD_SIZE");
    }
  };
  for (const detail::rank_source& source : sources) take(detail::rank_from(variables, source));
  if (!found || !detail::is_from_agent(*found)) {
    take(detail::rank_of_pod(variables));
  } else if (detail::is_number(variables.get(detail::kubeflow.world_size))) {
    take(detail::rank_from(variables, detail::kubeflow));
  }
  detail::refuse_half(variables, detail::torchrun, found);
  for (const detail::rank_source& source : sources) detail::refuse_half(variables, source, found);
  detail::check_pmix(variables, found);
  if (found) return *found;
  detail::refuse_agents(variables);
  if (const std::optional<std::uint32_t> pod = detail::rank_number(variables, detail::indexed_job.index)) {
    throw configuration_error(
        "JOB_COMPLETION_INDEX is " + std::to_string(*pod) +
        ", and Kubernetes does not say how many pods the Job has: add the line `- {name: MILLRACE_WORLD_SIZE, value: "
        "\"N\"}` to the env of the Job's container, with the Job's completions for N, or start torchrun in the pods");
  }
  rank alone;
  alone.source = "no launcher";
  return alone;
}

}  // namespace millrace::inline MILLRACE_ABI

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE std::string forgotten_launcher(const rank& said, const environment& variables) {
  if (said.world_size != 1 || std::strcmp(said.source, "replica") == 0) return {};  // of a rank_group, which knows
  std::string why;
  try {
    const rank launched = rank_from_environment(variables);
    if (launched.world_size == 1) return {};
    why = std::string(launched.source) + " says that it is rank " + std::to_string(launched.index) + " of " +
          std::to_string(launched.world_size);
  } catch (const configuration_error& e) {
    // One process on a platform that always sets these: no contradiction.
    const std::optional<std::string> size = variables.get("WORLD_SIZE");
    if (size && *size == "1") return {};
    why = e.what();
  }
  return "millrace: this process reads as rank 0 of 1, so all of the data, but " + why +
         ": unless that is meant, give epochs() rank_from_environment() as its .rank";
}

MILLRACE_INLINE void log_forgotten_launcher(runtime_parts& log, const rank& said, const environment& variables) {
  const std::string line = forgotten_launcher(said, variables);
  if (!line.empty() && first_time(line)) log.log(log_record(log_level::warning, line));
}

}  // namespace millrace::detail
