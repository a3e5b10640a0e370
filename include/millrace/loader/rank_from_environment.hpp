// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/data/rank.hpp>

namespace millrace::inline MILLRACE_ABI {

/// This process's rank from the launcher's variables, in this order: MILLRACE_RANK and MILLRACE_WORLD_SIZE, torchrun,
/// Ray Train, Open MPI, Hydra (MPICH, Intel MPI), MVAPICH, Slurm; a process without a launcher is rank 0 of 1.
///
/// torchrun counts only if RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK are all set, Ray Train only
/// with NODE_RANK in the place of the last one: some platforms set RANK and WORLD_SIZE per machine. A pod of an Indexed
/// Job of Kubernetes has JOB_COMPLETION_INDEX, and no number of pods: it is an error without MILLRACE_WORLD_SIZE, which
/// the Job's description can set. RANK and WORLD_SIZE alone are an error, and so is half of a launcher's variables (an
/// index without a number of processes). Launchers that contradict each other about index or size are an error with
/// both values, except that an explicit MILLRACE_RANK wins. Slurm counts only inside a step (SLURM_STEP_ID): a batch
/// script without srun is one process. Launchers that count the agents of another one, one a machine, do not contradict
/// it: `srun torchrun`, `mpirun torchrun`, mpirun in an allocation of Slurm.
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
