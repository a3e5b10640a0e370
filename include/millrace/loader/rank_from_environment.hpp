// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/data/rank.hpp>

namespace millrace::inline MILLRACE_ABI {

/// This process's rank from the launcher's variables: MILLRACE_RANK and MILLRACE_WORLD_SIZE, torchrun, Ray Train,
/// Lightning, Open MPI, Hydra (MPICH, Intel MPI), MVAPICH, Slurm, Kubeflow (PyTorchJob, Trainer), an Indexed Job of
/// Kubernetes; a process without a launcher is rank 0 of 1. A table in docs/guide/distributed.md says what is read.
///
/// Nothing is guessed. Half of a launcher's variables is an error (an index without a number of processes, RANK and
/// WORLD_SIZE without torchrun's others, which some platforms set per machine), and so are two launchers that
/// contradict each other about index or size, with both values; an explicit MILLRACE_RANK wins. Where the outer
/// launcher has started the agents of the inner one, one a machine, the inner one wins: `srun torchrun`, `mpirun
/// torchrun`, torchrun in the pods of Kubeflow or of a Job, mpirun in an allocation of Slurm. Slurm counts only inside
/// a step (SLURM_STEP_ID): a batch script without srun is one process. A pod of an Indexed Job has
/// JOB_COMPLETION_INDEX, and no number of pods: it is an error without MILLRACE_WORLD_SIZE, which the Job's description
/// can set. Kubeflow's PET_ variables are for torchrun: without it they are an error, unless each pod is to have one
/// process. PMIX_RANK alone is an error: pmix_ranks() (<millrace/pmix.hpp>) asks PMIx for the rest.
rank rank_from_environment(const environment& variables = process_environment());

}  // namespace millrace

namespace millrace::inline MILLRACE_ABI::detail {

/// A warning if a launcher has started several processes and the program has declared rank 0 of 1: each of them would
/// train on all of the data. Empty if there is no such contradiction. A program may intend it, so it is not an error.
std::string forgotten_launcher(const rank& said, const environment& variables);

/// Logs that warning, once in a process.
void log_forgotten_launcher(runtime_parts& log, const rank& said, const environment& variables);

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/rank_from_environment.ipp>
#endif
